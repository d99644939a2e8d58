"""The best hypotheses of fairseq-generate as plain text, for comparison with raw references.

The data folder records which BPE and tokenisation to undo. Without it, this is inferred from the
generated targets (the ``T-`` lines): correctly undone, they equal the references.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError, check_count
from fairseq_doc.files import text_lines
from fairseq_doc.options import option
from fairseq_doc.preparation.data_folder import read_settings
from fairseq_doc.preparation.tokenization import BPE_KINDS, BPE_MARKS, TOKENIZERS, moses
from fairseq_doc.scoring.generated import GeneratedSentence, read_generated

AUTO = "auto"
BPE_MARK = re.compile("|".join(mark.pattern for mark in BPE_MARKS.values()))
UNKNOWN = re.compile("<unk>|\u2047")  # the marks of fairseq and of sentencepiece
UNKNOWN_IN_TARGET = "<<unk>>"  # the mark of fairseq-generate in a target
# A comma, a final full stop or an English 's, attached to a word or separated from it. French
# separates ? ! : and ; even in raw text.
ATTACHED = re.compile(r"\w,(?=\s|$)|\w\.\s*$|\w['\u2019]s\b")
APART = re.compile(r"\s,(?=\s|$)|\s\.\s*$|\s(?:['\u2019]|&apos;)\s?s\b|@-@|&(?:apos|quot);")
# Among lines that match either pattern, the share of separated ones is below 0.003 in raw text and
# above 0.97 in tokenised text (Multi30k, Tatoeba and Debian's descriptions in English, German and
# French; headlines of Reuters).
TOKENIZED_SHARE = 0.2
TOKENIZED_LINES = 0.01  # of all lines: in Chinese hardly any line matches either pattern
AGREEING_SHARE = 0.5  # in another file, hardly any line agrees


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How outputs and references are read."""

    data: Path | None = option(
        "folder of prepare-mt or prepare-headline, which records what to undo, instead of --bpe "
        "and --tokenizer",
        without=("bpe", "tokenizer"),
    )
    bpe: str = option(
        "segmentation to undo; detected and printed by default", AUTO, choices=(AUTO, *BPE_KINDS)
    )
    tokenizer: str = option(
        "tokenisation to undo; by default detected from the T- lines and printed",
        AUTO,
        choices=(AUTO, *TOKENIZERS),
    )
    tokenized_reference: bool = option(
        "compare tokenised texts, for references that exist only tokenised", False
    )
    allow_unknown: bool = option(
        "score lines with <unk> or \u2047 as they are, and report the number of such hypotheses",
        False,
    )
    lang: str = option("language for --tokenizer; --data records its own", "en")


@dataclass(frozen=True)
class Undoing:
    """What to undo: one of ``BPE_KINDS``, and one of ``TOKENIZERS`` for a language."""

    bpe: str = "none"
    tokenizer: str = "none"
    language: str = "en"

    def __call__(self, lines: Sequence[str]) -> list[str]:
        """The lines as plain text. If no line has a mark of BPE, fairseq-generate has undone it."""
        if self.bpe != "none" and any(map(BPE_MARK.search, lines)):
            from fairseq.data.data_utils import post_process

            lines = [post_process(line, self.bpe) for line in lines]
        if self.tokenizer == "none":
            return list(lines)
        return list(map(moses(self.language).decode, lines))

    def __str__(self) -> str:
        parts = [] if self.bpe == "none" else [self.bpe]
        if self.tokenizer != "none":
            parts.append(f"{self.tokenizer} ({self.language})")
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True)
class System:
    """The plain text of a system, in the order of the references and checked against them."""

    name: str  # its file
    hypotheses: list[str]
    undoing: Undoing
    targets: list[str | None]  # see :func:`undone_targets`
    agreeing: int | None
    unknown: int  # number of hypotheses with a mark of an unknown unit


def read_references(path: str, options: ReadOptions = ReadOptions()) -> list[str]:
    """Read references, one per line. Unless the options allow otherwise, they must be plain text
    without marks of unknown words."""
    references = list(text_lines(path))
    if not references:
        raise FairseqDocError(f"{path}: expected one reference per line; got an empty file")
    for number, line in enumerate(references, start=1):
        if not line.strip():
            raise FairseqDocError(f"{path}: line {number} is empty; expected a reference")
    _check_plain(f"{path}: line", references, options)
    return references


def looks_tokenized(lines: Sequence[str]) -> bool:
    """Whether punctuation is separated from words, as in tokenised text."""
    apart, attached = (sum(map(bool, map(mark.search, lines))) for mark in (APART, ATTACHED))
    return apart > max(TOKENIZED_SHARE * (apart + attached), TOKENIZED_LINES * len(lines))


