"""Constituency trees in brackets, as the Penn Treebank and parsers write them.

A tree is kept flat, as its words, their tags and its brackets: reading costs one pass over the text.
Trees far beyond any sentence's size are refused.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import MAX_LINE, text_lines

TRACE = "-NONE-"
NO_TAG = "XX"
ROOTS = ("", "TOP", "S1", "ROOT")
# The Penn Treebank's largest tree has 271 words, and none is 40 deep.
MAX_PARTS = 10_000  # words and brackets of a tree
MAX_DEPTH = 1_000
# A tag with its word; an opening bracket with its label; a closing bracket; anything else.
_PART = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII)
_BRACKET = re.compile(r"[()]")
_FUNCTION = re.compile(r"(?<=.)[-=].*")

Bracket = tuple[str, int, int]  # (label, start, end), over words start..end - 1


@dataclass(frozen=True)
class Tree:
    """A constituency tree.

    Attributes:
        words: its N words, from the left.
        tags: a part-of-speech tag a word.
        brackets: (label, start, end) of every constituent above the tags, over words start..end - 1,
            in the order in which they open, so a unary chain from the top.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]

    @property
    def root(self) -> str | None:
        """The label of the outermost bracket where it is a mere root, one of ``ROOTS``; else None."""
        label = self.brackets[0][0] if self.brackets else None
        return label if label in ROOTS else None


EMPTY = Tree((), (), ())  # a parser's failure


def parse_tree(
    text: str, where: str, allow_empty: bool = False, sentence: Tree | None = None
) -> Tree:
    """Read one tree.

    Args:
        text: the tree, on one line or several; its root bracket may lack a label.
        where: what an error begins with, such as ``dev.mrg: line 3``.
        allow_empty: take a tree without words, as parsers write where they fail, ``(())``, and leave out
            constituents without, as EVALB does.
        sentence: a tree whose words and tags are taken, for trees without tags, or with other marks of
            unknown words: a bracket around a single word is its tag where it is XX or the sentence's
            own, and else a constituent. None: every word has its tag.

    Returns:
        :class:`Tree`.

    Raises:
        FairseqDocError: brackets that do not match, a word without a tag, a constituent without
            words, a label missing below the root, several trees, not as many words as the sentence's,
            or a size beyond ``MAX_PARTS`` or ``MAX_DEPTH``.
    """
    reader = _TreeReader(where, sentence)
    for part in _PART.finditer(text):
        tag, word, label, closing, stray = part.groups()
        reader.check_not_ended(part[0])
        reader.check_size()
        if tag is not None:
            reader.tagged_word(tag, word)
        elif label is not None:
            reader.open(label)
        elif closing:
            reader.close()
        else:
            reader.bare_word(stray)
    return reader.tree(allow_empty)


class _TreeReader:
    """The state of :func:`parse_tree`, part by part."""

    def __init__(self, where: str, sentence: Tree | None) -> None:
        self.where = where
        self.sentence = sentence
        self.words: list[str] = []
        self.tags: list[str] = []
        self.brackets: list[Bracket] = []
        self.unclosed: list[int] = []  # places in brackets, from the outermost
        self.lack: str | None = None  # the first; an error unless the tree has no words at all

    def error(self, problem: str) -> FairseqDocError:
        return FairseqDocError(f"{self.where}: {problem}")

    def check_not_ended(self, text: str) -> None:
        if not self.unclosed and (self.words or self.brackets):
            raise self.error(f"expected one tree; got {shown(text)} after its end")

    def check_size(self) -> None:
        if len(self.words) + len(self.brackets) > MAX_PARTS:
            raise self.error(
                f"expected a sentence's tree; got one of more than {MAX_PARTS:,} words and brackets"
            )
        if len(self.unclosed) > MAX_DEPTH:
            raise self.error(
                f"expected a sentence's tree; got one of more than {MAX_DEPTH:,} brackets inside each other"
            )

    def tagged_word(self, tag: str, word: str) -> None:
        place = len(self.words)
        if self.sentence is not None and tag != NO_TAG:
            own_tag = self.sentence.tags[place] if place < len(self.sentence.tags) else None
            if tag != own_tag:
                self.brackets.append((tag, place, place + 1))
        self.words.append(word)
        self.tags.append(tag)

    def bare_word(self, word: str) -> None:
        if self.sentence is None or not self.unclosed:
            raise self.error(
                f"expected every word with its tag, (TAG word); got {shown(word)} alone"
            )
        self.words.append(word)

    def open(self, label: str) -> None:
        if not label and self.unclosed and self.lack is None:
            self.lack = "a bracket below the root has no label"
        self.unclosed.append(len(self.brackets))
        self.brackets.append((label, len(self.words), len(self.words)))

    def close(self) -> None:
        if not self.unclosed:
            raise self.error("a bracket is closed that was not opened")
        place = self.unclosed.pop()
        label, start, _ = self.brackets[place]
        if start == len(self.words) and self.lack is None:
            self.lack = f"the bracket {shown(label)} holds no word"
        self.brackets[place] = (label, start, len(self.words))

    def tree(self, allow_empty: bool) -> Tree:
        if self.unclosed:
            raise self.error(
                f"the tree is not closed: expected {len(self.unclosed)} more closing brackets"
            )
        if not self.words and allow_empty:
            return EMPTY
        if not self.words:
            raise self.error("expected a tree; got one without words")
        if self.lack is not None and not allow_empty:
            raise self.error(self.lack)
        brackets = tuple(bracket for bracket in self.brackets if bracket[1] < bracket[2])
        if self.sentence is None:
            return Tree(tuple(self.words), tuple(self.tags), brackets)
        if len(self.words) != len(self.sentence.words):
            raise self.error(
                f"expected {len(self.sentence.words)} words, as its sentence has; got "
                f"{len(self.words)}"
            )
        return replace(self.sentence, brackets=brackets)


