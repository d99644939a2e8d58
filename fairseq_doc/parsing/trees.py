"""Constituency trees in brackets, as the Penn Treebank and parsers write them.

A tree is kept flat, as its words, their tags and its brackets: no depth is too deep, and reading
costs one pass over the text.
"""

import re
from dataclasses import dataclass, replace
from itertools import accumulate, compress

from fairseq_doc.data.text import text_lines
from fairseq_doc.errors import FairseqDocError

TRACE = "-NONE-"
ROOTS = ("", "TOP", "S1", "ROOT")
# A tag with its word; an opening bracket with its label; a closing bracket; anything else.
_PART = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII)
_BRACKET = re.compile(r"[()]")
_FUNCTION = re.compile(r"(?<=.)[-=].*")


@dataclass(frozen=True)
class Tree:
    """A constituency tree.

    Attributes:
        words: its N words, from the left.
        tags: a part-of-speech tag a word.
        brackets: (label, start, end) of every constituent above the tags, over words start..end - 1,
            in the order in which they open, so a unary chain from the top.
    """

    words: tuple
    tags: tuple
    brackets: tuple

    @property
    def root(self):
        """The label of the outermost bracket where it is a mere root, one of ``ROOTS``; else None."""
        label = self.brackets[0][0] if self.brackets else None
        return label if label in ROOTS else None


EMPTY = Tree((), (), ())  # a parser's failure


def parse_tree(text, where, allow_empty=False):
    """Read one tree.

    Args:
        text: the tree, on one line or several; its root bracket may lack a label.
        where: what an error begins with, such as ``dev.mrg: line 3``.
        allow_empty: take a tree without words, as parsers write where they fail: ``(())``.

    Returns:
        :class:`Tree`.

    Raises:
        FairseqDocError: brackets that do not match, a word without a tag, a constituent without
            words, a label missing below the root, or several trees.
    """
    words, tags, brackets, open_ = [], [], [], []
    for part in _PART.finditer(text):
        tag, word, label, closing, stray = part.groups()
        if not open_ and (words or brackets):
            raise FairseqDocError(f"{where}: expected one tree; got {part[0]!r} after its end")
        if tag is not None:
            words.append(word)
            tags.append(tag)
        elif label is not None:
            if not label and open_ and not allow_empty:
                raise FairseqDocError(f"{where}: a bracket below the root has no label")
            open_.append(len(brackets))
            brackets.append((label, len(words), None))
        elif closing and open_:
            index = open_.pop()
            label, start, _ = brackets[index]
            if start == len(words) and not allow_empty:
                raise FairseqDocError(f"{where}: the bracket ({label} ) holds no word")
            brackets[index] = (label, start, len(words))
        elif closing:
            raise FairseqDocError(f"{where}: a bracket is closed that was not opened")
        else:
            raise FairseqDocError(
                f"{where}: expected every word with its tag, (TAG word); got {stray!r} alone"
            )
    if open_:
        raise FairseqDocError(
            f"{where}: the tree is not closed: expected {len(open_)} more closing brackets"
        )
    if not words:
        if allow_empty:
            return EMPTY
        raise FairseqDocError(f"{where}: expected a tree; got one without words")
    return Tree(tuple(words), tuple(tags), tuple(b for b in brackets if b[1] < b[2]))


def read_trees(path, allow_empty=False):
    """Read trees, each on a line or spread over several; blank lines do not count.

    Args:
        path: file, compressed by gzip or not.
        allow_empty: see :func:`parse_tree`.

    Yields:
        (number of the line in which it begins, :class:`Tree`).

    Raises:
        FairseqDocError: as :func:`parse_tree`, with file and line; a file without trees.
    """
    found = False
    for number, text in _tree_texts(path):
        found = True
        yield number, parse_tree(text, f"{path}: line {number}", allow_empty)
    if not found:
        raise FairseqDocError(f"{path}: expected trees in brackets; got an empty file")


def _tree_texts(path):
    """(line, text) of every tree: the text up to where as many brackets are closed as opened."""
    begun, lines, depth = None, [], 0
    for number, line in enumerate(text_lines(path), start=1):
        line = line.removeprefix("\ufeff") if number == 1 else line  # a byte order mark
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
                lines, start = [], bracket.end()
        if depth:
            lines.append(line[start:])
        elif line[start:].strip():
            raise FairseqDocError(
                f"{path}: line {number}: expected a tree in brackets; got "
                f"{line[start:].strip()[:40]!r} outside one"
            )
    if depth:
        raise FairseqDocError(
            f"{path}: line {begun}: the tree that begins here is not closed: expected {depth} more "
            "closing brackets"
        )


def without_traces(tree):
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


def without_function_tags(tree):
    """The tree with labels up to their first - or =, but for one that begins them: NP-SBJ-1 and NP=2
    become NP."""
    brackets = tuple((_FUNCTION.sub("", label), s, e) for label, s, e in tree.brackets)
    return replace(tree, brackets=brackets)


def walk(tree):
    """What the text of the tree holds in its order: ("(", label), ("word", index), (")", label)."""
    brackets = iter((*tree.brackets, (None, None, None)))
    coming = next(brackets)
    open_ = []
    for index in range(len(tree.words)):
        while coming[1] == index:
            yield "(", coming[0]
            open_.append(coming)
            coming = next(brackets)
        yield "word", index
        while open_ and open_[-1][2] == index + 1:
            yield ")", open_.pop()[0]


def bracketed(tree):
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
