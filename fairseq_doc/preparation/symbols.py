"""Linearised trees: the symbols of a language model (Choe and Charniak, 2016).

``(S (NP the dog )NP (VP barks )VP )S``: labelled brackets and lower-case words, without tags and
without the root's bracket. Rare words are ``<unk>``, or a symbol for their shape.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairseq_doc.preparation.tokenization import RESERVED, UNKNOWN
from fairseq_doc.preparation.trees import Tree, walk

if TYPE_CHECKING:
    from fairseq.data import Dictionary

SPECIAL = (*RESERVED, UNKNOWN)  # a dictionary's own symbols
SHAPE_MARK = "<unk-"  # how the symbols of shapes begin
ENDINGS = ("ing", "ed", "ly", "s", "est", "er", "ion", "ory")


def shape(word: str) -> str:
    """The symbol of a rare word by its original form: ``<unk``, each of ``-capital`` (the first
    letter), ``-digit``, ``-hyphen`` and ``-dot`` that applies, the first matching affix, ``>``.

    The features are Choe and Charniak's (2016); how they combine is our choice.
    """
    lower = word.lower()
    features = {
        "capital": word[0].isupper(),
        "digit": any(character.isdigit() for character in word),
        "hyphen": "-" in word,
        "dot": "." in word,
    }
    affixes = {ending: lower.endswith(ending) for ending in ENDINGS}
    affixes |= {"un": lower.startswith("un"), "al": lower.endswith("al")}
    held = [name for name, holds in features.items() if holds]
    held += [name for name, holds in affixes.items() if holds][:1]
    return "-".join([UNKNOWN.removesuffix(">"), *held]) + ">"


@dataclass(frozen=True)
class WordSymbols:
    """Word -> symbol; words outside ``known``, which are in lower case, are rare."""

    known: Container[str]
    shapes: bool = False

    @classmethod
    def of_dictionary(cls, dictionary: "Dictionary") -> "WordSymbols":
        """The symbols of the text that a dictionary was made from."""
        return cls(dictionary, any(s.startswith(SHAPE_MARK) for s in dictionary.symbols))

    def __call__(self, word: str) -> str:
        lower = word.lower()
        if lower in self.known and lower not in SPECIAL:
            return lower
        return shape(word) if self.shapes else UNKNOWN


def symbols_of(tree: Tree, word_symbol: Callable[[str], str]) -> list[str]:
    """The symbols of a tree; ``word_symbol``: word -> symbol, as :class:`WordSymbols`."""
    symbols = [
        word_symbol(tree.words[what]) if kind == "word" else f"{kind}{what}"
        for kind, what in walk(tree)
    ]
    return symbols if tree.root is None else symbols[1:-1]
