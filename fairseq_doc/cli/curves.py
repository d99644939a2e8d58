"""analyse: learning curves of several runs in one plot, from fairseq's logs (Figure 2)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.analysis.learning_curves import (
    LearningCurve,
    band_of,
    departures,
    is_reference,
    mean_curve,
    read_log,
    read_reference,
    reference_lines,
)
from fairseq_doc.analysis.plotting import plot_curves
from fairseq_doc.cli.outputs import PICTURES, check_outputs
from fairseq_doc.cli.version import report
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.options import REQUIRED, check_ending, option

EXAMPLE = (
    "fairseq-doc curves curves.png MoS=mos.log DOC=doc.json\n"
    "  fairseq-doc curves --check reference.json doc.log"
)
MADE_WITH = ("fairseq_doc", "Python", "torch", "processor", "matrix products")  # of --version


@dataclass(frozen=True, kw_only=True)
class Options:
    file: str = option(
        "plot to write, such as curves.png; with --check or --reference, the reference, a .json "
        "file",
        REQUIRED,
        positional=True,
        metavar="PICTURE",
    )
    runs: list[str] = option(
        "name of a run, and its log, the output of fairseq-train, or a reference of several seeds, "
        "a .json file; with --check only the log; with --reference the default name is the log's",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="NAME=FILE",
        type=str,
    )
    check: bool = option(
        "report whether each run stays within the band of the reference, and where it does not",
        False,
        without=("reference",),
    )
    reference: bool = option(
        "write a reference from runs of the same training with different seeds",
        False,
        needs="made-by",
    )
    made_by: str | None = option(
        "command and commit to record in --reference", metavar="TEXT", needs="reference"
    )
    overwrite: bool = option("replace existing outputs", False)

    def files(self) -> dict[str, str]:
        """{name of a run: its file}."""
        files: dict[str, str] = {}
        for run in self.runs:
            name, equals, path = run.partition("=")
            if self.reference and not equals:
                name, path = Path(run).stem, run
            elif not equals or not name:
                raise FairseqDocError(f"expected NAME=FILE; got {run}")
            if name in files:
                raise FairseqDocError(f"expected runs with different names; got {name} twice")
            files[name] = path
        return files


def run(settings: Options) -> dict[str, Any]:
    """Result: the file ``picture`` or ``reference``, and ``runs``, each with ``perplexity`` by epoch,
    a mean over its ``seeds``, the ``best`` of them, and the epochs ``averaging_after`` and
    ``stages_after``. With --check: the file ``check``, and ``runs``, each with ``compared``, the
    number of epochs, of the reference's ``epochs``, and ``departures``."""
    if settings.check:
        band = band_of(read_reference(settings.file))
        runs = {}
        for path in settings.runs:
            outside, compared = departures(read_log(path), band)
            runs[path] = {"compared": compared, "epochs": len(band), "departures": outside}
        return {"check": settings.file, "runs": runs}
    check_ending(settings.file, (".json",) if settings.reference else PICTURES)
    files = settings.files()
    check_outputs(settings, settings.file, inputs=files.values())
    curves: dict[str, list[LearningCurve]] = {}
    for name, path in files.items():
        several = not settings.reference and is_reference(path)
        curves[name] = read_reference(path) if several else [read_log(path)]
    means = {name: mean_curve(seeds) for name, seeds in curves.items()}
    if settings.reference:
        rows = report().items()
        made_with = {name: row.partition(", /")[0] for name, row in rows if name in MADE_WITH}
        write_lines(settings.file, reference_lines(means, settings.made_by or "", made_with))
    else:
        plot_curves(curves, settings.file)
    kind = "reference" if settings.reference else "picture"
    facts = {name: {**mean.facts(), "seeds": len(curves[name])} for name, mean in means.items()}
    return {kind: settings.file, "runs": facts}


def as_text(result: dict[str, Any]) -> str:
    """A line for each run; with ``--check`` also for each epoch outside the band."""
    lines = []
    for name, run in result["runs"].items():
        if "check" not in result:
            epochs = len(run["perplexity"])
            best = "best mean" if run["seeds"] > 1 else "best"
            lines.append(f"{name}: {epochs} epochs, {best} validation perplexity {run['best']:g}")
            continue
        of_all = f" compared, of the reference's {run['epochs']}"
        compared = f"{run['compared']} epochs{of_all if run['compared'] < run['epochs'] else ''}"
        if not run["departures"]:
            lines.append(f"{name}: inside the band of the reference at all {compared}")
        else:
            number = len(run["departures"])
            lines.append(f"{name}: outside the band of the reference at {number} of {compared}:")
            outside = "  epoch {epoch}: {perplexity:g}, expected {low:g} to {high:g}"
            lines += map(outside.format_map, run["departures"])
    lines += [f"wrote {result[kind]}" for kind in ("picture", "reference") if kind in result]
    return "\n".join(lines)
