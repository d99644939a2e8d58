"""Trees <-> the symbols of a language model (Choe and Charniak, 2016).

``(S (NP the dog )NP (VP barks )VP )S``: opening and closing brackets with their labels, and the words
in lower case, without their tags and without the root's bracket. Rare words are one symbol, or one of
several by their shape.
"""

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.tokenization import RESERVED, UNKNOWN
from fairseq_doc.preparation.trees import NO_TAG, Bracket, Tree, walk

if TYPE_CHECKING:
    from fairseq.data import Dictionary

SHAPE_MARK = "<unk-"  # how the symbols of shapes begin
ENDINGS = ("ing", "ed", "ly", "s", "est", "er", "ion", "ory")


def is_reserved(word: str) -> bool:
    """Whether a dictionary has the word as a symbol of its own, so that it is no word of a tree."""
    return word in RESERVED or word == UNKNOWN


def shape(word: str) -> str:
    """The symbol of a rare word by its original form.

    It is ``<unk``, then of ``-capital`` (its first letter), ``-digit``, ``-hyphen`` and ``-dot`` those
    that hold, then the first that fits of ``-ing -ed -ly -s -est -er -ion -ory -un`` (its beginning)
    ``-al``, then ``>``. The features are Choe and Charniak's (2016); how they combine is decided here.
    """
    parts = [UNKNOWN.removesuffix(">")]
    if word[0].isupper():
        parts.append("capital")
    if any(character.isdigit() for character in word):
        parts.append("digit")
    if "-" in word:
        parts.append("hyphen")
    if "." in word:
        parts.append("dot")
    affix = _affix(word.lower())
    if affix is not None:
        parts.append(affix)
    return "-".join(parts) + ">"


def _affix(word: str) -> str | None:
    """The first of the affixes that a word in lower case has."""
    for ending in ENDINGS:
        if word.endswith(ending):
            return ending
    if word.startswith("un"):
        return "un"
    if word.endswith("al"):
        return "al"
    return None


class WordSymbols:
    """word -> symbol.

    Args:
        known: container of words in lower case; every other word is rare.
        shapes: rare words are symbols by their shape, not all ``<unk>``.
    """

    def __init__(self, known: Container[str], shapes: bool = False) -> None:
        self.known = known
        self.shapes = shapes

    @classmethod
    def of_dictionary(cls, dictionary: "Dictionary") -> "WordSymbols":
        """The symbols of the text that a dictionary was made from: its words are known, and rare words
        have shapes where it holds any."""
        return cls(dictionary, any(s.startswith(SHAPE_MARK) for s in dictionary.symbols))

    def __call__(self, word: str) -> str:
        lower = word.lower()
        if lower in self.known and not is_reserved(lower):
            return lower
        return shape(word) if self.shapes else UNKNOWN


def symbols_of(tree: Tree, word_symbol: Callable[[str], str]) -> list[str]:
    """The symbols of a tree.

    Args:
        tree: :class:`fairseq_doc.preparation.trees.Tree`.
        word_symbol: word -> symbol, such as :class:`WordSymbols`.

    Returns:
        A list of strings.
    """
    symbols = []
    for kind, what in walk(tree):
        if kind == "word":
            symbols.append(word_symbol(tree.words[what]))
        else:
            symbols.append(f"{kind}{what}")
    return symbols if tree.root is None else symbols[1:-1]


def tree_of(
    symbols: Sequence[str],
    words: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
) -> Tree:
    """The tree of symbols, under a root TOP.

    Args:
        symbols: strings, see above.
        words: take the place of the symbols' own.
        tags: of the words; XX without them.

    Returns:
        :class:`fairseq_doc.preparation.trees.Tree`.

    Raises:
        FairseqDocError: brackets that do not match, one without words, no words, or another number of
            words or tags.
    """
    own, brackets = _parse(symbols)
    words = own if words is None else words
    tags = [NO_TAG] * len(own) if tags is None else tags
    for name, given in (("words", words), ("tags", tags)):
        if len(given) != len(own):
            raise FairseqDocError(f"expected {len(own)} {name}; got {len(given)}")
    return Tree(tuple(words), tuple(tags), (("TOP", 0, len(own)), *brackets))


def _parse(symbols: Sequence[str]) -> tuple[list[str], list[Bracket]]:
    """The words of symbols, and their brackets in the order in which they open."""
    words: list[str] = []
    brackets: list[Bracket] = []
    unclosed: list[int] = []  # places in brackets, from the outermost
    for symbol in symbols:
        if symbol[0] == "(":
            unclosed.append(len(brackets))
            brackets.append((symbol[1:], len(words), len(words)))
        elif symbol[0] == ")":
            if not unclosed:
                raise FairseqDocError(f"expected a word or an opening bracket; got {symbol}")
            place = unclosed.pop()
            label, start, _ = brackets[place]
            if label != symbol[1:]:
                raise FairseqDocError(f"expected ){label}; got {symbol}")
            if start == len(words):
                raise FairseqDocError(f"({label} holds no word")
            brackets[place] = (label, start, len(words))
        else:
            words.append(symbol)
    if unclosed:
        raise FairseqDocError(f"expected ){brackets[unclosed[-1]][0]}; got the end")
    if not words:
        raise FairseqDocError("expected a word; got none")
    return words, brackets
