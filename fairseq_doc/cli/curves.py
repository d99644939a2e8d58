"""``fairseq-doc curves``."""

from fairseq_doc.cli.arguments import add_picture_arguments
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.learning_curves import read_log
from fairseq_doc.evaluation.plotting import check_plot_path, plot_curves

NAME = "curves"
HELP = "learning curves of several runs in one picture, from fairseq's logs (Figure 2)"
EXAMPLE = "fairseq-doc curves curves.png MoS=mos.log DOC=doc.log"


def add_arguments(parser):
    """Add this subcommand's own."""
    add_picture_arguments(parser, positional=True)
    parser.add_argument(
        "runs", nargs="+", metavar="NAME=LOG", help="what fairseq-train printed, and its name"
    )


def run(args):
    """``picture`` and ``runs``: of each ``perplexity`` by epoch, ``best``, ``averaging_after`` and
    ``stages_after``, epochs."""
    check_plot_path(args.picture, args.overwrite)
    curves = {}
    for run in args.runs:
        name, equals, path = run.partition("=")
        if not equals or not name or name in curves:
            raise FairseqDocError(f"expected NAME=LOG, every name once; got {run}")
        curves[name] = read_log(path)
    plot_curves(curves, args.picture)
    return {
        "picture": args.picture,
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


def as_text(result):
    """A line a run."""
    lines = [
        f"{name}: {len(run['perplexity'])} epochs, best validation perplexity {run['best']:g}"
        for name, run in result["runs"].items()
    ]
    return "\n".join(lines + [f"wrote {result['picture']}"])
