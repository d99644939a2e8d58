"""Constituency trees in brackets, as the Penn Treebank and parsers write them.

A tree is kept flat, as its words, their tags and its brackets: no depth is too deep, and reading
costs one pass over the text.
"""

import re
from dataclasses import dataclass, replace
from itertools import accumulate, compress

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines

TRACE = "-NONE-"
NO_TAG = "XX"
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


def parse_tree(text, where, allow_empty=False, sentence=None):
    """Read one tree.

    Args:
        text: the tree, on one line or several; its root bracket may lack a label.
        where: what an error begins with, such as ``dev.mrg: line 3``.
        allow_empty: take a tree without words, as parsers write where they fail, ``(())``, and leave out
            constituents without, as EVALB does.
        sentence: the tree of which the words and tags are taken, for trees without tags, or with other
            marks of unknown words: a bracket around a single word is its tag where it is XX or the
            sentence's own, and else a constituent. None: every word has its tag.

    Returns:
        :class:`Tree`.

    Raises:
        FairseqDocError: brackets that do not match, a word without a tag, a constituent without
            words, a label missing below the root, several trees, or not as many words as the sentence's.
    """
    words, tags, brackets, open_ = [], [], [], []
    lacking = None  # told unless the tree has no words at all
    for part in _PART.finditer(text):
        tag, word, label, closing, stray = part.groups()
        if not open_ and (words or brackets):
            raise FairseqDocError(f"{where}: expected one tree; got {part[0]!r} after its end")
        if tag is not None:
            own = sentence is not None and sentence.tags[len(words) : len(words) + 1] != (tag,)
            if own and tag != NO_TAG:
                brackets.append((tag, len(words), len(words) + 1))
            words.append(word)
            tags.append(tag)
        elif label is not None:
            if not label and open_:
                lacking = lacking or "a bracket below the root has no label"
            open_.append(len(brackets))
            brackets.append((label, len(words), None))
        elif closing and open_:
            index = open_.pop()
            label, start, _ = brackets[index]
            if start == len(words):
                lacking = lacking or f"the bracket ({label} ) holds no word"
            brackets[index] = (label, start, len(words))
        elif closing:
            raise FairseqDocError(f"{where}: a bracket is closed that was not opened")
        elif sentence is not None and open_:
            words.append(stray)
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
    if lacking and not allow_empty:
        raise FairseqDocError(f"{where}: {lacking}")
    brackets = tuple(bracket for bracket in brackets if bracket[1] < bracket[2])
    if sentence is None:
        return Tree(tuple(words), tuple(tags), brackets)
    if len(words) != len(sentence.words):
        raise FairseqDocError(
            f"{where}: expected {len(sentence.words)} words, as its sentence has; got {len(words)}"
        )
    return replace(sentence, brackets=brackets)


def read_trees(path):
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


def tree_texts(path):
    """The text of every tree of a file: up to where as many brackets are closed as opened.

    Yields:
        (number of the line in which it begins, text).

    Raises:
        FairseqDocError: text outside brackets, a tree that is not closed, a file without trees.
    """
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
    if begun is None:
        raise FairseqDocError(f"{path}: expected trees in brackets; got an empty file")
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
