"""``fairseq-doc prepare-headline``."""

import argparse
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    add_destination,
    add_parallel_arguments,
    closing_line,
    prepare_parallel,
)
from fairseq_doc.preparation.parallel_text import Settings

NAME = "prepare-headline"
EXAMPLE = "fairseq-doc prepare-headline gigaword/ data-bin/gigaword"
# The words of these corpora are apart already.
DEFAULT = Settings("src", "tgt", "", merges=5000, joint=True, tokenizer="none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="folder of the raw files, FILE.src (articles) and FILE.tgt (headlines), one a line",
    )
    add_destination(parser, "FOLDER")
    add_parallel_arguments(parser, DEFAULT)
    parser.set_defaults(source=DEFAULT.source, target=DEFAULT.target, tokenizer=DEFAULT.tokenizer)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """See :func:`prepare_parallel`."""
    return prepare_parallel(NAME, args)


def as_text(result: dict[str, Any]) -> str:
    """The closing line."""
    return closing_line(NAME, result)
