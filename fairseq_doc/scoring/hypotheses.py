"""fairseq-generate's output -> plain text, the best hypothesis of every sentence, to compare with raw
references.

What is to be undone, BPE and tokenisation, shows in the generated targets (the ``T-`` lines, which
went the same way as the hypotheses): undone, they are the references.
"""

import re
from dataclasses import dataclass, field

from fairseq.data.data_utils import post_process
from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines

BPE_KINDS = ("subword_nmt", "sentencepiece", "none")
TOKENIZERS = ("moses", "none")
AUTO = "auto"
OUTPUT_LINE = re.compile(r"([STHD])-(\d+)\t(.*)", re.DOTALL)
UNKNOWN = ("<unk>", "\u2047")  # fairseq's, and sentencepiece's
UNKNOWN_IN_TARGET = "<<unk>>"  # fairseq-generate tells it from a hypothesis's
BPE_MARK = re.compile(r"@@(?= |$)|\u2581")
# A comma, a sentence's last full stop or an English 's, where a word ends and where it stands apart.
# French sets ? ! : and ; apart in raw text too.
ATTACHED = re.compile(r"\w,(?=\s|$)|\w\.\s*$|\w['\u2019]s\b")
APART = re.compile(r"\s,(?=\s|$)|\s\.\s*$|\s(?:['\u2019]|&apos;)\s?s\b|@-@|&(?:apos|quot);")
# Of the lines that show either, raw text has under 0.003 apart and tokenised text over 0.97
# (Multi30k, Tatoeba and Debian's descriptions in English, German and French; Reuters's headlines).
TOKENIZED_SHARE = 0.2
AGREEING_SHARE = 0.5  # of another file's lines hardly any agree
ESCAPES = (
    (" @-@ ", "-"),
    ("&#124;", "|"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&apos;", "'"),
    ("&quot;", '"'),
    ("&#91;", "["),
    ("&#93;", "]"),
    ("&amp;", "&"),
)


def moses(language):
    """What fairseq's ``--tokenizer moses`` uses: ``encode`` and ``decode``, both in one language."""
    return MosesTokenizer(MosesTokenizerConfig(source_lang=language, target_lang=language))


@dataclass(frozen=True)
class GeneratedText:
    """What fairseq-generate wrote, in the order of sentence ids.

    Attributes:
        name: of the file.
        hypotheses: the best of each sentence.
        targets: the sentence's target, as it was binarised; empty where the output tells none.
    """

    name: str
    hypotheses: list
    targets: list = field(default_factory=list)


@dataclass(frozen=True)
class Undoing:
    """What turns output into plain text.

    Attributes:
        bpe: one of ``BPE_KINDS``.
        tokenizer: one of ``TOKENIZERS``.
        language: of the text, for the tokenizer.
    """

    bpe: str
    tokenizer: str
    language: str

    def __call__(self, lines):
        """Lines of plain text, with single blanks where a tokenizer is undone."""
        lines = [post_process(line, self.bpe) for line in lines]
        if self.tokenizer == "none":
            return lines
        return list(map(moses(self.language).decode, lines))

    def __str__(self):
        parts = [] if self.bpe == "none" else [self.bpe]
        parts += [] if self.tokenizer == "none" else [f"{self.tokenizer} ({self.language})"]
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True)
class System:
    """One system's plain text, checked against the references.

    Attributes:
        name: of its file.
        hypotheses: in the references' order.
        undoing: :class:`Undoing`.
        agreeing: how many of its generated targets, undone, are the reference, but for blanks and
            case; None where the output has no targets.
        unknown: hypotheses with a mark for an unknown unit.
    """

    name: str
    hypotheses: list
    undoing: Undoing
    agreeing: int | None
    unknown: int


