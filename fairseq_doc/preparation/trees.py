"""Constituency trees in brackets, as the Penn Treebank and parsers write them, kept as three lists:
words, tags and brackets."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

TRACE = "-NONE-"
NO_TAG = "XX"
ROOTS = ("", "TOP", "S1", "ROOT")
# A tag with its word; an opening bracket with its label; a closing bracket; anything else.
_PART = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII)
_FUNCTION = re.compile(r"(?<=.)[-=].*")

Bracket = tuple[str, int, int]  # (label, start, end), over words start..end - 1


@dataclass(frozen=True)
class Tree:
    """N words with a tag each, and (label, start, end) of every constituent above the tags, over
    words start to end - 1, in the order in which they open, so a unary chain begins at the top."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]

    @property
    def root(self) -> str | None:
        """The label of the outermost bracket if it is one of ``ROOTS``; else None."""
        label = self.brackets[0][0] if self.brackets else None
        return label if label in ROOTS else None


EMPTY = Tree((), (), ())  # a parser's failure


class TreeBuilder:
    """A tree that grows from the left."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self.brackets: list[Bracket] = []
        self.unclosed: list[int] = []  # indices of ``brackets``, the outermost first

    def open(self, label: str) -> None:
        self.unclosed.append(len(self.brackets))
        self.brackets.append((label, len(self.words), len(self.words)))

    def close(self) -> Bracket:
        place = self.unclosed.pop()
        label, start, _ = self.brackets[place]
        self.brackets[place] = (label, start, len(self.words))
        return self.brackets[place]


def is_tagged(text: str) -> bool:
    """Whether every word of a tree's text is alone in its innermost bracket: ``(TAG word)``."""
    return not any(part[5] for part in _PART.finditer(text))


def parse_tree(
    text: str,
    where: str,
    allow_empty: bool = False,
    sentence: Tree | None = None,
    tagged: bool = False,
) -> Tree:
    """Read one tree, on one line or several; its root bracket may lack a label.

    Args:
        where: how an error begins, such as ``dev.mrg: line 3``.
        allow_empty: accept a tree without words, as parsers write when they fail, ``(())``, and
            leave out constituents without words, as EVALB does.
        sentence: gives the words and tags, for trees without tags or with other marks of unknown
            words. None: every word needs its tag.
        tagged: used with ``sentence``. True: the bracket around a single word is its tag. False:
            it is a tag if it is XX or the sentence's own tag, and a constituent otherwise.

    Raises:
        FairseqDocError: a damaged tree; not as many words as the sentence has.
    """
    tree, flaw = _read(text, where, sentence, tagged)
    words = len(tree.words)
    if tree.unclosed:
        flaw = f"the tree is not closed: expected {len(tree.unclosed)} more closing brackets"
    elif allow_empty:
        flaw = None
    elif not words:
        flaw = "expected a tree; got one without words"
    if words and sentence is not None and words != len(sentence.words):
        flaw = flaw or f"expected {len(sentence.words)} words, as its sentence has; got {words}"
    if flaw is not None:
        raise FairseqDocError(f"{where}: {flaw}")
    if not words:
        return EMPTY
    brackets = tuple(bracket for bracket in tree.brackets if bracket[1] < bracket[2])
    if sentence is None:
        return Tree(tuple(tree.words), tuple(tree.tags), brackets)
    return replace(sentence, brackets=brackets)


def _read(
    text: str, where: str, sentence: Tree | None, tagged: bool
) -> tuple[TreeBuilder, str | None]:
    """The tree, and what is wrong with its first constituent without a label or words (None:
    nothing)."""
    tree, flaw = TreeBuilder(), None
    for part in _PART.finditer(text):
        tag, word, label, closing, stray = part.groups()
        if not tree.unclosed and (tree.words or tree.brackets or closing):
            raise FairseqDocError(f"{where}: expected one tree; got {shown(part[0])} outside it")
        if tag is not None:
            place = len(tree.words)
            if sentence is not None and not tagged:
                if tag not in (NO_TAG, *sentence.tags[place : place + 1]):
                    tree.brackets.append((tag, place, place + 1))
            tree.words.append(word)
            tree.tags.append(tag)
        elif label is not None:
            if not label and tree.unclosed:
                flaw = flaw or "a bracket below the root has no label"
            tree.open(label)
        elif closing:
            label, start, end = tree.close()
            if start == end:
                flaw = flaw or f"the bracket {shown(label)} holds no word"
        elif sentence is None or not tree.unclosed:
            raise FairseqDocError(
                f"{where}: expected every word with its tag, (TAG word); got {shown(stray)} alone"
            )
        else:
            tree.words.append(stray)
    return tree, flaw


def read_trees(path: str | os.PathLike) -> Iterator[tuple[int, Tree]]:
    """Yields (number of its first line, :class:`Tree`). Blank lines do not count. Raises
    ``FairseqDocError`` as :func:`parse_tree`, and for a file without trees."""
    for number, text in tree_texts(path):
        yield number, parse_tree(text, f"{path}: line {number}")


def tree_texts(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yields (number of its first line, text) of every tree: it ends where as many brackets are
    closed as opened. Raises ``FairseqDocError`` for other text, a tree that is not closed, a file
    without trees."""
    first, depth = 0, 0
    text: list[str] = []
    for number, line in enumerate(text_lines(path), start=1):
        for piece in re.findall(r"[()]|[^()]+", f"{line}\n"):
            if depth == 0 and piece.isspace():
                continue
            if depth == 0 and piece != "(":
                raise FairseqDocError(
                    f"{path}: line {number}: expected a tree in brackets; got "
                    f"{shown(piece.strip())} outside one"
                )
            first = number if depth == 0 else first
            depth += {"(": 1, ")": -1}.get(piece, 0)
            text.append(piece)
            if depth == 0:
                yield first, "".join(text)
                text = []
    if not first:
        raise FairseqDocError(f"{path}: expected trees in brackets; got an empty file")
    if depth:
        raise FairseqDocError(
            f"{path}: line {first}: the tree that begins here is not closed: expected {depth} more "
            "closing brackets"
        )


def without_traces(tree: Tree) -> Tree:
    """The tree without traces (words tagged -NONE-) and constituents of traces only; it may have no
    words."""
    return with_words(tree, [tag != TRACE for tag in tree.tags])


def with_words(tree: Tree, kept: Sequence[bool]) -> Tree:
    """The tree of the words that are kept, (N,), without constituents that have none of them."""
    before = [0, *accumulate(map(int, kept))]  # words kept before each place
    brackets = ((label, before[start], before[end]) for label, start, end in tree.brackets)
    return Tree(
        tuple(compress(tree.words, kept)),
        tuple(compress(tree.tags, kept)),
        tuple(bracket for bracket in brackets if bracket[1] < bracket[2]),
    )


def without_function_tags(tree: Tree) -> Tree:
    """Cut labels before the first - or = after the first character: NP-SBJ-1 and NP=2 become NP."""
    brackets = tuple((_FUNCTION.sub("", label), s, e) for label, s, e in tree.brackets)
    return replace(tree, brackets=brackets)


def walk(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Yields ("(", label), ("word", index) and (")", label) in the order of the tree's text."""
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
