"""N-best lists of parse trees, as parsers print them: one sentence after another, gzip or not.

Three forms, told apart by their first two lines (N candidates of sentence I, counted from 0 or 1)::

    N I               N I               I ||| SCORE ||| TREE
    SCORE<TAB>TREE    SCORE             I ||| SCORE ||| TREE
    ...               TREE              ...
                      ...

The second is the Charniak parser's, with blank lines between; the third that of recurrent neural
network grammars, whose samples of a sentence are in no order, may repeat each other, and have neither
tags nor rare words, see ``sentence`` of :func:`fairseq_doc.preparation.trees.parse_tree`.
"""

import math
import re
from dataclasses import dataclass
from itertools import chain, islice

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines

BAR = " ||| "
_HEADER = re.compile(r"\s*(\d+)\s+(\d+)\s*")
_NUMBERS = re.compile(r"^(?:[-+.\deE]+\t)+")


@dataclass(frozen=True)
class Candidate:
    """One line of a list.

    Attributes:
        score: the parser's own, a logarithm of whatever base it uses.
        text: the tree, as it stands there.
        line: the number of the line with the tree.
    """

    score: float
    text: str
    line: int


def is_nbest(path):
    """Whether a file begins as an n-best file does, and not with a tree."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return BAR in first or _HEADER.fullmatch(first) is not None


def read_nbest(path):
    """Read an n-best file.

    Yields:
        For each sentence, in the file's order, the list of its :class:`Candidate`.

    Raises:
        FairseqDocError: with file and line: no list, one shorter or longer than its header says, a
            sentence out of order, one without candidates, a score that is not a number.
    """
    lines = ((n, line) for n, line in enumerate(text_lines(path), start=1) if line.strip())
    first = list(islice(lines, 2))
    if not first:
        raise FairseqDocError(f"{path}: expected n-best lists of trees; got an empty file")
    lines = chain(first, lines)
    if BAR in first[0][1]:
        yield from _with_bars(path, lines)
    elif _HEADER.fullmatch(first[0][1]):
        yield from _with_headers(path, lines)
    else:
        raise FairseqDocError(
            f"{path}: line {first[0][0]}: expected 'N INDEX', a sentence's number of candidates and its "
            f"number, or 'INDEX ||| SCORE ||| TREE'; got {first[0][1].strip()[:40]!r}"
        )


def _with_headers(path, lines):
    order = _Order(path)
    for number, line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected 'N INDEX', as the list before has all candidates that "
                f"its line says; got {line.strip()[:40]!r}"
            )
        count, index = int(header[1]), int(header[2])
        order.check(number, index)
        if not count:
            raise FairseqDocError(f"{path}: line {number}: sentence {index} has no candidate")
        candidates = []
        while len(candidates) < count:
            number_of_score, line = next(lines, (None, ""))
            score, tab, text = line.partition("\t")
            text = _NUMBERS.sub("", text)  # scored lists of this package tell more between
            if number_of_score and not tab:  # the tree has a line of its own
                number_of_tree, text = next(lines, (None, ""))
            else:
                number_of_tree = number_of_score
            if number_of_tree is None or not text.lstrip().startswith("("):
                raise FairseqDocError(
                    f"{path}: line {number}: expected {count} candidates of sentence {index}, each a "
                    f"score and a tree; got {len(candidates)}"
                    + (f", then line {number_of_tree}" if number_of_tree else "")
                )
            score = _score(path, number_of_score, score)
            candidates.append(Candidate(score, text.strip(), number_of_tree))
        yield candidates


def _with_bars(path, lines):
    order = _Order(path)
    candidates, current = [], None
    for number, line in lines:
        parts = line.split(BAR.rstrip(), 2)
        if len(parts) != 3 or not parts[0].strip().isdecimal():
            raise FairseqDocError(
                f"{path}: line {number}: expected 'INDEX ||| SCORE ||| TREE'; got {line.strip()[:40]!r}"
            )
        index = int(parts[0])
        if index != current:
            order.check(number, index)
            if candidates:
                yield candidates
            candidates, current = [], index
        text = parts[2].strip()
        if not text.startswith("("):
            raise FairseqDocError(
                f"{path}: line {number}: expected a tree in brackets; got {text[:40]!r}"
            )
        candidates.append(Candidate(_score(path, number, parts[1]), text, number))
    yield candidates


class _Order:
    """The numbers of sentences, one after another."""

    def __init__(self, path):
        self.path = path
        self.expected = None

    def check(self, line, index):
        expected = (index if index in (0, 1) else 0) if self.expected is None else self.expected
        if index != expected:
            raise FairseqDocError(
                f"{self.path}: line {line}: expected sentence {expected}, as sentences are numbered one "
                f"after another from 0 or 1; got {index}"
            )
        self.expected = index + 1


def _score(path, line, text):
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise FairseqDocError(
            f"{path}: line {line}: expected a score, a number; got {text.strip()[:40]!r}"
        )
    return score
