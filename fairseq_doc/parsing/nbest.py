"""N-best lists of parse trees as parsers print them, gzip or not.

The first line decides which of three forms a file has (N candidates of sentence I, which counts
from 0 or 1)::

    N I               N I               I ||| SCORE ||| TREE
    SCORE<TAB>TREE    SCORE             I ||| SCORE ||| TREE
    ...               TREE              ...
                      ...

The second form is the Charniak parser's, with blank lines between sentences. The third is that of
recurrent neural network grammars (RNNG): unordered samples, which may repeat each other, without
tags and rare words; see ``sentence`` of :func:`fairseq_doc.preparation.trees.parse_tree`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

BAR = " ||| "
MAX_SCORE = 1e12  # absolute
_HEADER = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s*")
_NUMBERS = re.compile(r"^(?:[-+.\deE]+\t)+")


@dataclass(frozen=True)
class Candidate:
    """One tree of a list."""

    score: float  # the parser's own, a logarithm to whatever base it uses
    text: str  # the tree as the file has it
    line: int  # the number of the line with the tree


_Lines = Iterator[tuple[int, str]]  # (number, line) of a file's lines that are not blank
# (first line, number of the sentence, its list)
_Lists = Iterator[tuple[int, int, list[Candidate]]]


def is_nbest(path: str) -> bool:
    """Whether a file begins as an n-best file, and not with a tree."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return BAR in first or _HEADER.fullmatch(first) is not None


def read_nbest(path: str) -> Iterator[list[Candidate]]:
    """Yield the candidates of each sentence, in the file's order."""
    lines = ((n, line) for n, line in enumerate(text_lines(path), start=1) if line.strip())
    first = next(lines, None)
    if first is None:
        raise FairseqDocError(f"{path}: expected n-best lists of trees; got an empty file")
    read = _read_with_bars if BAR in first[1] else _read_with_headers
    expected = None
    for number, index, candidates in read(path, chain([first], lines)):
        if expected is None:
            expected = int(index == 1)
        if index != expected:
            raise FairseqDocError(
                f"{path}: line {number}: expected sentence {expected}, since sentences are "
                f"numbered one after another from 0 or 1; got {index}"
            )
        expected += 1
        yield candidates


def _read_with_headers(path: str, lines: _Lines) -> _Lists:
    for number, line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected 'N INDEX', the number of candidates that follow "
                "and that of their sentence, or 'INDEX ||| SCORE ||| TREE'; got "
                f"{shown(line.strip())}"
            )
        count, index = int(header[1]), int(header[2])
        if not count:
            raise FairseqDocError(f"{path}: line {number}: sentence {index} has no candidate")
        candidates: list[Candidate] = []
        while len(candidates) < count:
            at, line = next(lines, (0, ""))
            score, tab, text = line.partition("\t")
            text = _NUMBERS.sub("", text)  # rerank --output-nbest writes more scores
            score_at = at
            if at and not tab:  # the tree is on a line of its own
                at, text = next(lines, (0, ""))
            if not text.lstrip().startswith("("):
                place = f", then line {at}" if at else ""
                raise FairseqDocError(
                    f"{path}: line {number}: expected {count} candidates of sentence {index}, each "
                    f"a score and a tree; got {len(candidates)}{place}"
                )
            candidates.append(Candidate(_read_score(path, score_at, score), text.strip(), at))
        yield number, index, candidates


def _read_with_bars(path: str, lines: _Lines) -> _Lists:
    rows = (_read_row(path, number, line) for number, line in lines)
    for index, of_sentence in groupby(rows, key=itemgetter(0)):
        candidates = [candidate for _, candidate in of_sentence]
        yield candidates[0].line, index, candidates


def _read_row(path: str, number: int, line: str) -> tuple[int, Candidate]:
    """(number of the sentence, candidate) of a line."""
    index, score, text = map(str.strip, [*line.split(BAR.rstrip(), 2), "", ""][:3])
    if not re.fullmatch(r"\d{1,9}", index) or not text.startswith("("):
        raise FairseqDocError(
            f"{path}: line {number}: expected 'INDEX ||| SCORE ||| TREE'; got {shown(line.strip())}"
        )
    return int(index), Candidate(_read_score(path, number, score), text, number)


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
