"""What ``bleu`` and ``rouge`` share: their options, and how outputs and references are read."""

import os
from dataclasses import dataclass

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, moses_remark
from fairseq_doc.scoring.hypotheses import (
    AUTO,
    ReadOptions,
    System,
    read_references,
    read_system,
)

MIN_BOOTSTRAP = 100  # resamples, so that some lie beyond each bound of an interval


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """The outputs, the references, and what is to be undone.

    Raises:
        FairseqDocError: too few resamples; an output twice.
    """

    outputs: list[str] = option(
        "fairseq-generate's standard output, or its file under --results-path; the first is the "
        "baseline",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="OUTPUT",
        type=str,
    )
    reference: str = option("raw references, one a line", REQUIRED, metavar="RAW")
    bpe: str = option(
        "segmentation to undo; by default the one that the targets show, which is printed",
        AUTO,
        choices=(AUTO, *BPE_KINDS),
    )
    tokenizer: str = option(
        "tokenisation to undo; by default the one that the T- lines show, which is printed",
        AUTO,
        choices=(AUTO, *TOKENIZERS),
    )
    tokenized_reference: bool = option(
        "the references exist tokenised only: compare tokenised text with tokenised text", False
    )
    allow_unknown: bool = option(
        "score lines with <unk> or \u2047 as they are, and say how many", False
    )
    lang: str = option("language, for --tokenizer", "en")
    bootstrap: int = option(
        "resamples of the sentences for intervals and significance (default: 1000)",
        1000,
        metavar="N",
    )

    def __post_init__(self) -> None:
        if self.bootstrap < MIN_BOOTSTRAP:
            raise FairseqDocError(
                f"--bootstrap: expected at least {MIN_BOOTSTRAP} resamples; got {self.bootstrap}"
            )
        if len({os.path.realpath(path) for path in self.outputs}) < len(self.outputs):
            raise FairseqDocError(f"expected different outputs; got {', '.join(self.outputs)}")

    def read(self) -> tuple[list[str], list[System], list[str]]:
        """(raw references, the text of each output, what a reader of the scores must know about the
        texts, in lines)."""
        options = ReadOptions(
            self.bpe, self.tokenizer, self.lang, self.tokenized_reference, self.allow_unknown
        )
        references = read_references(self.reference, options)
        systems = [read_system(path, references, options) for path in self.outputs]
        kind = "tokenised (--tokenized-reference)" if self.tokenized_reference else "raw"
        lines = [f"references {self.reference}: {len(references):,} lines, {kind}"]
        remark = moses_remark(self.lang)
        for system in systems:
            line = f"{system.name}: undone here: {system.undoing}"
            if system.agreeing is not None:
                line += f"; {system.agreeing:,} of {len(references):,} targets are the reference"
            if system.unknown:
                line += f"; {system.unknown:,} hypotheses with an unknown unit, scored as they are"
            lines.append(line)
            if system.undoing.tokenizer == "moses" and remark:
                lines.append(remark)
        return references, systems, lines


def system_names(result: dict) -> list[str]:
    """The outputs' names, padded to one width."""
    width = max(map(len, result["outputs"]))
    return [name.ljust(width) for name in result["outputs"]]


def p_text(p: float | None) -> str:
    """`` p 0.0120`` behind a score; nothing for the baseline."""
    return "" if p is None else f" p {p:.4f}"
