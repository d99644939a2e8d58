"""N-best lists of parse trees as printed by parsers, gzipped or not.

There are three forms, for N candidates of sentence I, where I starts at 0 or 1::

    N I               N I               I ||| SCORE ||| TREE
    SCORE<TAB>TREE    SCORE             I ||| SCORE ||| TREE
    ...               TREE              ...
                      ...

The second form is that of the Charniak parser, with empty lines between sentences. The third is
that of recurrent neural network grammars (RNNG): samples, possibly with repetitions, without tags
and rare words; see ``sentence`` in :func:`fairseq_doc.preparation.trees.parse_tree`. Samples have
no order, so they are sorted by score. If the parser failed, the list has the tree ``(())`` with any
score, or no candidate.
"""

import bisect
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from fairseq_doc.errors import FairseqDocError, check_count, shown
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.trees import Tree, bracketed, parse_tree, tree_texts

_HEADER = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s*")
_ROW = re.compile(r"\s*(\d{1,9})\s*\|\|\|(.*?)\|\|\|\s*(\(.*)")
# A score, further ones as rerank --output-nbest writes them, and a tree
_SCORED = re.compile(r"\s*(\S*)\s*\t(?:[-+.\deEinf]+\t)*\s*(\(.*)")
_WITHOUT_WORDS = re.compile(r"[\s()]*")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tree in a list."""

    score: float  # the parser's score, a logarithm to the base that it uses
    text: str  # the tree as written in the file
    line: int  # number of the line with the tree


Parses = list[tuple[Candidate, Tree]]  # the candidates of one sentence


def is_nbest(path: str) -> bool:
    """Whether a file does not begin with a tree."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return bool(first) and not first.lstrip().startswith("(")


def read_nbest(path: str) -> list[list[Candidate]]:
    """The candidates of each sentence in the file's order, but samples sorted by score."""
    lists: list[list[Candidate]] = []
    first = 0  # number of the first sentence
    lines = ((n, line) for n, line in enumerate(text_lines(path), start=1) if line.strip())
    for number, line in lines:
        row, header = _ROW.fullmatch(line), _HEADER.fullmatch(line)
        if row:
            index, own = int(row[1]), [_candidate(path, number, row[2], row[3])]
        elif header:
            index, own = int(header[2]), _below_header(path, number, int(header[1]), lines)
        else:
            raise FairseqDocError(
                f"{path}: line {number}: expected 'N INDEX', then a score and a tree N times, or "
                f"'INDEX ||| SCORE ||| TREE'; got {shown(line.strip())}"
            )
        if not lists:
            first = int(index == 1)
        expected = first + len(lists)
        if row and lists and index == expected - 1:
            bisect.insort(lists[-1], own[0], key=_likelier)
        elif index == expected:
            lists.append(own)
        else:
            raise FairseqDocError(
                f"{path}: line {number}: expected sentence {expected}, since sentences are numbered "
                f"consecutively from 0 or 1; got {index}"
            )
    if not lists:
        raise FairseqDocError(f"{path}: expected n-best lists of trees; got an empty file")
    return lists


def _likelier(one: Candidate) -> tuple[bool, float]:
    """A key that sorts candidates by descending score, failed parses last."""
    return _WITHOUT_WORDS.fullmatch(one.text) is not None, -one.score


def _below_header(
    path: str, number: int, count: int, lines: Iterator[tuple[int, str]]
) -> list[Candidate]:
    """The candidates below a header, which is in line ``number``."""
    found: list[Candidate] = []
    while len(found) < count:
        at, line = next(lines, (0, ""))
        if "(" not in line:  # a score alone: the tree is on the next line
            at, tree = next(lines, (0, ""))
            line += f"\t{tree}"
        match = _SCORED.fullmatch(line)
        if match is None:
            raise FairseqDocError(
                f"{path}: line {number}: expected {count} candidates; got {len(found)}, then "
                f"{shown(line.strip())}"
            )
        found.append(_candidate(path, at, match[1], match[2]))
    return found or [Candidate(0.0, "(())", number)]


def _candidate(path: str, line: int, score: str, text: str) -> Candidate:
    """A candidate; a failed parse may have any score."""
    try:
        number = float(score)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        if not _WITHOUT_WORDS.fullmatch(text):
            raise FairseqDocError(
                f"{path}: line {line}: expected a score, a number; got {shown(score.strip())}"
            )
        number = 0.0
    return Candidate(number, text.strip(), line)


def read_lists(path: str) -> list[list[Candidate]]:
    """The candidates of each sentence; in a file of trees, there is one each."""
    if is_nbest(path):
        return read_nbest(path)
    return [[Candidate(0.0, text, line)] for line, text in tree_texts(path)]


def parse_lists(
    path: str,
    lists: Sequence[list[Candidate]],
    sentences: Sequence[Tree] | None = None,
    tagged: bool = False,
) -> Iterator[Parses]:
    """Yield the lists of a file with the tree of each candidate, ``EMPTY`` if the parser failed.
    ``sentences``: one tree per list; its words and tags replace those of the candidates, also in
    their texts. ``tagged``: see :func:`fairseq_doc.preparation.trees.parse_tree`."""
    if sentences is not None:
        check_count(path, lists, "the trees with their words", sentences)
    for candidates, sentence in zip(lists, sentences or repeat(None), strict=False):
        parses = []
        for one in candidates:
            tree = parse_tree(one.text, f"{path}: line {one.line}", True, sentence, tagged)
            parses.append((one if sentence is None else replace(one, text=bracketed(tree)), tree))
        yield parses


def nbest_lines(lists: Iterable[Sequence[tuple[Any, ...]]]) -> Iterator[str]:
    """The lines of an n-best file with these lists of (score, ..., tree as text)."""
    for number, candidates in enumerate(lists):
        yield f"{len(candidates)} {number}"
        for *scores, text in candidates:
            yield "\t".join([*(repr(float(score)) for score in scores), text])