def read_generated(path):
    """Read a file of fairseq-generate's (``--results-path``, or its standard output).

    The hypothesis is the first ``D-`` line of a sentence, or ``H-`` where a fairseq too old for the
    former wrote the file. What is not of a sentence, such as logging, is passed over.

    Returns:
        :class:`GeneratedText`.

    Raises:
        FairseqDocError: no hypotheses, a sentence that is missing or there twice, a damaged line.
    """
    found = {kind: {} for kind in "STHD"}
    latest = dict.fromkeys("STHD")
    for number, line in enumerate(text_lines(path), start=1):
        match = OUTPUT_LINE.fullmatch(line)
        if match is None:
            continue
        kind, text = match[1], match[3]
        sentence = int(match[2])
        if "\r" in text:
            raise FairseqDocError(
                f"{path}: line {number} is mixed with a progress bar; generate again with "
                "--results-path, or with standard error kept apart"
            )
        if kind in "HD":
            score, tab, text = text.partition("\t")
            if not tab:
                raise FairseqDocError(f"{path}: line {number} is cut off; generate again")
        another_best = kind in "HD" and latest[kind] == sentence  # of an n-best list, best first
        if sentence in found[kind] and not another_best:
            raise FairseqDocError(
                f"{path}: sentence {sentence} is there twice, again in line {number}; expected the "
                "output of one run"
            )
        found[kind].setdefault(sentence, text)
        latest[kind] = sentence
    hypotheses = found["D"] or found["H"]
    if not hypotheses:
        raise FairseqDocError(
            f"{path}: expected fairseq-generate's output, with D- lines; got none (--quiet leaves "
            "them out)"
        )
    missing = sorted(set(range(max(hypotheses) + 1)) - set(hypotheses))
    if missing:
        raise FairseqDocError(
            f"{path}: {len(missing):,} of {max(hypotheses) + 1:,} sentences are missing, the first "
            f"is {missing[0]}; generate again, with --required-batch-size-multiple 1 (else fairseq "
            "alone leaves out a last batch of less than 8) and, instead of "
            "--skip-invalid-size-inputs-valid-test, --max-source-positions for the longest"
        )
    targets = found["T"]
    if targets and set(targets) != set(hypotheses):
        raise FairseqDocError(
            f"{path}: expected a target (T-) for each of {len(hypotheses):,} hypotheses; got "
            f"{len(targets):,}"
        )
    return GeneratedText(
        str(path),
        [hypotheses[sentence] for sentence in range(len(hypotheses))],
        [targets[sentence] for sentence in range(len(targets))],
    )


def read_references(path, tokenized=False):
    """Read references, one a line.

    Raises:
        FairseqDocError: nothing, an empty line, text that BPE has segmented, or text that looks
            tokenised unless that is told.
    """
    references = list(text_lines(path))
    if not references:
        raise FairseqDocError(f"{path}: expected references, one a line; got an empty file")
    for number, line in enumerate(references, start=1):
        if not line.strip():
            raise FairseqDocError(f"{path}: line {number} is empty; expected a reference")
        if BPE_MARK.search(line):
            raise FairseqDocError(
                f"{path}: line {number} holds a mark of BPE, @@ or \u2581; expected raw references"
            )
    if looks_tokenized(references) and not tokenized:
        raise FairseqDocError(
            f"{path} looks tokenised (line {first_apart(references)}); expected raw references, or "
            "--tokenized-reference to compare tokenised text with tokenised text"
        )
    return references


def looks_tokenized(lines):
    """Whether punctuation stands apart from words as it does in tokenised text."""
    apart = sum(bool(APART.search(line)) for line in lines)
    attached = sum(bool(ATTACHED.search(line)) for line in lines)
    return apart > TOKENIZED_SHARE * (apart + attached)


def first_apart(lines):
    """The number, from 1, of the first line that shows it."""
    return next(number for number, line in enumerate(lines, start=1) if APART.search(line))


