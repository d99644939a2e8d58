"""What the commands that read plain text share: their arguments, how they read it, what they report."""

import argparse
from collections import Counter
from collections.abc import Sequence

from fairseq_doc.cli.arguments import positive, read_lines, unit_of_data
from fairseq_doc.errors import shown
from fairseq_doc.evaluation.scoring import MAX_TOKENS, MAX_WORDS, STATES, check_sentences
from fairseq_doc.preparation.byte_tokens import BYTE, text_of

SHOWN = 10  # unknown words listed on standard error


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the text is, and how it is read."""
    parser.add_argument("--input", default="-", help="file to read (default: standard input)")
    parser.add_argument(
        "--state",
        choices=STATES,
        default=STATES[0],
        help="fresh: each sentence starts after </s> from zeros; carried: the lines are one text, as "
        "eval-lm reads it, and its first word is not scored (default: fresh)",
    )
    parser.add_argument(
        "--empty-lines",
        action="store_true",
        help="score the end mark of an empty line (default: an error)",
    )
    parser.add_argument(
        "--max-words",
        type=positive,
        default=MAX_WORDS,
        help=f"most words, or bytes, of a line (default: {MAX_WORDS:,})",
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=MAX_TOKENS,
        help=f"tokens scored at once; changes memory and speed, not results (default: {MAX_TOKENS:,})",
    )


def read_sentences(args: argparse.Namespace) -> tuple[list[list[str]], str]:
    """(the words of each line of ``--input``, what a token is: ``word`` or ``byte``); before the models
    are loaded.

    Raises:
        FairseqDocError: as :func:`fairseq_doc.evaluation.scoring.check_sentences`; an unreadable file.
    """
    at = "" if args.input == "-" else f"{args.input}: "
    unit = unit_of_data(args)
    lines = read_lines(args.input, "surrogateescape" if unit == BYTE else "strict")
    return check_sentences(lines, args.state, args.empty_lines, args.max_words, at, unit), unit


def plain_text(words: Sequence[str], unit: str) -> str:
    """A line of text from its tokens."""
    return text_of(words, unit) if unit == BYTE else " ".join(words)


def unknown_words(unknown: Counter[str], unit: str) -> str:
    """A line about words outside the dictionary, the most frequent first."""
    words = [word if len(word) < 80 else shown(word) for word in list(unknown)[:SHOWN]]
    if len(unknown) > SHOWN:
        words.append("...")
    return (
        f"{unit}s outside the dictionary, scored as <unk>: {unknown.total():,}, of "
        f"{len(unknown):,} types: {', '.join(words)}"
    )
