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
from fairseq_doc.preparation.byte_tokens import BYTE, UNITS, WORD
from fairseq_doc.preparation.language_model import (
    CORPORA,
    ENWIK8,
    PERCENTAGES,
    PYDOC,
    SPLITS,
    Settings,
    prepare,
)

NAME = "prepare-lm"
EXAMPLE = """fairseq-doc prepare-lm ptb ptb/ data-bin/ptb
  fairseq-doc prepare-lm pydoc data-bin/pydoc
  fairseq-doc prepare-lm enwik8 enwik8 data-bin/enwik8
  fairseq-doc prepare-lm text mytext/ data-bin/mytext --threshold 2
  fairseq-doc prepare-lm text mytext.txt data-bin/mytext --split 90,5,5 --unit byte"""
THRESHOLDS = {(PYDOC, WORD): 2}  # of the others 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own."""
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        help="ptb, wikitext2 or enwik8, whose published counts are checked; text, any other; pydoc, "
        "the text that every Python carries",
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        help="folder of train.txt, valid.txt and test.txt (or ptb.train.txt, or wiki.train.tokens, and "
        "so on), one sentence a line, already tokenised, since lines are split at blanks only; with "
        "--split a file; for enwik8 its file of 100 MB; pydoc takes none",
    )
    add_destination(parser, "CORPUS")
    parser.add_argument(
        "--split",
        type=_percentages,
        metavar="N,N,N",
        help="text of one file in place of a folder: the first N percent of its lines are training, "
        "the next validation, the last test, such as 90,5,5",
    )
    parser.add_argument(
        "--unit",
        choices=UNITS,
        help="what a token is; with byte, every byte of the text, whatever its encoding (default: "
        "word; enwik8: byte)",
    )
    parser.add_argument(
        "--threshold",
        type=int,
        metavar="N",
        help="words, or bytes, that occur less often in training become <unk>; text without <unk> in "
        "place needs 2, so that the model learns to predict it (default: 0; words of pydoc: 2)",
    )
    add_workers(parser)


def _percentages(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {PERCENTAGES}; got {text!r}") from None


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``destination``; ``types`` in fairseq's dictionary; ``splits``, each with its ``sentences`` and
    ``tokens``; ``report``, the lines that were printed."""
    source, destination = _places(args.corpus, args.folder, args.destination)
    unit = args.unit or (BYTE if args.corpus == ENWIK8 else WORD)
    threshold = args.threshold
    if threshold is None:
        threshold = THRESHOLDS.get((args.corpus, unit), 0)
    with reporting(NAME, args.json) as (say, report):
        settings = Settings(args.corpus, source, threshold, unit, split=args.split)
        prepare(settings, destination, args.workers, say)
    return result_of(destination, report, **counts_of(destination / "dict.txt", SPLITS))


def _places(corpus: str, source: Path | None, destination: Path | None) -> tuple[Path | None, Path]:
    """The folder or file of the text, None for pydoc, and the destination."""
    if corpus not in CORPORA:
        *others, last = CORPORA
        raise FairseqDocError(f"expected {', '.join(others)} or {last}; got {corpus}; see --help")
    if corpus == PYDOC:
        if destination is not None:
            raise FairseqDocError(
                f"expected prepare-lm pydoc [DESTDIR]; got {source} {destination}"
            )
        source, destination = None, source
    elif source is None:
        kind = "file" if corpus == ENWIK8 else "folder"
        raise FairseqDocError(
            f"expected prepare-lm {corpus} {kind.upper()} [DESTDIR]; got no {kind}"
        )
    return source, destination or DATA_BIN / corpus


def as_text(result: dict[str, Any]) -> str:
    """The closing line."""
    return closing_line(NAME, result)
