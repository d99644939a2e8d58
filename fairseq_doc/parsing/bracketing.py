"""Bracketing F1 as in EVALB (Sekine and Collins, 1997), with COLLINS.prm or another .prm file.

Details of EVALB that affect results: words are deleted by their exact tag, separately in each tree;
brackets are deleted by their label, cut at - or =; brackets without words disappear. If the
remaining words of a sentence differ, it is an error and excluded from all totals. A sentence without
words to score is skipped.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, compress
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import read_text
from fairseq_doc.preparation.trees import TRACE, Tree
from fairseq_doc.scoring.metrics import Metric

QUOTES = ("'", '"', "/")  # words that EVALB treats as quotes
MAX_DIGITS = 9
_CUT = re.compile("[-=].*")
VALID, ERROR, SKIPPED = "valid", "error", "skipped"
EXCLUDED = 3  # index in bracketing_f1's statistics: whether EVALB excludes the sentence
_Bracket = tuple[str, int, int]  # (label, start, end)


@dataclass(frozen=True)
class Parameters:
    """The contents of a .prm file. The defaults are those of COLLINS.prm, plus QUOTE_LABEL, which
    it does not have."""

    labeled: bool = True  # brackets match by label and span, not by span alone
    cutoff_len: int = 40  # maximal length of a sentence in the second summary
    # Tags and labels whose words and brackets are deleted
    delete_label: tuple[str, ...] = ("TOP", TRACE, ",", ":", "``", "''", ".")
    # Tags whose words do not count in a sentence's length
    delete_label_for_length: tuple[str, ...] = (TRACE,)
    # If only one of two trees deletes a quote with one of these tags, both keep it.
    quote_label: tuple[str, ...] = ("``", "''", "POS")
    eq_label: tuple[tuple[str, str], ...] = (("ADVP", "PRT"),)  # pairs that count as equal
    eq_word: tuple[tuple[str, str], ...] = ()


def read_parameters(path: str) -> Parameters:
    """Read a .prm file. DEBUG and MAX_ERROR are ignored, since they only affect what EVALB prints
    and when it stops."""
    numbers = ("labeled", "cutoff_len")
    # Lists that are not in the file are empty.
    values: dict[str, Any] = {f.name: () for f in fields(Parameters) if f.name not in numbers}
    known = sorted(field.name.upper() for field in fields(Parameters))
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("DEBUG", "MAX_ERROR"):
            continue
        name, *given = words
        if name not in known or len(given) != (2 if name.startswith("EQ_") else 1):
            raise FairseqDocError(
                f"{path}: line {number}: expected one of {', '.join(known)} with a value (two for "
                f"EQ_LABEL and EQ_WORD); got {shown(line.strip())}"
            )
        key = name.lower()
        if key not in numbers:
            values[key] += (tuple(given) if len(given) == 2 else given[0],)
        elif given[0].isdecimal() and len(given[0]) <= MAX_DIGITS:
            values[key] = int(given[0])
        else:
            raise FairseqDocError(
                f"{path}: line {number}: expected a number after {name}; got {shown(given[0])}"
            )
    return Parameters(**values)


@dataclass(frozen=True)
class SentenceResult:
    """The comparison of a candidate with its gold tree."""

    status: str  # VALID, ERROR (the words differ) or SKIPPED (no words to score in the candidate)
    length: int  # number of words in the gold tree, for the cutoff
    matched: int = 0  # number of brackets in both trees
    gold: int = 0  # number of brackets in the gold tree
    test: int = 0  # number of brackets in the candidate
    crossing: int = 0  # number of the candidate's brackets that cross one in the gold tree
    words: int = 0  # number of scored words
    correct_tags: int = 0  # number of scored words with equal tags

    @property
    def recall(self) -> float:
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return _percent(self.matched, self.test)


def compare(gold: Tree, test: Tree, parameters: Parameters) -> SentenceResult:
    """Score the candidate ``test`` against the tree ``gold``."""
    length = sum(tag not in parameters.delete_label_for_length for tag in gold.tags)
    kept = [[tag not in parameters.delete_label for tag in tree.tags] for tree in (gold, test)]
    if not any(kept[1]):
        return SentenceResult(SKIPPED, length)
    if sum(kept[0]) != sum(kept[1]):
        _keep_quotes(gold, test, kept, parameters)
    gold_words, test_words = (
        list(compress(gold.words, kept[0])),
        list(compress(test.words, kept[1])),
    )
    same_word = _equality(parameters.eq_word)
    if len(gold_words) != len(test_words) or not all(map(same_word, gold_words, test_words)):
        return SentenceResult(ERROR, length)
    gold_brackets = _brackets(gold, kept[0], parameters)
    test_brackets = _brackets(test, kept[1], parameters)
    gold_tags, test_tags = compress(gold.tags, kept[0]), compress(test.tags, kept[1])
    same_label = _equality(parameters.eq_label)
    same_bracket = same_label if parameters.labeled else lambda a, b: True
    return SentenceResult(
        VALID,
        length,
        matched=_matched(gold_brackets, test_brackets, same_bracket),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_crossing(gold_brackets, test_brackets),
        words=len(gold_words),
        correct_tags=sum(map(same_label, gold_tags, test_tags)),
    )


def _equality(pairs: Sequence[tuple[str, str]]) -> Callable[[str, str], bool]:
    """(a, b) -> whether they are equal or one of the pairs; pairs are not transitive."""
    if not pairs:
        return str.__eq__
    both = {*pairs, *((b, a) for a, b in pairs)}
    return lambda a, b: a == b or (a, b) in both


def _keep_quotes(gold: Tree, test: Tree, kept: list[list[bool]], parameters: Parameters) -> None:
    """Keep quotes in both trees if only one of them deletes them; changes ``kept``."""
    places = [
        [i for i, tag in enumerate(tree.tags) if tag not in parameters.delete_label_for_length]
        for tree in (gold, test)
    ]
    if len(places[0]) != len(places[1]):
        return
    for i, j in zip(*places, strict=True):
        quotes = all(
            tree.words[at] in QUOTES and tree.tags[at] in parameters.quote_label
            for tree, at in ((gold, i), (test, j))
        )
        if quotes and kept[0][i] != kept[1][j]:
            kept[0][i] = kept[1][j] = True


def _brackets(tree: Tree, kept: Sequence[bool], parameters: Parameters) -> list[_Bracket]:
    """(label, start, end) of brackets over the kept words, without deleted and empty brackets."""
    before = [0, *accumulate(kept)]  # number of kept words before each position
    same = _equality(parameters.eq_label)
    brackets = []
    for label, start, end in tree.brackets:
        label, start, end = _CUT.sub("", label), before[start], before[end]
        if start < end and not any(same(label, deleted) for deleted in parameters.delete_label):
            brackets.append((label, start, end))
    return brackets


def _matched(
    gold: Iterable[_Bracket], test: Iterable[_Bracket], same: Callable[[str, str], bool]
) -> int:
    """The number of brackets in both lists, each counted once."""
    by_span = defaultdict(list)
    for label, start, end in test:
        by_span[start, end].append(label)
    matched = 0
    for label, start, end in gold:
        labels = by_span[start, end]
        for index, other in enumerate(labels):
            if same(label, other):
                del labels[index]
                matched += 1
                break
    return matched


def _crossing(gold: Iterable[_Bracket], test: Iterable[_Bracket]) -> int:
    """The number of brackets in ``test`` that cross one in ``gold``."""
    spans = {(start, end) for _, start, end in gold}
    return sum(
        any(s < start < e < end or start < s < end < e for s, e in spans) for _, start, end in test
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def f1(matched: int, gold: int, test: int) -> float:
    """F1 in percent, from numbers of brackets."""
    return _percent(2 * matched, gold + test)


def bracketing_f1(parameters: Parameters) -> Metric:
    """Bracketing F1 of a :class:`Tree` against a gold tree. The statistics are the numbers of matched
    brackets, of brackets in the gold tree and of those in the candidate, which are 0 if EVALB
    excludes the sentence, and whether it does so."""

    def statistics(test: Tree, gold: Tree) -> tuple[int, int, int, bool]:
        result = compare(gold, test, parameters)
        return result.matched, result.gold, result.test, result.status != VALID

    return Metric("F1", 1, statistics, lambda sums: f1(*sums[:3].tolist()))


def summarize(results: Sequence[SentenceResult]) -> dict[str, Any]:
    """Totals over all sentences and their brackets; shares are in percent. Erroneous and skipped
    sentences are only counted."""
    valid = [result for result in results if result.status == VALID]
    matched = sum(result.matched for result in valid)
    gold = sum(result.gold for result in valid)
    test = sum(result.test for result in valid)
    return {
        "sentences": len(results),
        "errors": sum(result.status == ERROR for result in results),
        "skipped": sum(result.status == SKIPPED for result in results),
        "recall": _percent(matched, gold),
        "precision": _percent(matched, test),
        "f1": f1(matched, gold, test),
        # Sentences in which all brackets are correct
        "complete_match": _percent(sum(r.matched == r.gold == r.test for r in valid), len(valid)),
        # Crossing brackets per sentence; sentences without any, and with at most two
        "average_crossing": sum(r.crossing for r in valid) / len(valid) if valid else 0.0,
        "no_crossing": _percent(sum(r.crossing == 0 for r in valid), len(valid)),
        "two_or_less_crossing": _percent(sum(r.crossing <= 2 for r in valid), len(valid)),
        "tagging_accuracy": _percent(
            sum(r.correct_tags for r in valid), sum(r.words for r in valid)
        ),
    }
