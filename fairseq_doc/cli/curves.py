"""``fairseq-doc curves``."""

import argparse
from typing import Any

from fairseq_doc.cli.arguments import add_picture_arguments
from fairseq_doc.cli.outputs import named_outputs, output_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.learning_curves import read_log
from fairseq_doc.evaluation.plotting import check_plot_path, plot_curves

EXAMPLE = "fairseq-doc curves curves.png MoS=mos.log DOC=doc.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_picture_arguments(parser, positional=True)
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="NAME=LOG",
        help="name of a run, and the output of its fairseq-train",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``picture`` and ``runs``. Each run has its ``perplexity`` by epoch, its ``best`` one, and the epochs
    ``averaging_after`` and ``stages_after``."""
    check_plot_path(args.picture, args.overwrite)
    curves = {}
    for run in args.runs:
        name, equals, path = run.partition("=")
        if not equals or not name or name in curves:
            raise FairseqDocError(f"expected NAME=LOG, each name once; got {run}")
        curves[name] = read_log(path)
    plot_curves(curves, args.picture)
    return {
        **named_outputs(args, "picture"),
        "runs": {
            name: {
                "perplexity": curve.perplexities,
                "best": min(curve.perplexities.values()),
                "averaging_after": curve.averaging_after,
                "stages_after": curve.stages_after,
            }
            for name, curve in curves.items()
        },
    }


def as_text(result: dict[str, Any]) -> str:
    """One line for each run."""
    lines = [
        f"{name}: {len(run['perplexity'])} epochs, best validation perplexity {run['best']:g}"
        for name, run in result["runs"].items()
    ]
    return "\n".join(lines + output_lines(result, "picture"))
