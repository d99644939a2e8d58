"""Reads and writes n-best lists of speech recognisers and translators.

::

    utt1-1 the words of a candidate     Kaldi: UTT-K, then the words of the candidate,
    utt1-2 the word of a candidate      which may be empty

    utt1-1 -310.2                       a file of the first pass: one number per candidate
    utt1 the words that were said       a file of references: UTT, then the words

The other format is the output of fairseq-generate, in which candidate K of sentence N is ``N-K``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, check_count, shown
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.text_form import TextForm
from fairseq_doc.scoring.generated import LINE, read_generated
from fairseq_doc.scoring.hypotheses import (
    BPE_MARK,
    ReadOptions,
    Undoing,
    find_undoing,
    looks_tokenized,
    read_references,
    undoing_of,
    undone_targets,
)

KALDI, GENERATED = FORMATS = ("kaldi", "fairseq-generate")
# A line's first word and the rest
_REFERENCE = re.compile(r"\s*(\S+)\s*(.*?)\s*")
_CANDIDATE = re.compile(r"\s*(\S+-\d+)(?!\S)\s*(.*?)\s*")
_NUMBER = re.compile(r"\s*(\S+)\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?)\s*")


@dataclass(frozen=True)
class NBestList:
    """The n >= 1 candidates of an utterance or a sentence, the best of the first pass first."""

    name: str
    texts: list[str]  # (n,) plain text, or trees in brackets
    first_pass: np.ndarray  # (n,) ln P or other scores; larger is better
    keys: Sequence[str] = ()  # (n,) names of the candidates, if the file has them
    target: str | None = None  # the T- line as plain text; None if it has unknown words

    @cached_property
    def words(self) -> np.ndarray:
        """The number of words in each candidate, (n,)."""
        return np.array([len(text.split()) for text in self.texts])


def read_kaldi(
    path: str, first_pass: str | None = None, costs: bool = False, reference: str | None = None
) -> tuple[list[NBestList], list[str] | None]:
    """Read lists of Kaldi and a reference for each. Raises ``FairseqDocError`` for a line without
    the number of a candidate, an utterance in two places, files with different candidates or
    utterances, and an empty file.

    Args:
        first_pass: file with a number for each candidate; None: all are 0.
        costs: whether these numbers are costs, as in Kaldi, so that smaller is better.
        reference: file with a reference for each utterance, in any order.
    """
    candidates = _table(path, "an n-best list, lines such as utt1-1 the words", _CANDIDATE)
    numbers: dict[str, str] = dict.fromkeys(candidates, "0")
    if first_pass is not None:
        numbers = _table(first_pass, "a number for each candidate, such as utt1-1 -310.2", _NUMBER)
        _check_same("candidates", path, candidates, first_pass, numbers)
    lists: dict[str, NBestList] = {}
    for name, own in groupby(candidates, key=lambda key: key.rpartition("-")[0]):
        keys = list(own)
        if name in lists:
            raise FairseqDocError(
                f"{path}: expected the candidates of an utterance on consecutive lines; got "
                f"{shown(keys[0])} after another utterance"
            )
        scores = np.array([float(numbers[key]) for key in keys]) * (-1.0 if costs else 1.0)
        lists[name] = NBestList(name, [candidates[key] for key in keys], scores, keys)
    if reference is None:
        return list(lists.values()), None
    references = _table(reference, "references, lines such as utt1 the words", _REFERENCE)
    _check_same("utterances", path, lists, reference, references)
    if not any(references.values()):
        raise FairseqDocError(f"{reference}: expected references with words; got none")
    return list(lists.values()), [references[name] for name in lists]


def _table(path: str, expected: str, form: re.Pattern[str]) -> dict[str, str]:
    """{first word: the rest} of each line of a file."""
    found: dict[str, str] = {}
    for number, line in enumerate(text_lines(path), start=1):
        match, is_generated = form.fullmatch(line), LINE.fullmatch(line) is not None
        if match is None or match[1] in found or is_generated:
            hint = " a second time" if match and match[1] in found else ""
            if is_generated:
                hint = f", output of fairseq-generate: give --format {GENERATED}"
            raise FairseqDocError(
                f"{path}: line {number}: expected {expected}; got {shown(line.strip())}{hint}"
            )
        found[match[1]] = match[2]
    if not found:
        raise FairseqDocError(f"{path}: expected {expected}; got an empty file")
    return found


def _check_same(what: str, path: str, own: dict, other: str, theirs: dict) -> None:
    """Refuse two files with different candidates or utterances."""
    different = own.keys() ^ theirs.keys()
    if different:
        raise FairseqDocError(
            f"{path} and {other}: expected the same {what}; {len(different):,} are in one file "
            f"alone, such as {shown(min(different))}"
        )


def read_translations(
    path: str, data: Path | None = None, reference: str | None = None, plain: bool = True
) -> tuple[list[NBestList], list[str] | None]:
    """Read the output of fairseq-generate; the first pass is ln P of the whole candidate.

    Args:
        data: folder of the generated data, whose units and tokenisation are undone; None: use the
            text of the D- lines.
        reference: file of raw references, one per line, which are the second result.
        plain: refuse candidates that are not plain text, which is always done with references.
    """
    generated = read_generated(path)
    if not generated[0].log2_probs[0]:
        raise FairseqDocError(f"{path}: expected the P- lines of fairseq-generate; got none")
    undo = Undoing() if data is None else undoing_of(data)
    written = [one.texts if data is None else one.words for one in generated]
    undone, lists = iter(undo(list(chain.from_iterable(written)))), []  # BPE's marks may be rare
    for number, sentence in enumerate(generated):
        texts = list(islice(undone, len(written[number])))
        keys = [f"{number}-{k}" for k in range(1, len(texts) + 1)]
        lists.append(NBestList(str(number), texts, np.array(sentence.log_probs), keys))
    firsts = [one.texts[0] for one in lists]
    is_tokenized = data is not None and undo.tokenizer == "none"  # text that exists only so
    apart = looks_tokenized(firsts) and not is_tokenized
    if (plain or reference) and (any(map(BPE_MARK.search, firsts)) or apart):
        raise FairseqDocError(
            f"{path}: expected plain text; got candidates that have marks of BPE or look tokenised: "
            "give --nbest-data, the folder from which they were generated"
        )
    if reference is None:
        return lists, None
    references = read_references(
        reference, ReadOptions(tokenized_reference=is_tokenized, allow_unknown=True)
    )
    check_count(path, generated, reference, references)
    if data is None and generated[0].target is not None:
        undo = find_undoing(path, (), generated, references)  # targets are as in the prepared data
    targets, _ = undone_targets(path, generated, references, undo)
    lists = [replace(one, target=target) for one, target in zip(lists, targets, strict=True)]
    return lists, references


def encode(
    lists: Iterable[NBestList], form: TextForm, dictionary: Dictionary, max_words: int
) -> tuple[list[list[list[int]]], Counter[str]]:
    """The indices of each candidate's words or bytes and end mark, and the words outside the
    dictionary. Raises ``FairseqDocError`` for a candidate with more than ``max_words``, and for one
    with fairseq's own symbols."""
    encoded, unknown = [], Counter[str]()
    for one in lists:
        at = f"a candidate of {shown(one.name)}: "
        candidates = [form.sentence(text, at) for text in one.texts]
        count = max(map(len, candidates))
        if count > max_words:
            raise FairseqDocError(
                f"{at}{count:,} {form.unit}s; expected a sentence of at most {max_words:,}; give "
                "--max-words if it is a sentence"
            )
        encoded.append([[*map(dictionary.index, x), dictionary.eos()] for x in candidates])
        unknown.update(word for words in candidates for word in words if word not in dictionary)
    return encoded, unknown


def best_lines(
    lists: Iterable[NBestList], chosen: Iterable[int], named: bool = False
) -> Iterator[str]:
    """The chosen candidate of each list; ``named``: in Kaldi's form, ``UTT words``."""
    for one, index in zip(lists, chosen, strict=True):
        text = one.texts[index]
        yield f"{one.name} {text}".rstrip() if named else text


def score_lines(
    lists: Iterable[NBestList], scored: Iterable[list[np.ndarray]], totals: bool = False
) -> Iterator[str]:
    """Scores in Kaldi's form, in the order of the list: ``UTT-K`` and -ln P of each token and of the
    end mark, or with ``totals`` their sum."""
    for one, rows in zip(lists, scored, strict=True):
        for key, row in zip(one.keys, rows, strict=True):
            numbers = [row.sum()] if totals else row
            yield " ".join([key, *(f"{max(0.0, -x):.4f}" for x in numbers)])
