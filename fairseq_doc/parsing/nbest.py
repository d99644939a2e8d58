"""N-best lists of parse trees in the forms that parsers print, gzip or not.

The first two lines decide which of three forms a file has (N candidates of sentence I, which counts
from 0 or 1)::

    N I               N I               I ||| SCORE ||| TREE
    SCORE<TAB>TREE    SCORE             I ||| SCORE ||| TREE
    ...               TREE              ...
                      ...

The second form is the Charniak parser's, with blank lines between sentences. The third is that of
recurrent neural network grammars (RNNG). Their samples of a sentence are unordered, may repeat each
other, and have neither tags nor rare words; see ``sentence`` of
:func:`fairseq_doc.preparation.trees.parse_tree`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

BAR = " ||| "
MAX_SCORE = 1e12  # of either sign
_HEADER = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s*")
_INDEX = re.compile(r"\s*(\d{1,9})\s*")
_NUMBERS = re.compile(r"^(?:[-+.\deE]+\t)+")
_Lines = Iterator[tuple[int, str]]  # (number, line) of a file's lines that are not blank


@dataclass(frozen=True)
class Candidate:
    """One line of a list.

    Attributes:
        score: the parser's own, a logarithm to whatever base it uses.
        text: the tree as the file has it.
        line: the number of the line with the tree.
    """

    score: float
    text: str
    line: int


def is_nbest(path: str) -> bool:
    """Whether a file begins as an n-best file, and not with a tree."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return BAR in first or _HEADER.fullmatch(first) is not None


def read_nbest(path: str) -> Iterator[list[Candidate]]:
    """Read an n-best file.

    Yields:
        For each sentence, in the file's order, its candidates.

    Raises:
        FairseqDocError: an empty file, a list that is shorter or longer than its header says, a
            sentence out of order, one without candidates, a score that is not a number. The message
            names file and line.
    """
    lines = ((n, line) for n, line in enumerate(text_lines(path), start=1) if line.strip())
    first = list(islice(lines, 2))
    if not first:
        raise FairseqDocError(f"{path}: expected n-best lists of trees; got an empty file")
    number, line = first[0]
    if BAR in line:
        yield from _read_with_bars(path, chain(first, lines))
    elif _HEADER.fullmatch(line):
        yield from _read_with_headers(path, chain(first, lines))
    else:
        raise FairseqDocError(
            f"{path}: line {number}: expected 'N INDEX', the number of candidates and the number "
            f"of a sentence, or 'INDEX ||| SCORE ||| TREE'; got {shown(line.strip())}"
        )


def _read_with_headers(path: str, lines: _Lines) -> Iterator[list[Candidate]]:
    order = _Order(path)
    for number, line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected 'N INDEX', since the list before has as many "
                f"candidates as its header says; got {shown(line.strip())}"
            )
        count, index = int(header[1]), int(header[2])
        order.check(number, index)
        if not count:
            raise FairseqDocError(f"{path}: line {number}: sentence {index} has no candidate")
        candidates: list[Candidate] = []
        while len(candidates) < count:
            score_line, line = next(lines, (0, ""))
            score, tab, text = line.partition("\t")
            text = _NUMBERS.sub("", text)  # rerank --output-nbest writes more scores
            tree_line = score_line
            if score_line and not tab:  # the tree is on a line of its own
                tree_line, text = next(lines, (0, ""))
            if not tree_line or not text.lstrip().startswith("("):
                place = f", then line {tree_line}" if tree_line else ""
                raise FairseqDocError(
                    f"{path}: line {number}: expected {count} candidates of sentence {index}, each "
                    f"a score and a tree; got {len(candidates)}{place}"
                )
            candidates.append(
                Candidate(_read_score(path, score_line, score), text.strip(), tree_line)
            )
        yield candidates


def _read_with_bars(path: str, lines: _Lines) -> Iterator[list[Candidate]]:
    order = _Order(path)
    candidates: list[Candidate] = []
    current = None
    for number, line in lines:
        parts = line.split(BAR.rstrip(), 2)
        if len(parts) != 3 or not _INDEX.fullmatch(parts[0]):
            raise FairseqDocError(
                f"{path}: line {number}: expected 'INDEX ||| SCORE ||| TREE'; got {shown(line.strip())}"
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
                f"{path}: line {number}: expected a tree in brackets; got {shown(text.strip())}"
            )
        candidates.append(Candidate(_read_score(path, number, parts[1]), text, number))
    yield candidates


class _Order:
    """Checks that sentences are numbered one after another."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.expected: int | None = None

    def check(self, line: int, index: int) -> None:
        if self.expected is None:
            self.expected = 1 if index == 1 else 0
        if index != self.expected:
            raise FairseqDocError(
                f"{self.path}: line {line}: expected sentence {self.expected}, since sentences are "
                f"numbered one after another from 0 or 1; got {index}"
            )
        self.expected += 1


def _read_score(path: str, line: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not abs(score) < MAX_SCORE:
        raise FairseqDocError(
            f"{path}: line {line}: expected a score, a number; got {shown(text.strip())}"
        )
    return score
