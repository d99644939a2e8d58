"""``fairseq-doc prepare-lm``."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    DATA_BIN,
    add_destination,
    add_workers,
    closing_line,
    reporting,
    result_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.binarisation import counts_of
from fairseq_doc.preparation.language_model import CORPORA, PYDOC, SPLITS, Settings, prepare

NAME = "prepare-lm"
HELP = "binarise text for a language model"
EXAMPLE = """fairseq-doc prepare-lm ptb ptb/ data-bin/ptb
  fairseq-doc prepare-lm pydoc data-bin/pydoc"""
THRESHOLDS = {PYDOC: 2}  # of the other corpora 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own."""
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        help="ptb or wikitext2, whose published counts are checked; text, any other; pydoc, the text "
        "that every Python carries",
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        help="folder of train.txt, valid.txt and test.txt, one sentence a line, tokens apart; pydoc "
        "takes none",
    )
    add_destination(parser, "CORPUS")
    parser.add_argument(
        "--threshold",
        type=int,
        metavar="N",
        help="words that occur less often in training become <unk> (default: 0; pydoc: 2)",
    )
    add_workers(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``destination``; ``types`` in fairseq's dictionary; ``splits``, each with its ``sentences`` and
    ``tokens``; ``report``, the lines that were printed."""
    folder, destination = _folders(args.corpus, args.folder, args.destination)
    threshold = args.threshold
    if threshold is None:
        threshold = THRESHOLDS.get(args.corpus, 0)
    with reporting(NAME, args.json) as (say, report):
        prepare(Settings(args.corpus, folder, threshold), destination, args.workers, say)
    return result_of(destination, report, **counts_of(destination / "dict.txt", SPLITS))


def _folders(
    corpus: str, folder: Path | None, destination: Path | None
) -> tuple[Path | None, Path]:
    """The folder of the text, None for pydoc, and the destination."""
    if corpus not in CORPORA:
        raise FairseqDocError(f"expected ptb, wikitext2 or text; got {corpus}; see --help")
    if corpus == PYDOC:
        if destination is not None:
            raise FairseqDocError(
                f"expected prepare-lm pydoc [DESTDIR]; got {folder} {destination}"
            )
        folder, destination = None, folder
    elif folder is None:
        raise FairseqDocError(f"expected prepare-lm {corpus} FOLDER [DESTDIR]; got no folder")
    return folder, destination or DATA_BIN / corpus


def as_text(result: dict[str, Any]) -> str:
    """The closing line."""
    return closing_line(NAME, result)
