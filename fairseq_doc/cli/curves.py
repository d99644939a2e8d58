"""``fairseq-doc curves``."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.cli.outputs import output_lines
from fairseq_doc.cli.version import report
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.learning_curves import LearningCurve, read_log
from fairseq_doc.evaluation.plotting import check_plot_path, plot_curves
from fairseq_doc.evaluation.reference_curves import (
    departures,
    read_band,
    reference,
    write_reference,
)
from fairseq_doc.files import check_output
from fairseq_doc.options import REQUIRED, option

EXAMPLE = (
    "fairseq-doc curves curves.png MoS=mos.log DOC=doc.log\n"
    "  fairseq-doc curves --check reference.json doc.log"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of this command.

    Raises:
        FairseqDocError: options that do not belong together.
    """

    file: str = option(
        "the picture to write, such as curves.png; with --check or --reference the reference, as JSON",
        REQUIRED,
        positional=True,
        metavar="PICTURE",
    )
    runs: list[str] = option(
        "name of a run, and the output of its fairseq-train; with --check or --reference the output alone",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="NAME=LOG",
        type=str,
    )
    check: bool = option(
        "say whether each run is inside the band of the reference, and where it leaves it", False
    )
    reference: bool = option(
        "write a reference of the runs, one a seed of the same training", False
    )
    made_by: str | None = option(
        "of --reference: what was typed, and its commit",
        metavar="TEXT",
        needs="reference",
    )
    overwrite: bool = option("replace existing outputs", False)

    def __post_init__(self) -> None:
        if self.check and self.reference:
            raise FairseqDocError("expected --check or --reference; got both")
        if self.reference and self.made_by is None:
            raise FairseqDocError("--reference: expected --made-by TEXT, what was typed to train")


def run(settings: Options) -> dict[str, Any]:
    """``picture`` and ``runs``. Each run has its ``perplexity`` by epoch, its ``best`` one, and the epochs
    ``averaging_after`` and ``stages_after``. With ``--check`` that file as ``check`` and the ``runs``, each with
    ``compared``, how many epochs, and the ``departures``. With ``--reference`` the ``reference`` and
    ``runs``."""
    if settings.check:
        return _check(settings.file, settings.runs)
    if settings.reference:
        return _reference(settings)
    check_plot_path(settings.file, settings.overwrite)
    curves: dict[str, LearningCurve] = {}
    for run in settings.runs:
        name, equals, path = run.partition("=")
        if not equals or not name or name in curves:
            raise FairseqDocError(f"expected NAME=LOG, each name once; got {run}")
        curves[name] = read_log(path)
    plot_curves(curves, settings.file)
    return {
        "picture": settings.file,
        "runs": {name: _facts(curve) for name, curve in curves.items()},
    }


def _facts(curve: LearningCurve) -> dict[str, Any]:
    return {
        "perplexity": curve.perplexities,
        "best": min(curve.perplexities.values()),
        "averaging_after": curve.averaging_after,
        "stages_after": curve.stages_after,
    }


def _check(path_of_band: str, logs: list[str]) -> dict[str, Any]:
    band = read_band(path_of_band)
    runs = {}
    for path in logs:
        outside, compared = departures(read_log(path), band)
        runs[path] = {"compared": compared, "departures": [asdict(it) for it in outside]}
    return {"check": path_of_band, "runs": runs}


def _reference(settings: Options) -> dict[str, Any]:
    check_output(Path(settings.file), settings.overwrite)
    curves: dict[str, LearningCurve] = {}
    for path in settings.runs:
        name = Path(path).stem
        if name in curves:
            raise FairseqDocError(f"expected logs of different names; got {name} twice")
        curves[name] = read_log(path)
    rows = dict(line.partition(": ")[::2] for line in report())
    made_with: dict[str, str] = {
        name: rows[name].partition(", /")[0]
        for name in ("fairseq_doc", "Python", "torch", "processor", "matrix products")
        if name in rows
    }
    write_reference(settings.file, reference(curves, settings.made_by or "", made_with))
    return {
        "reference": settings.file,
        "runs": {name: _facts(curve) for name, curve in curves.items()},
    }


def as_text(result: dict[str, Any]) -> str:
    """One line for each run."""
    if "check" in result:
        return "\n".join(line for run in result["runs"].items() for line in _checked(*run))
    lines = [
        f"{name}: {len(run['perplexity'])} epochs, best validation perplexity {run['best']:g}"
        for name, run in result["runs"].items()
    ]
    return "\n".join(lines + output_lines(result, "picture", "reference"))


def _checked(name: str, run: dict[str, Any]) -> list[str]:
    if not run["departures"]:
        return [f"{name}: inside the band of the reference at all {run['compared']} epochs"]
    lines = [
        f"{name}: outside the band of the reference at {len(run['departures'])} of {run['compared']} epochs:"
    ]
    for it in run["departures"]:
        lines.append(
            f"  epoch {it['epoch']}: {it['perplexity']:g}, expected {it['low']:g} to {it['high']:g}"
        )
    return lines
