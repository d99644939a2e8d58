"""Bracketing F1 as in EVALB (Sekine and Collins, 1997), with COLLINS.prm or another .prm file.

Details of EVALB that affect results: words are deleted by their exact tag, separately in each tree;
brackets are deleted by their label, cut at - or =; brackets without words disappear. A sentence
whose remaining words differ between the trees is an error and excluded from all totals. A sentence
whose candidate has no words to score is skipped.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.trees import TRACE, Bracket, Tree, with_words
from fairseq_doc.scoring.metrics import Metric

QUOTES = ("'", '"', "/")  # words that EVALB treats as quotes
NUMBERS = ("labeled", "cutoff_len")  # parameters; the others are lists
_CUT = re.compile("[-=].*")
VALID, ERROR, SKIPPED = "valid", "error", "skipped"
EXCLUDED_COLUMN = 3  # index in bracketing_f1's statistics: whether EVALB excludes the sentence


@dataclass(frozen=True)
class Parameters:
    """The contents of a .prm file. The defaults are those of COLLINS.prm, plus QUOTE_LABEL, which
    it does not have."""

    labeled: bool = True  # brackets match by label and span, not by span alone
    cutoff_len: int = 40  # maximum length of a sentence in the second summary
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
    known = {field.name.upper(): field.name for field in fields(Parameters)}
    # Lists that are not in the file are empty.
    values: dict[str, Any] = {name: () for name in known.values() if name not in NUMBERS}
    for number, line in enumerate(text_lines(path), start=1):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("DEBUG", "MAX_ERROR"):
            continue
        name, given = known.get(words[0], ""), words[1:]
        is_number = name in NUMBERS
        fits = len(given) == (2 if name.startswith("eq_") else 1)
        if not name or not fits or (is_number and not given[0].isdecimal()):
            raise FairseqDocError(
                f"{path}: line {number}: expected one of {', '.join(known)} with a word, a number "
                f"(LABELED, CUTOFF_LEN) or two words (EQ_LABEL, EQ_WORD); got {shown(line.strip())}"
            )
        if is_number:
            values[name] = int(given[0])
        else:
            values[name] += (given[0] if len(given) == 1 else tuple(given),)
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


def compare(gold: Tree, test: Tree, parameters: Parameters) -> SentenceResult:
    """Score the candidate ``test`` against the tree ``gold``."""
    length = sum(tag not in parameters.delete_label_for_length for tag in gold.tags)
    kept = [[tag not in parameters.delete_label for tag in tree.tags] for tree in (gold, test)]
    if not any(kept[1]):
        return SentenceResult(SKIPPED, length)
    if sum(kept[0]) != sum(kept[1]):
        _keep_quotes(gold, test, kept, parameters)
    gold, test = with_words(gold, kept[0]), with_words(test, kept[1])
    same_word, same_label = _equality(parameters.eq_word), _equality(parameters.eq_label)
    if len(gold.words) != len(test.words) or not all(map(same_word, gold.words, test.words)):
        return SentenceResult(ERROR, length)
    gold_brackets, test_brackets = _brackets(gold, parameters), _brackets(test, parameters)
    same_bracket = same_label if parameters.labeled else lambda a, b: True
    return SentenceResult(
        VALID,
        length,
        matched=_matched(gold_brackets, test_brackets, same_bracket),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_crossing(gold_brackets, test_brackets),
        words=len(gold.words),
        correct_tags=sum(map(same_label, gold.tags, test.tags)),
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


def _brackets(tree: Tree, parameters: Parameters) -> list[Bracket]:
    """The brackets that count, with their labels cut."""
    same = _equality(parameters.eq_label)
    cut = [(_CUT.sub("", label), start, end) for label, start, end in tree.brackets]
    return [one for one in cut if not any(same(one[0], label) for label in parameters.delete_label)]


def _matched(
    gold: Iterable[Bracket], test: Iterable[Bracket], same: Callable[[str, str], bool]
) -> int:
    """The number of brackets in both lists, each counted once."""
    by_span = defaultdict(list)
    for label, start, end in test:
        by_span[start, end].append(label)
    matched = 0
    for label, start, end in gold:
        labels = by_span[start, end]
        equal = next((other for other in labels if same(label, other)), None)
        if equal is not None:
            labels.remove(equal)
            matched += 1
    return matched


def _crossing(gold: Iterable[Bracket], test: Iterable[Bracket]) -> int:
    """The number of brackets in ``test`` that cross one in ``gold``."""
    spans = {(start, end) for _, start, end in gold}
    return sum(
        any(s < start < e < end or start < s < end < e for s, e in spans) for _, start, end in test
    )


def percent(part: int, whole: int) -> float:
    """100 part / whole; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def f1(matched: int, gold: int, test: int) -> float:
    """F1 in percent, from numbers of brackets."""
    return percent(2 * matched, gold + test)


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
    count = len(valid)
    matched = sum(x.matched for x in valid)
    gold, test = sum(x.gold for x in valid), sum(x.test for x in valid)
    complete = sum(result.matched == result.gold == result.test for result in valid)
    crossing = [result.crossing for result in valid]
    correct_tags, words = sum(x.correct_tags for x in valid), sum(x.words for x in valid)
    return {
        "sentences": len(results),
        "errors": sum(result.status == ERROR for result in results),
        "skipped": sum(result.status == SKIPPED for result in results),
        "recall": percent(matched, gold),
        "precision": percent(matched, test),
        "f1": f1(matched, gold, test),
        # Sentences in which all brackets are correct
        "complete_match": percent(complete, count),
        # Crossing brackets per sentence; sentences without any, and with at most two
        "average_crossing": sum(crossing) / count if valid else 0.0,
        "no_crossing": percent(crossing.count(0), count),
        "two_or_less_crossing": percent(sum(number <= 2 for number in crossing), count),
        "tagging_accuracy": percent(correct_tags, words),
    }
