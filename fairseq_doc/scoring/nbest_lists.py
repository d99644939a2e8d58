"""N-best lists of recognisers and translators -> utterances with their candidates.

::

    utt1-1 the words of a candidate     Kaldi: UTT-K, then its words; nothing after it is a candidate
    utt1-2 the word of a candidate      without words

    utt1-1 -310.2                       a file of the first pass: a number a candidate
    utt1 the words that were said       a file of references: UTT, then its words

fairseq-generate's output is the other form: candidate K of sentence N is ``N-K``.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines
from fairseq_doc.options import REQUIRED, check_needs, option
from fairseq_doc.scoring.generated import LINE, read_generated
from fairseq_doc.scoring.hypotheses import (
    BPE_MARK,
    ReadOptions,
    check_count,
    count_agreeing,
    find_undoing,
    looks_tokenized,
    read_references,
)

KALDI, GENERATED = FORMATS = ("kaldi", "fairseq-generate")


@dataclass(frozen=True)
class Utterance:
    """The n >= 1 candidates of an utterance or a sentence, the first pass's best first."""

    name: str
    keys: list[str]  # (n,) of the candidates
    texts: list[str]  # (n,) plain text
    first_pass: np.ndarray  # (n,) natural logarithms of P, or other scores: the larger the better

    @property
    def words(self) -> np.ndarray:
        """(n,) how many each candidate has."""
        return np.array([len(text.split()) for text in self.texts])


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The lists and what belongs to them."""

    nbest: str = option(
        "n-best lists, the best candidate first", REQUIRED, positional=True, reads=True
    )
    format: str = option(
        "kaldi: lines of UTT-K word word ...; or fairseq-generate's output", KALDI, choices=FORMATS
    )
    first_pass: str | None = option(
        "Kaldi: the first pass's scores, lines of UTT-K number, the larger the better", reads=True
    )
    costs: bool = option(
        "they are costs, as Kaldi's own: the smaller the better", False, needs="first-pass"
    )
    nbest_data: Path | None = option(
        "fairseq-generate: the folder of prepare-mt that was generated from, whose settings say "
        "which units and tokenisation to undo (default: the D- lines as they are)",
        reads=True,
    )
    reference: str | None = option(
        "Kaldi: lines of UTT word word ...; fairseq-generate: raw text, one sentence a line",
        needs="metric",
        reads=True,
    )

    def check_format(self) -> None:
        """Refuse an option of the other format."""
        is_kaldi = self.format == KALDI
        check_needs("--first-pass", {f"--format {KALDI}": is_kaldi}, self.first_pass)
        check_needs("--nbest-data", {f"--format {GENERATED}": not is_kaldi}, self.nbest_data)

    def read(self, plain: bool) -> tuple[list[Utterance], list[str] | None]:
        """The lists, and a reference for each; ``plain`` as of :func:`read_translations`."""
        if self.format == GENERATED:
            return read_translations(self.nbest, self.nbest_data, self.reference, plain)
        utterances = read_kaldi(self.nbest, self.first_pass, self.costs)
        if self.reference is None:
            return utterances, None
        return utterances, kaldi_references(self.reference, self.nbest, utterances)


def read_kaldi(path: str, first_pass: str | None = None, costs: bool = False) -> list[Utterance]:
    """Read Kaldi's list. Raises ``FairseqDocError`` for a line without candidate's number, an
    utterance in two places, other candidates in the first pass, and an empty file.

    Args:
        first_pass: file of a number for each candidate; None: they are all 0.
        costs: these numbers are costs, as Kaldi's are: the smaller the better.
    """
    candidates = _archive(path, "an n-best list, lines such as utt1-1 the words")
    numbers = dict.fromkeys(candidates, 0.0)
    if first_pass is not None:
        numbers = _numbers(first_pass, -1.0 if costs else 1.0)
        _check_same(path, candidates, first_pass, numbers, "candidate")
    grouped: dict[str, list[str]] = {}
    before = None
    for line, key in enumerate(candidates, start=1):
        name, dash, number = key.rpartition("-")
        if not (name and dash and number.isdecimal()):
            raise FairseqDocError(
                f"{path}: line {line}: expected a candidate such as utt1-1 the words: the "
                f"utterance, - and the candidate's number; got {shown(key)}"
            )
        if name != before and name in grouped:
            raise FairseqDocError(
                f"{path}: line {line}: {shown(name)} is there twice; expected its candidates one "
                "below the other"
            )
        grouped.setdefault(name, []).append(key)
        before = name
    return [
        Utterance(name, keys, [candidates[k] for k in keys], np.array([numbers[k] for k in keys]))
        for name, keys in grouped.items()
    ]


def _archive(path: str, expected: str) -> dict[str, str]:
    """{first word: the others} of the lines of a file."""
    found: dict[str, str] = {}
    for number, line in enumerate(text_lines(path), start=1):
        if LINE.fullmatch(line):
            raise FairseqDocError(
                f"{path}: line {number}: expected {expected}; got a line of fairseq-generate's "
                f"output: give --format {GENERATED}"
            )
        key, *rest = line.split(maxsplit=1) or [""]
        if not key or key in found:
            problem = f"{shown(key)} a second time" if key else "an empty line"
            raise FairseqDocError(f"{path}: line {number}: expected {expected}; got {problem}")
        found[key] = rest[0].strip() if rest else ""
    if not found:
        raise FairseqDocError(f"{path}: expected {expected}; got an empty file")
    return found


def _numbers(path: str, sign: float) -> dict[str, float]:
    expected = "a number for each candidate, lines such as utt1-1 -310.2"
    numbers = {}
    for line, (key, text) in enumerate(_archive(path, expected).items(), start=1):
        try:
            number = sign * float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise FairseqDocError(f"{path}: line {line}: expected {expected}; got {shown(text)}")
        numbers[key] = number
    return numbers


def _check_same(
    path: str, own: Sequence[str] | dict, other: str, theirs: Sequence[str] | dict, what: str
) -> None:
    """Refuse a file ``other`` that is not about the candidates or utterances of a list."""
    for wanted, where, there, whose in ((theirs, path, own, other), (own, other, theirs, path)):
        missing = [name for name in wanted if name not in there]
        if missing:
            raise FairseqDocError(
                f"{where}: expected every {what} of {whose}; {len(missing):,} of "
                f"{len(wanted):,} are missing, the first is {shown(missing[0])}"
            )


def kaldi_references(path: str, lists: str, utterances: Sequence[Utterance]) -> list[str]:
    """The reference of each utterance of ``lists``, from a file of the same ones in any order."""
    references = _archive(path, "references, lines such as utt1 the words")
    names = [utterance.name for utterance in utterances]
    _check_same(lists, dict.fromkeys(names), path, references, "utterance")
    return [references[name] for name in names]


def read_translations(
    path: str, data: Path | None = None, reference: str | None = None, plain: bool = True
) -> tuple[list[Utterance], list[str] | None]:
    """Read fairseq-generate's output; the first pass is ln P of the whole candidate.

    Args:
        data: the folder that was generated from, whose units and tokenisation are undone; None: the
            text of the D- lines as it is.
        reference: file of raw references, one a line; gives them as the second result.
        plain: refuse candidates that are not plain text; so it is with references too.
    """
    generated = read_generated(path)
    undo = find_undoing(path, (), (), (), ReadOptions(data=data, bpe="none", tokenizer="none"))
    utterances = []
    for number, sentence in enumerate(generated):
        texts, scores = [], []
        for one in sentence.hypotheses:
            if one.log2_probs is None:
                raise FairseqDocError(
                    f"{path}: expected the P- lines of fairseq-generate; got none"
                )
            texts.append(one.text if data is None else one.words)
            scores.append(sum(one.log2_probs) * math.log(2))
        keys = [f"{number}-{k}" for k in range(1, len(texts) + 1)]
        utterances.append(Utterance(str(number), keys, undo(texts), np.array(scores)))
    firsts = [utterance.texts[0] for utterance in utterances]
    if (plain or reference) and (any(map(BPE_MARK.search, firsts)) or looks_tokenized(firsts)):
        raise FairseqDocError(
            f"{path}: the candidates hold marks of BPE, or look tokenised; expected plain text: "
            "give --nbest-data, the folder that they were generated from"
        )
    if reference is None:
        return utterances, None
    references = read_references(reference)
    check_count(path, generated, references)
    targets = [sentence.target for sentence in generated if sentence.target is not None]
    if targets:
        if data is None:  # T- lines are as the data was prepared, whatever the D- lines are
            undo = find_undoing(path, (), targets, references)
        count_agreeing(path, undo(targets), references)
    return utterances, references


def best_lines(utterances: Sequence[Utterance], chosen: Iterable[int], form: str) -> Iterator[str]:
    """The chosen candidate of each utterance: Kaldi's ``UTT words``, or its text alone."""
    for utterance, index in zip(utterances, chosen, strict=True):
        text = utterance.texts[index]
        yield f"{utterance.name} {text}".rstrip() if form == KALDI else text
