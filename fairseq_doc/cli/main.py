"""``fairseq-doc``: what to do with a trained model. One file a subcommand, listed here.

A subcommand is a module with ``NAME``, ``HELP``, ``EXAMPLE``, ``add_arguments(parser)``, ``run(args)``,
which gives the result as what JSON can hold, and ``as_text(result)``, which puts it into lines.
"""

import argparse
import json
import logging
import math
import os
import sys
import warnings

from fairseq_doc.cli import (
    attention,
    curves,
    eval_lm,
    evalb,
    generate,
    rank,
    rerank,
    score,
    weights,
)
from fairseq_doc.errors import first_usage_error

SUBCOMMANDS = (eval_lm, score, generate, rank, weights, curves, attention, rerank, evalb)


def make_parser():
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="fairseq-doc", description="Use a trained model of fairseq_doc."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in SUBCOMMANDS:
        own = commands.add_parser(
            command.NAME,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=f"example:\n  {command.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(own)
        own.add_argument("--json", action="store_true", help="print one JSON object")
        own.set_defaults(command=command)
    return parser


def main(arguments=None):
    """Run one subcommand.

    Returns:
        The exit status: 0; 1 for what the user can mend, told in one line; argparse's 2.
    """
    args = make_parser().parse_args(arguments)
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=logging.WARNING,
        stream=sys.stderr,
        force=True,  # importing fairseq sets up a logging of its own
    )
    warnings.filterwarnings("ignore", category=FutureWarning, module="fairseq")
    warnings.filterwarnings("ignore", message="'pin_memory'")  # without a GPU nothing is pinned
    sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the locale
    try:
        result = args.command.run(args)
        text = json.dumps(_finite(result)) if args.json else args.command.as_text(result)
        print(text, flush=True)
    except BrokenPipeError:  # the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        usage_error = first_usage_error(error)
        if isinstance(error, OSError):  # a file that cannot be read or written
            usage_error = usage_error or error
        if usage_error is None:
            raise
        print(f"fairseq-doc {args.command.NAME}: error: {usage_error}", file=sys.stderr)
        return 1
    return 0


def _finite(value):
    """The same with null for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
