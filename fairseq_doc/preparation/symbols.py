"""Trees <-> the symbols of a language model (Choe and Charniak, 2016).

``(S (NP the dog )NP (VP barks )VP )S``: opening and closing brackets with their labels, and the words
in lower case, without their tags and without the root's bracket. Rare words are one symbol, or one of
several by their shape.
"""

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.trees import NO_TAG, Tree, walk

UNKNOWN = "<unk>"
SHAPE_MARK = "<unk-"  # how the symbols of shapes begin
RESERVED = ("<s>", "<pad>", "</s>", UNKNOWN)  # a dictionary's own, which are no words
ENDINGS = ("ing", "ed", "ly", "s", "est", "er", "ion", "ory")


def shape(word):
    """The symbol of a rare word by its original form: ``<unk``, then of ``-capital`` (its first
    letter), ``-digit``, ``-hyphen`` and ``-dot`` those that hold, then the first that fits of ``-ing -ed
    -ly -s -est -er -ion -ory -un`` (its beginning) ``-al``, then ``>``.

    The features are Choe and Charniak's (2016); how they combine is decided here.
    """
    lower = word.lower()
    affixes = [ending for ending in ENDINGS if lower.endswith(ending)]
    affixes += ["un"] * lower.startswith("un") + ["al"] * lower.endswith("al")
    features = (
        ("capital", word[0].isupper()),
        ("digit", any(character.isdigit() for character in word)),
        ("hyphen", "-" in word),
        ("dot", "." in word),
        *((affix, True) for affix in affixes[:1]),
    )
    return "-".join((UNKNOWN[:-1], *(name for name, holds in features if holds))) + ">"


class WordSymbols:
    """word -> symbol.

    Args:
        known: container of words in lower case; every other word is rare.
        shapes: rare words are symbols by their shape, not all ``<unk>``.
    """

    def __init__(self, known, shapes=False):
        self.known = known
        self.shapes = shapes

    @classmethod
    def of_dictionary(cls, dictionary):
        """As the text was made from which a dictionary was: its words; shapes where it has any."""
        return cls(dictionary, any(s.startswith(SHAPE_MARK) for s in dictionary.symbols))

    def __call__(self, word):
        lower = word.lower()
        if lower in self.known and lower not in RESERVED:
            return lower
        return shape(word) if self.shapes else UNKNOWN


def symbols_of(tree, word_symbol):
    """The symbols of a tree.

    Args:
        tree: :class:`fairseq_doc.preparation.trees.Tree`.
        word_symbol: word -> symbol, such as :class:`WordSymbols`.

    Returns:
        A list of strings.
    """
    symbols = [
        word_symbol(tree.words[what]) if kind == "word" else f"{kind}{what}"
        for kind, what in walk(tree)
    ]
    return symbols if tree.root is None else symbols[1:-1]


def tree_of(symbols, words=None, tags=None):
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
    own, brackets, open_ = [], [("TOP", 0, None)], []
    for symbol in symbols:
        if symbol[0] == "(":
            open_.append(len(brackets))
            brackets.append((symbol[1:], len(own), None))
        elif symbol[0] == ")":
            index = open_.pop() if open_ else None
            label, start, _ = brackets[index or 0]
            if index is None or label != symbol[1:]:
                expected = "a word or an opening bracket" if index is None else f"){label}"
                raise FairseqDocError(f"expected {expected}; got {symbol}")
            if start == len(own):
                raise FairseqDocError(f"({label} holds no word")
            brackets[index] = (label, start, len(own))
        else:
            own.append(symbol)
    if open_:
        raise FairseqDocError(f"expected ){brackets[open_[-1]][0]}; got the end")
    if not own:
        raise FairseqDocError("expected a word; got none")
    brackets[0] = ("TOP", 0, len(own))
    words = own if words is None else words
    tags = [NO_TAG] * len(own) if tags is None else tags
    for name, given in (("words", words), ("tags", tags)):
        if len(given) != len(own):
            raise FairseqDocError(f"expected {len(own)} {name}; got {len(given)}")
    return Tree(tuple(words), tuple(tags), tuple(brackets))
