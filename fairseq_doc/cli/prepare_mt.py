"""``fairseq-doc prepare-mt``."""

import argparse
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    add_destination,
    add_parallel_arguments,
    closing_line,
    prepare_parallel,
)
from fairseq_doc.preparation.parallel_text import Settings
from fairseq_doc.preparation.tokenization import TOKENIZERS

NAME = "prepare-mt"
EXAMPLE = "fairseq-doc prepare-mt en de multi30k/ data-bin/multi30k.en-de --merges 8000 --joint"
DEFAULT = Settings("", "", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own."""
    parser.add_argument("source", metavar="SRC", help="source language, as its files end")
    parser.add_argument("target", metavar="TGT", help="target language, as its files end")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="folder of the raw files, FILE.SRC and FILE.TGT, one sentence a line",
    )
    add_destination(parser, "FOLDER.SRC-TGT")
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        default=DEFAULT.tokenizer,
        help="how text is tokenised, as by fairseq's --tokenizer; none for text that is already (default: %(default)s)",
    )
    add_parallel_arguments(parser, DEFAULT)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """See :func:`prepare_parallel`."""
    return prepare_parallel(NAME, args, f".{args.source}-{args.target}")


def as_text(result: dict[str, Any]) -> str:
    """The closing line."""
    return closing_line(NAME, result)
