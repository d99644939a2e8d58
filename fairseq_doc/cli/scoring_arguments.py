"""What ``bleu`` and ``rouge`` share: their arguments, and how outputs and references are read."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, moses_remark
from fairseq_doc.scoring.hypotheses import (
    AUTO,
    ReadOptions,
    System,
    read_references,
    read_system,
)

MIN_BOOTSTRAP = 100  # resamples, so that some lie beyond each bound of an interval


@dataclass(frozen=True)
class Texts:
    """What is compared.

    Attributes:
        references: raw references.
        systems: what each output holds.
        read: what was read and undone, in lines.
    """

    references: list[str]
    systems: list[System]
    read: list[str]


def add_scoring_arguments(parser: argparse.ArgumentParser) -> None:
    """The outputs, the references, and what is to be undone."""
    add = parser.add_argument
    add(
        "outputs",
        nargs="+",
        metavar="OUTPUT",
        help="fairseq-generate's standard output, or its file under --results-path; the first is "
        "the baseline",
    )
    add("--reference", required=True, metavar="RAW", help="raw references, one a line")
    add(
        "--bpe",
        choices=(AUTO, *BPE_KINDS),
        default=AUTO,
        help="segmentation to undo; found by default, and printed",
    )
    add(
        "--tokenizer",
        choices=(AUTO, *TOKENIZERS),
        default=AUTO,
        help="tokenisation to undo; found from the T- lines by default, and printed",
    )
    add(
        "--tokenized-reference",
        action="store_true",
        help="the references exist tokenised only: compare tokenised text with tokenised text",
    )
    add(
        "--allow-unknown",
        action="store_true",
        help="score lines with <unk> or \u2047 as they are, and say how many",
    )
    add(
        "--bootstrap",
        type=int,
        default=1000,
        metavar="N",
        help="resamples of the sentences for intervals and significance (default: 1000)",
    )


def read_texts(args: argparse.Namespace) -> Texts:
    """The references and outputs that the arguments name, all checked."""
    if args.bootstrap < MIN_BOOTSTRAP:
        raise FairseqDocError(
            f"--bootstrap: expected at least {MIN_BOOTSTRAP} resamples; got {args.bootstrap}"
        )
    if len({os.path.realpath(path) for path in args.outputs}) < len(args.outputs):
        raise FairseqDocError(f"expected different outputs; got {', '.join(args.outputs)}")
    options = ReadOptions(
        args.bpe, args.tokenizer, args.lang, args.tokenized_reference, args.allow_unknown
    )
    references = read_references(args.reference, options)
    systems = [read_system(path, references, options) for path in args.outputs]
    return Texts(references, systems, _what_was_read(args, references, systems))


def _what_was_read(
    args: argparse.Namespace, references: Sequence[str], systems: Sequence[System]
) -> list[str]:
    """What a reader of the scores must know about the texts, in lines."""
    kind = "tokenised (--tokenized-reference)" if args.tokenized_reference else "raw"
    lines = [f"references {args.reference}: {len(references):,} lines, {kind}"]
    for system in systems:
        line = f"{system.name}: undone here: {system.undoing}"
        if system.agreeing is not None:
            line += f"; {system.agreeing:,} of {len(references):,} targets are the reference"
        if system.unknown:
            line += f"; {system.unknown:,} hypotheses with an unknown unit, scored as they are"
        lines.append(line)
        remark = moses_remark(args.lang)
        if system.undoing.tokenizer == "moses" and remark:
            lines.append(remark)
    return lines


def system_names(result: dict) -> list[str]:
    """The outputs' names, padded to one width."""
    width = max(map(len, result["outputs"]))
    return [name.ljust(width) for name in result["outputs"]]


def p_text(p: float | None) -> str:
    """`` p 0.0120`` behind a score; nothing for the baseline."""
    return "" if p is None else f" p {p:.4f}"