def read_trees(path: str | os.PathLike) -> Iterator[tuple[int, Tree]]:
    """Read trees, each on a line or spread over several; blank lines do not count.

    Args:
        path: file, compressed by gzip or not.

    Yields:
        (number of the line in which it begins, :class:`Tree`).

    Raises:
        FairseqDocError: as :func:`parse_tree`, with file and line; a file without trees.
    """
    for number, text in tree_texts(path):
        yield number, parse_tree(text, f"{path}: line {number}")


def tree_texts(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """The text of every tree of a file: up to where as many brackets are closed as opened.

    Yields:
        (number of the line in which it begins, text).

    Raises:
        FairseqDocError: text outside brackets, a tree that is not closed or very long, a file without
            trees.
    """
    begun, depth = 0, 0
    lines: list[str] = []
    length = 0  # of the lines
    for number, line in enumerate(text_lines(path), start=1):
        start = 0
        for bracket in _BRACKET.finditer(line):
            if depth == 0:
                if line[start : bracket.start()].strip() or bracket[0] == ")":
                    break
                begun = number
            depth += 1 if bracket[0] == "(" else -1
            if depth == 0:
                lines.append(line[start : bracket.end()])
                yield begun, "\n".join(lines)
                lines, start, length = [], bracket.end(), 0
        if depth:
            lines.append(line[start:])
            length += len(lines[-1])
            if length > MAX_LINE:
                raise FairseqDocError(
                    f"{path}: line {begun}: the tree that begins here does not end within {MAX_LINE:,} "
                    "characters: is a closing bracket missing?"
                )
        elif line[start:].strip():
            raise FairseqDocError(
                f"{path}: line {number}: expected a tree in brackets; got "
                f"{shown(line[start:].strip())} outside one"
            )
    if not begun:
        raise FairseqDocError(f"{path}: expected trees in brackets; got an empty file")
    if depth:
        raise FairseqDocError(
            f"{path}: line {begun}: the tree that begins here is not closed: expected {depth} more "
            "closing brackets"
        )


def without_traces(tree: Tree) -> Tree:
    """The tree without traces (words tagged -NONE-) and the constituents of nothing else; maybe
    without words."""
    if TRACE not in tree.tags:
        return tree
    kept = [tag != TRACE for tag in tree.tags]
    before = [0, *accumulate(kept)]  # words kept before each place
    brackets = ((label, before[start], before[end]) for label, start, end in tree.brackets)
    return Tree(
        tuple(compress(tree.words, kept)),
        tuple(compress(tree.tags, kept)),
        tuple(bracket for bracket in brackets if bracket[1] < bracket[2]),
    )


def without_function_tags(tree: Tree) -> Tree:
    """The tree with labels up to their first - or = after the first character: NP-SBJ-1 and NP=2
    become NP."""
    brackets = tuple((_FUNCTION.sub("", label), s, e) for label, s, e in tree.brackets)
    return replace(tree, brackets=brackets)


def walk(tree: Tree) -> Iterator[tuple[str, Any]]:
    """What the text of the tree holds in its order: ("(", label), ("word", index), (")", label)."""
    unclosed: list[Bracket] = []
    opened = 0  # brackets so far
    for index in range(len(tree.words)):
        while opened < len(tree.brackets) and tree.brackets[opened][1] == index:
            yield "(", tree.brackets[opened][0]
            unclosed.append(tree.brackets[opened])
            opened += 1
        yield "word", index
        while unclosed and unclosed[-1][2] == index + 1:
            yield ")", unclosed.pop()[0]


def bracketed(tree: Tree) -> str:
    """The tree on one line, ``(TOP (S (NP (DT the) ...``; ``(())`` without words."""
    if not tree.words:
        return "(())"
    parts = []
    for kind, what in walk(tree):
        if kind == "word":
            parts.append(f" ({tree.tags[what]} {tree.words[what]})")
        else:
            parts.append(f" ({what}" if kind == "(" else ")")
    return "".join(parts)[1:]
