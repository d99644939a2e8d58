"""Bracketing F1 as EVALB computes it (Sekine and Collins, 1997), with the parameters of COLLINS.prm or
of another .prm file.

Facts of EVALB that show in results: a word is deleted by its exact tag, on each side by its own; a
bracket by its label, once cut; brackets left without words are gone. A sentence whose words then
differ is an error and in no total; one of which nothing is left to score is skipped.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, fields
from itertools import accumulate, compress

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.trees import TRACE

QUOTES = ("'", '"', "/")  # the words that EVALB tries as quotes
_CUT = re.compile("[-=].*")
VALID, ERROR, SKIPPED = "valid", "error", "skipped"


@dataclass(frozen=True)
class Parameters:
    """What a .prm file holds; the defaults are those of COLLINS.prm, and QUOTE_LABEL, which it lacks.

    Attributes:
        labeled: brackets match by label and span, not by span alone.
        cutoff_len: the second summary is of sentences of at most so many words.
        delete_label: tags whose words, and labels whose brackets, are deleted.
        delete_label_for_length: tags whose words do not count for a sentence's length.
        quote_label: tags that a parser may confuse on a quote: where one side deletes the word by such
            a tag and the other does not, both keep it.
        eq_label, eq_word: pairs that count as equal.
    """

    labeled: bool = True
    cutoff_len: int = 40
    delete_label: tuple = ("TOP", TRACE, ",", ":", "``", "''", ".")
    delete_label_for_length: tuple = (TRACE,)
    quote_label: tuple = ("``", "''", "POS")
    eq_label: tuple = (("ADVP", "PRT"),)
    eq_word: tuple = ()


def read_parameters(path):
    """Read a .prm file. DEBUG and MAX_ERROR, how EVALB talks and when it gives up, do not matter here.

    Raises:
        FairseqDocError: an unknown parameter or a value of another kind, with its line.
    """
    lists = defaultdict(list)
    single = {"labeled": True, "cutoff_len": Parameters.cutoff_len}
    known = {field.name.upper() for field in fields(Parameters)}
    for number, line in enumerate(text_lines(path), start=1):
        name, *values = line.split() or ["#"]
        if name.startswith("#") or name in ("DEBUG", "MAX_ERROR"):
            continue
        key = name.lower()
        expected = 2 if name.startswith("EQ_") else 1
        if name not in known or len(values) != expected:
            raise FairseqDocError(
                f"{path}: line {number}: expected one of {', '.join(sorted(known))} with its value, or "
                f"two after EQ_LABEL and EQ_WORD; got {line.strip()!r}"
            )
        if key not in single:
            lists[key].append(tuple(values) if expected == 2 else values[0])
        elif values[0].isdecimal():
            single[key] = type(single[key])(int(values[0]))
        else:
            raise FairseqDocError(
                f"{path}: line {number}: expected a number after {name}; got {values[0]!r}"
            )
    every_list = {f.name: () for f in fields(Parameters) if f.name not in single}
    return Parameters(**single, **every_list | {key: tuple(value) for key, value in lists.items()})


@dataclass(frozen=True)
class SentenceResult:
    """One candidate against its gold tree.

    Attributes:
        status: ``valid``, ``error`` (other words) or ``skipped`` (nothing to score in the candidate).
        length: words of the gold tree, as they count for the cutoff.
        matched, gold, test: brackets.
        crossing: brackets of the candidate that cross one of the gold tree's.
        words, correct_tags: words scored, and those of equal tags.
    """

    status: str
    length: int
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    @property
    def recall(self):
        """In percent."""
        return _percent(self.matched, self.gold)

    @property
    def precision(self):
        """In percent."""
        return _percent(self.matched, self.test)


def compare(gold, test, parameters):
    """Score one candidate; both :class:`fairseq_doc.preparation.trees.Tree`.

    Returns:
        :class:`SentenceResult`.
    """
    length = sum(tag not in parameters.delete_label_for_length for tag in gold.tags)
    kept = [[tag not in parameters.delete_label for tag in tree.tags] for tree in (gold, test)]
    if not any(kept[1]):
        return SentenceResult(SKIPPED, length)
    if sum(kept[0]) != sum(kept[1]):
        _keep_quotes(gold, test, kept, parameters)
    words = [
        list(compress(tree.words, keep)) for tree, keep in zip((gold, test), kept, strict=True)
    ]
    same = _equality(parameters.eq_word)
    if len(words[0]) != len(words[1]) or not all(map(same, *words)):
        return SentenceResult(ERROR, length)
    of_gold, of_test = (
        _brackets(tree, keep, parameters) for tree, keep in zip((gold, test), kept, strict=True)
    )
    same = _equality(parameters.eq_label)
    tags = (compress(tree.tags, keep) for tree, keep in zip((gold, test), kept, strict=True))
    return SentenceResult(
        VALID,
        length,
        _matched(of_gold, of_test, same if parameters.labeled else lambda a, b: True),
        len(of_gold),
        len(of_test),
        _crossing(of_gold, of_test),
        len(words[0]),
        sum(map(same, *tags)),
    )


def _equality(pairs):
    """(a, b) -> whether they are equal or one of the pairs, which are not chained."""
    if not pairs:
        return str.__eq__
    both = {*pairs, *((b, a) for a, b in pairs)}
    return lambda a, b: a == b or (a, b) in both


def _keep_quotes(gold, test, kept, parameters):
    """Keep, on both sides, the quotes that one side deletes; changes ``kept``."""
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


def _brackets(tree, kept, parameters):
    """(label, start, end) over the kept words; without those deleted or left empty."""
    before = [0, *accumulate(kept)]
    same = _equality(parameters.eq_label)
    moved = (
        (_CUT.sub("", label), before[start], before[end]) for label, start, end in tree.brackets
    )
    return [
        bracket
        for bracket in moved
        if bracket[1] < bracket[2] and not any(same(bracket[0], d) for d in parameters.delete_label)
    ]


def _matched(gold, test, same):
    """The number of brackets found in both, each used once."""
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


def _crossing(gold, test):
    spans = {(start, end) for _, start, end in gold}
    return sum(
        any(s < start < e < end or start < s < end < e for s, e in spans) for _, start, end in test
    )


def _percent(part, whole):
    return 100 * part / whole if whole else 0.0


@dataclass(frozen=True)
class Summary:
    """Totals over sentences; shares in percent.

    Attributes:
        sentences, errors, skipped: all of them, and those in no other figure.
        recall, precision, f1: of brackets, over all together.
        complete_match: sentences whose brackets are all right.
        average_crossing: crossing brackets a sentence.
        no_crossing, two_or_less_crossing: sentences with so many.
        tagging_accuracy: words with equal tags.
    """

    sentences: int
    errors: int
    skipped: int
    recall: float
    precision: float
    f1: float
    complete_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float


def f1(matched, gold, test):
    """In percent, of counts of brackets."""
    return _percent(2 * matched, gold + test)


def summarize(results):
    """The :class:`Summary` of a list of :class:`SentenceResult`."""
    valid = [result for result in results if result.status == VALID]
    matched, gold, test, words = (
        sum(getattr(result, name) for result in valid)
        for name in ("matched", "gold", "test", "words")
    )
    return Summary(
        sentences=len(results),
        errors=sum(result.status == ERROR for result in results),
        skipped=sum(result.status == SKIPPED for result in results),
        recall=_percent(matched, gold),
        precision=_percent(matched, test),
        f1=f1(matched, gold, test),
        complete_match=_percent(sum(r.matched == r.gold == r.test for r in valid), len(valid)),
        average_crossing=sum(r.crossing for r in valid) / len(valid) if valid else 0.0,
        no_crossing=_percent(sum(r.crossing == 0 for r in valid), len(valid)),
        two_or_less_crossing=_percent(sum(r.crossing <= 2 for r in valid), len(valid)),
        tagging_accuracy=_percent(sum(r.correct_tags for r in valid), words),
    )