def _check_plain(
    place: str,
    lines: Sequence[str],
    options: ReadOptions,
    undoing: Undoing | None = None,
) -> None:
    """Raise ``FairseqDocError`` for lines that are not plain text: references, numbered from 1, or
    hypotheses after ``undoing``, numbered from 0. ``place`` names the file and what is numbered."""
    bpe, tokenizer = "give the raw references, before BPE", "give raw references"
    unknown, start, after = "use", 1, ""
    if undoing is not None:
        bpe, tokenizer = "give --bpe", "give --tokenizer moses"
        if options.data is not None:
            bpe = tokenizer = "give --data, the folder from which they were generated"
        unknown, start, after = "generate with --unkpen, or give", 0, f" after undoing {undoing}"
    problems = [(BPE_MARK, "holds a mark of BPE, @@ or \u2581", bpe)]
    if not options.allow_unknown:
        problems.append((UNKNOWN, "holds <unk> or \u2047", f"{unknown} --allow-unknown"))
    if looks_tokenized(lines) and not options.tokenized_reference:
        remedy = f"{tokenizer}; bleu and rouge also compare texts with --tokenized-reference"
        problems.append((APART, "looks tokenised", remedy))
    for mark, what, remedy in problems:
        numbers = [number for number, line in enumerate(lines, start) if mark.search(line)]
        if numbers:
            raise FairseqDocError(
                f"{place} {numbers[0]}, the first of {len(numbers):,}, {what}{after}; expected "
                f"plain text: {remedy}"
            )


def read_system(
    path: str, references: Sequence[str], options: ReadOptions = ReadOptions()
) -> System:
    """Read the output of a system as plain text. Raises ``FairseqDocError`` if it is not plain text
    or does not belong to the references."""
    generated = read_generated(path)
    check_count(path, generated, "the references", references)
    # H- lines have the form of the prepared data; D- lines may already be detokenised.
    hypotheses = [(one.words if options.data else one.texts)[0] for one in generated]
    undoing = find_undoing(path, hypotheses, generated, references, options)
    targets, agreeing = undone_targets(path, generated, references, undoing)
    hypotheses = undoing(hypotheses)
    _check_plain(f"{path}: sentence", hypotheses, options, undoing)
    unknown = sum(UNKNOWN.search(line) is not None for line in hypotheses)
    return System(str(path), hypotheses, undoing, targets, agreeing, unknown)


def undoing_of(folder: Path) -> Undoing:
    """What to undo in output that was generated from a data folder."""
    prepared = read_settings(folder)
    if prepared is None or "target" not in prepared:
        raise FairseqDocError(
            f"{folder}: expected a folder of prepare-mt or prepare-headline, with their settings.json"
        )
    return Undoing(prepared["bpe"], prepared["tokenizer"], prepared["target"])


def find_undoing(
    path: str,
    hypotheses: Sequence[str],
    generated: Sequence[GeneratedSentence],
    references: Sequence[str],
    options: ReadOptions = ReadOptions(),
) -> Undoing:
    """What to undo according to the data folder or the options. ``AUTO`` detects BPE by its marks,
    and tokenisation if undoing it makes more targets equal to their references."""
    if options.data is not None:
        return undoing_of(options.data)
    targets = [sentence.target for sentence in generated if sentence.target is not None]
    bpe = options.bpe
    if bpe == AUTO:
        lines = [*hypotheses, *targets]
        marked = (kind for kind, mark in BPE_MARKS.items() if any(map(mark.search, lines)))
        bpe = next(marked, "none")
    if options.tokenizer != AUTO:
        return Undoing(bpe, options.tokenizer, options.lang)
    if not targets:
        raise FairseqDocError(
            f"{path} has no targets (T- lines) from which to detect the tokenisation; give --data, "
            "--tokenizer moses or --tokenizer none"
        )

    def count_equal(undoing: Undoing) -> int:
        pairs = zip(undoing(targets), references, strict=True)
        return sum(a.casefold().split() == b.casefold().split() for a, b in pairs)

    return max((Undoing(bpe, name, options.lang) for name in ("none", "moses")), key=count_equal)


def without_blanks(line: str) -> str:
    """A line in lower case, without spaces and escapes of tokenisation, so that raw and tokenised
    text are equal."""
    return "".join(html.unescape(line.replace(" @-@ ", "-")).split()).casefold()


def undone_targets(
    path: str,
    generated: Sequence[GeneratedSentence],
    references: Sequence[str],
    undoing: Undoing,
) -> tuple[list[str | None], int | None]:
    """The targets as plain text, None for one with an unknown word; and how many agree with the
    reference apart from spaces, case and unknown words, None without T- lines. Raises
    ``FairseqDocError`` if too few agree."""
    targets = [sentence.target for sentence in generated if sentence.target is not None]
    if not targets:
        return [None] * len(generated), None
    undone = undoing(targets)
    agree = [
        UNKNOWN_IN_TARGET in target or without_blanks(target) == without_blanks(reference)
        for target, reference in zip(undone, references, strict=True)
    ]
    if sum(agree) < AGREEING_SHARE * len(agree):
        raise FairseqDocError(
            f"{path}: {agree.count(False):,} of {len(agree):,} generated targets differ from the "
            f"reference, the first in sentence {agree.index(False)}; expected the references for "
            "the generated split"
        )
    return [None if UNKNOWN_IN_TARGET in target else target for target in undone], sum(agree)
