"""``fairseq-doc prepare-parsing``."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    add_destination,
    closing_line,
    default_destination,
    reporting,
    result_of,
)
from fairseq_doc.preparation.binarisation import counts_of
from fairseq_doc.preparation.language_model import SPLITS
from fairseq_doc.preparation.treebank import FILES, UNKNOWN_KINDS, Settings, prepare

NAME = "prepare-parsing"
EXAMPLE = "fairseq-doc prepare-parsing wsj/ data-bin/wsj --pairs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the trees")
    add_destination(parser, "FOLDER")
    for split, default in FILES.items():
        parser.add_argument(
            f"--{split}",
            default=default,
            metavar="FILE[,FILE]",
            help=f"files in FOLDER, or patterns such as '0[2-9]/*.mrg' (default: {default})",
        )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="remove traces and function tags, which the Penn Treebank's own files hold",
    )
    parser.add_argument(
        "--threshold",
        type=int,
        default=10,
        metavar="N",
        help="words that occur less often in training, in lower case, are rare (default: 10)",
    )
    parser.add_argument(
        "--unknown",
        choices=UNKNOWN_KINDS,
        default=UNKNOWN_KINDS[0],
        help="rare words are all <unk>, or a symbol by their shape (default: single)",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="sentences with their symbols too, in DESTDIR/pairs, for --task translation",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``destination``; ``types`` in fairseq's dictionary of symbols; ``splits``, each with its
    ``sentences`` and ``tokens``; ``report``, the lines that were printed."""
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    destination = args.destination or default_destination(args.folder)
    with reporting(NAME, args.json) as (say, report):
        prepare(settings, destination, say)
    return result_of(destination, report, **counts_of(destination / "dict.txt", SPLITS))


def as_text(result: dict[str, Any]) -> str:
    """The closing line."""
    return closing_line(NAME, result)
