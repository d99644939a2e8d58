"""``fairseq-doc``: text and trees into data, and what to do with a trained model.

A command is a module with ``NAME``, ``HELP``, ``EXAMPLE``, ``add_arguments(parser)``, ``run(args)``, which
gives the result as what JSON can hold, and ``as_text(result)``, which puts it into lines. Every command
is listed here, in the order of work.
"""

import argparse
import io
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from fairseq_doc.cli import (
    attention,
    bleu,
    collect_parses,
    components,
    curves,
    eval_lm,
    evalb,
    export,
    generate,
    prepare_headline,
    prepare_lm,
    prepare_mt,
    prepare_parsing,
    rank,
    rerank,
    rouge,
    score,
    tune,
    weights,
)
from fairseq_doc.errors import first_usage_error
from fairseq_doc.fairseq_patches import interruptions

GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "prepare": (prepare_lm, prepare_mt, prepare_headline, prepare_parsing),
    "train": (tune,),
    "evaluate": (eval_lm, score, generate, bleu, rouge),
    "analyse": (rank, weights, components, curves, attention),
    "export": (export,),
    "parse": (collect_parses, rerank, evalb),
}
SUBCOMMANDS = tuple(command for commands in GROUPS.values() for command in commands)
# fairseq's own commands train. They are listed so that the order of work is complete.
TRAINING = (
    ("fairseq-train", "train: fairseq-train DATA --user-dir $(python -m fairseq_doc) ..."),
    ("fairseq-hydra-train", "the same with its options in a YAML file"),
)


def overview() -> str:
    """The list of commands, in groups."""
    lines = ["commands, in the order of work; fairseq-doc COMMAND --help describes one:"]
    for group, commands in GROUPS.items():
        rows = [(command.NAME, command.HELP) for command in commands]
        if group == "train":
            rows = [*TRAINING, *rows]
        lines += ["", f"{group}:"]
        lines += [f"  {name:<20} {summary}" for name, summary in rows]
    return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="fairseq-doc",
        usage="fairseq-doc [-h] COMMAND ...",
        description="Models with Direct Output Connection: prepare data, evaluate, analyse, parse.",
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        prog="fairseq-doc", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for command in SUBCOMMANDS:
        own = commands.add_parser(
            command.NAME,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=f"example:\n  {command.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(own)
        own.add_argument("--json", action="store_true", help="print one JSON object")
        own.set_defaults(command=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0; 1 for an error that the user can correct, printed in one line; 130 where
        it was interrupted. argparse exits with 2.
    """
    set_up_output()  # first, since --help too prints characters that a locale may lack
    interruptions.apply()
    args = make_parser().parse_args(arguments)
    try:
        result = args.command.run(args)
        text = json.dumps(_finite(result)) if args.json else args.command.as_text(result)
        print(text, flush=True)
    except BrokenPipeError:  # the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        usage_error: Exception | None = first_usage_error(error)
        if usage_error is None and isinstance(error, OSError):  # a file cannot be read or written
            usage_error = error
        if usage_error is None:
            raise
        print(f"fairseq-doc {args.command.NAME}: error: {usage_error}", file=sys.stderr)
        return 1
    return 0


def set_up_output() -> None:
    """Results on standard output in UTF-8, whatever the locale; warnings on standard error. Names of
    files that the locale cannot read are printed as they are."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=logging.WARNING,
        stream=sys.stderr,
        force=True,  # importing fairseq sets up a logging of its own
    )
    warnings.filterwarnings("ignore", category=FutureWarning, module="fairseq")
    warnings.filterwarnings("ignore", message="'pin_memory'")  # without a GPU nothing is pinned
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
