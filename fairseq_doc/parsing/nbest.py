"""N-best lists of parse trees as printed by parsers, gzipped or not.

There are three forms, for N candidates of sentence I, where I starts at 0 or 1::

    N I               N I               I ||| SCORE ||| TREE
    SCORE<TAB>TREE    SCORE             I ||| SCORE ||| TREE
    ...               TREE              ...
                      ...

The second form is that of the Charniak parser, with empty lines between sentences. The third is that
of recurrent neural network grammars (RNNG): unordered samples, possibly with repetitions, without
tags and rare words; see ``sentence`` in :func:`fairseq_doc.preparation.trees.parse_tree`. If the
parser failed, there is the tree ``(())`` with any score, or no candidate.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.trees import (
    EMPTY,
    Tree,
    bracketed,
    is_tagged,
    parse_tree,
    tree_texts,
)

BAR = " ||| "
MAX_SCORE = 1e12  # maximal absolute value
_HEADER = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s*")
_ROW = re.compile(r"\s*(\d{1,9})\s*\|\|\|(.*?)\|\|\|\s*(\(.*)")
_NUMBERS = re.compile(r"^(?:[-+.\deEinf]+\t)+")
_WITHOUT_WORDS = re.compile(r"[\s()]*")
_FORMS = "'N INDEX', then a score and a tree N times, or 'INDEX ||| SCORE ||| TREE'"


@dataclass(frozen=True)
class Candidate:
    """One tree in a list."""

    score: float  # the parser's score, a logarithm to the base that it uses
    text: str  # the tree as written in the file
    line: int  # number of the line with the tree


Parses = list[tuple[Candidate, Tree]]  # the candidates of one sentence


def is_nbest(path: str) -> bool:
    """Whether a file is an n-best file and does not begin with a tree."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return BAR in first or _HEADER.fullmatch(first) is not None


def read_nbest(path: str) -> Iterator[list[Candidate]]:
    """Yield the candidates of each sentence, in the file's order."""
    expected = None
    for (_, index), rows in groupby(_rows(path), key=itemgetter(0, 1)):
        candidates = [candidate for _, _, candidate in rows]
        if expected is None:
            expected = int(index == 1)
        if index != expected:
            raise FairseqDocError(
                f"{path}: line {candidates[0].line}: expected sentence {expected}, since sentences "
                f"are numbered consecutively from 0 or 1; got {index}"
            )
        expected += 1
        yield candidates
    if expected is None:
        raise FairseqDocError(f"{path}: expected n-best lists of trees; got an empty file")


def _rows(path: str) -> Iterator[tuple[int, int, Candidate]]:
    """(line number of the list's header, or 0; number of its sentence; candidate)."""
    lines = ((n, line) for n, line in enumerate(text_lines(path), start=1) if line.strip())
    for number, line in lines:
        if row := _ROW.fullmatch(line):
            yield 0, int(row[1]), _candidate(path, number, row[2], row[3])
            continue
        header = _HEADER.fullmatch(line)
        if header is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected {_FORMS}; got {shown(line.strip())}"
            )
        count, index = int(header[1]), int(header[2])
        if not count:
            yield number, index, Candidate(0.0, bracketed(EMPTY), number)
        for found in range(count):
            at, line = next(lines, (0, ""))
            score, tab, text = line.partition("\t")
            text = _NUMBERS.sub("", text)  # rerank --output-nbest writes several scores
            if not tab:  # the tree is on the next line
                at, text = next(lines, (0, ""))
            if not text.lstrip().startswith("("):
                raise FairseqDocError(
                    f"{path}: line {number}: expected {count} candidates of sentence {index}; got "
                    f"{found}, then {shown(text.strip())}"
                )
            yield number, index, _candidate(path, at, score, text)


def _candidate(path: str, line: int, score: str, text: str) -> Candidate:
    try:
        number = float(score)
    except ValueError:
        number = math.nan
    if not abs(number) < MAX_SCORE:
        if not _WITHOUT_WORDS.fullmatch(text):
            raise FairseqDocError(
                f"{path}: line {line}: expected a score, a number; got {shown(score.strip())}"
            )
        number = 0.0
    return Candidate(number, text.strip(), line)


def read_lists(path: str) -> Iterator[list[Candidate]]:
    """The candidates of each sentence; in a file of trees, there is one each."""
    if is_nbest(path):
        return read_nbest(path)
    return ([Candidate(0.0, text, line)] for line, text in tree_texts(path))


def every_word_is_tagged(path: str) -> bool:
    """Whether every word in a file of trees or n-best lists has its own bracket, the tag."""
    return all(is_tagged(one.text) for candidates in read_lists(path) for one in candidates)


def parse_lists(
    path: str,
    lists: Iterable[list[Candidate]],
    sentences: Sequence[Tree] | None = None,
    tagged: bool = False,
) -> Iterator[Parses]:
    """Yield the lists of a file with the tree of each candidate, ``EMPTY`` if the parser failed.
    ``sentences``: one tree per list, whose words and tags are used; ``tagged``: see
    :func:`fairseq_doc.preparation.trees.parse_tree`."""
    for number, candidates in enumerate(lists):
        if sentences is not None and number >= len(sentences):
            raise FairseqDocError(
                f"{path}: line {candidates[0].line}: expected lists for {len(sentences):,} "
                "sentences; got more"
            )
        sentence = None if sentences is None else sentences[number]
        yield [
            (one, parse_tree(one.text, f"{path}: line {one.line}", True, sentence, tagged))
            for one in candidates
        ]
