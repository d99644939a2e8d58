"""``fairseq-doc curves``."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_doc.cli.outputs import named_outputs, output_lines
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

EXAMPLE = (
    "fairseq-doc curves curves.png MoS=mos.log DOC=doc.log\n"
    "  fairseq-doc curves --check examples/small_to_the_end/reference/doc.json doc.log"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="PICTURE NAME=LOG",
        help="the picture to write, such as curves.png, and runs: a name, and the output of its fairseq-train; "
        "with --check or --reference the logs alone",
    )
    parser.add_argument(
        "--check",
        metavar="REFERENCE",
        help="say whether each log is inside the band of this reference, and where it leaves it",
    )
    parser.add_argument(
        "--reference",
        metavar="FILE",
        help="write a reference of these logs, one a seed of the same training, as JSON",
    )
    parser.add_argument(
        "--command",
        dest="typed",
        metavar="TEXT",
        help="of --reference: what was typed, and its commit",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``picture`` and ``runs``. Each run has its ``perplexity`` by epoch, its ``best`` one, and the epochs
    ``averaging_after`` and ``stages_after``. With ``--check`` the ``reference`` and ``runs``, each with
    ``compared``, how many epochs, and the ``departures``. With ``--reference`` the ``reference`` and
    ``runs``."""
    if args.check is not None and args.reference is not None:
        raise FairseqDocError("expected --check or --reference; got both")
    if args.typed is not None and args.reference is None:
        raise FairseqDocError("--command: expected --reference beside it")
    if args.check is not None:
        return _check(args)
    if args.reference is not None:
        return _reference(args)
    picture, *runs = args.words
    if not runs:
        raise FairseqDocError(f"expected a picture and NAME=LOG; got {picture} alone")
    check_plot_path(picture, args.overwrite)
    curves: dict[str, LearningCurve] = {}
    for run in runs:
        name, equals, path = run.partition("=")
        if not equals or not name or name in curves:
            raise FairseqDocError(f"expected NAME=LOG, each name once; got {run}")
        curves[name] = read_log(path)
    plot_curves(curves, picture)
    return {"picture": picture, "runs": {name: _facts(curve) for name, curve in curves.items()}}


def _facts(curve: LearningCurve) -> dict[str, Any]:
    return {
        "perplexity": curve.perplexities,
        "best": min(curve.perplexities.values()),
        "averaging_after": curve.averaging_after,
        "stages_after": curve.stages_after,
    }


def _check(args: argparse.Namespace) -> dict[str, Any]:
    band = read_band(args.check)
    runs = {}
    for path in args.words:
        outside, compared = departures(read_log(path), band)
        runs[path] = {"compared": compared, "departures": [asdict(it) for it in outside]}
    return {**named_outputs(args, "check"), "runs": runs}


def _reference(args: argparse.Namespace) -> dict[str, Any]:
    if args.typed is None:
        raise FairseqDocError("--reference: expected --command TEXT, what was typed to train")
    check_output(Path(args.reference), args.overwrite)
    curves: dict[str, LearningCurve] = {}
    for path in args.words:
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
    write_reference(args.reference, reference(curves, args.typed, made_with))
    return {
        **named_outputs(args, "reference"),
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