def find_undoing(generated, references, bpe=AUTO, tokenizer=AUTO, language="en"):
    """What is to be undone, where not told: BPE where its marks are; tokenisation where that turns
    more of the generated targets into the references.

    Raises:
        FairseqDocError: the tokenizer is to be found, and there are no targets to tell by.
    """
    if bpe == AUTO:
        lines = generated.hypotheses + generated.targets
        marks = {mark for line in lines for mark in BPE_MARK.findall(line)}
        bpe = "sentencepiece" if "\u2581" in marks else "subword_nmt" if marks else "none"
    if tokenizer != AUTO:
        return Undoing(bpe, tokenizer, language)
    if not generated.targets:
        raise FairseqDocError(
            f"{generated.name} has no targets (T- lines) that would show whether it is tokenised; "
            "give --tokenizer moses or --tokenizer none"
        )
    spaced = [" ".join(line.casefold().split()) for line in references]

    def equal(undoing):
        undone = undoing(generated.targets)
        pairs = zip(undone, spaced, strict=True)
        return sum(" ".join(line.casefold().split()) == line_2 for line, line_2 in pairs)

    return max((Undoing(bpe, name, language) for name in ("none", "moses")), key=equal)


def bare(line):
    """A line without blanks, case, and what tokenisation escapes: the same for raw and tokenised
    text."""
    for escaped, plain in ESCAPES:
        line = line.replace(escaped, plain)
    return "".join(line.split()).casefold()


def read_system(
    path, references, bpe=AUTO, tokenizer=AUTO, language="en", tokenized=False, allow_unknown=False
):
    """Read one system's output and make plain text of it.

    Args:
        path: a file of fairseq-generate's.
        references: see :func:`read_references`.
        bpe: one of ``BPE_KINDS``, or ``AUTO``.
        tokenizer: one of ``TOKENIZERS``, or ``AUTO``.
        language: of the text.
        tokenized: whether the references are tokenised, so hypotheses may be.
        allow_unknown: whether hypotheses may hold marks for unknown units.

    Returns:
        :class:`System`.

    Raises:
        FairseqDocError: as :func:`read_generated` and :func:`find_undoing`; another number of
            sentences than of references; references of other targets; marks that are left.
    """
    generated = read_generated(path)
    if len(generated.hypotheses) != len(references):
        raise FairseqDocError(
            f"expected as many references as hypotheses; got {len(references):,} references and "
            f"{len(generated.hypotheses):,} hypotheses in {path}"
        )
    undoing = find_undoing(generated, references, bpe, tokenizer, language)
    agreeing = None
    if generated.targets:
        agreeing = _count_agreeing(path, undoing, generated.targets, references)
    hypotheses = undoing(generated.hypotheses)
    unknown = []
    for sentence, line in enumerate(hypotheses):
        if BPE_MARK.search(line):
            raise FairseqDocError(
                f"{path}: sentence {sentence} holds a mark of BPE, @@ or \u2581, after undoing "
                f"{undoing}; expected plain text: give the --bpe that the text was segmented with"
            )
        if any(mark in line for mark in UNKNOWN):
            unknown.append(sentence)
    if unknown and not allow_unknown:
        raise FairseqDocError(
            f"{path}: {len(unknown):,} hypotheses hold a mark for an unknown unit, <unk> or \u2047, "
            f"the first is sentence {unknown[0]}; generate with --unkpen, or give --allow-unknown "
            "to score them as they are"
        )
    if looks_tokenized(hypotheses) and not tokenized:
        raise FairseqDocError(
            f"{path} looks tokenised after undoing {undoing} (sentence "
            f"{first_apart(hypotheses) - 1}); give --tokenizer moses"
        )
    return System(str(path), hypotheses, undoing, agreeing, len(unknown))


def _count_agreeing(path, undoing, targets, references):
    """How many targets are the reference; ``FairseqDocError`` where hardly any is."""
    agree = [
        UNKNOWN_IN_TARGET in target or bare(target) == bare(reference)
        for target, reference in zip(undoing(targets), references, strict=True)
    ]
    if sum(agree) < AGREEING_SHARE * len(agree):
        raise FairseqDocError(
            f"{path}: {len(agree) - sum(agree):,} of {len(agree):,} generated targets differ from "
            f"the reference, the first in sentence {agree.index(False)}; expected the references "
            "of the split that was generated"
        )
    return sum(agree)
