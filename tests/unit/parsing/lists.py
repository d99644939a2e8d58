"""What the tests of reranking share: small lists of trees, their symbols by hand, and models of them."""

import re
from types import SimpleNamespace

from fairseq.data import Dictionary

from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.preparation.trees import parse_tree

from ..evaluation.conftest import peaked_model

LABELS = ("S", "NP", "VP", "PP")
WORDS = ("the", "dog", "cat", "saw", "with")
# Trees over a sentence's words 0, 1, ...
SHAPES = {
    5: (
        "(S (NP 0 1) (VP 2 (NP 3 4)))",
        "(S (NP 0 1) (VP 2 3 4))",
        "(S (NP 0 1 2) (NP 3 4))",
        "(S 0 1 2 3 4)",
    ),
    8: (
        "(S (NP 0 1) (VP 2 (NP 3 4) (PP 5 (NP 6 7))))",
        "(S (NP 0 1) (VP 2 (NP (NP 3 4) (PP 5 (NP 6 7)))))",
        "(S (NP 0 1) (VP 2 (NP 3 4 (PP 5 (NP 6 7)))))",
        "(S (NP 0 1) (VP 2 (NP 3 4)) (PP 5 (NP 6 7)))",
        "(S (NP 0 1) 2 3 4 5 6 7)",
        "(S (NP 0 1 2 3 4 5 6 7))",
    ),
}
SENTENCES = [
    "the dog saw the cat",
    "the cat saw the dog with the cat",
    "the Dog saw a strange cat with the dog",
    "the cat saw the cat",
]


def tree(words, shape=0, tags="XX"):
    """A tree over a sentence: a shape, or the number of one; a tag for all words or one each."""
    words = words.split()
    length = 8 if len(words) > 5 else 5
    words = words[:length]
    tags = tags.split() if " " in tags else [tags] * length
    shape = SHAPES[length][shape] if isinstance(shape, int) else shape
    return re.sub(r"\d", lambda m: f"({tags[int(m[0])]} {words[int(m[0])]})", shape)


def symbols(words, shape=0):
    """Its symbols, by hand."""
    known = [w.lower() if w.lower() in WORDS else "<unk>" for w in words.split()]
    opened, found = [], []
    for part in re.findall(r"\(\w+|\d|\)", SHAPES[8 if len(known) > 5 else 5][shape]):
        if part == ")":
            found.append(f"){opened.pop()}")
        elif part.startswith("("):
            opened.append(part[1:])
            found.append(part)
        else:
            found.append(known[int(part)])
    return found


def tree_dictionary(*more):
    dictionary = Dictionary()
    for symbol in (*(bracket + label for label in LABELS for bracket in "()"), *WORDS, *more):
        dictionary.add_symbol(symbol)
    return dictionary


DICTIONARY = tree_dictionary()
MODELS = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]


def of_trees(*models, dictionary=DICTIONARY):
    """An ensemble of models of trees' symbols."""
    return Ensemble(models or MODELS, SimpleNamespace(dictionary=dictionary))


def write_nbest(path, lists):
    """An n-best file of lists of (score, tree)."""
    lines = []
    for number, candidates in enumerate(lists):
        lines.append(f"{len(candidates)} {number}")
        lines += [f"{score}\t{text}" for score, text in candidates]
    path.write_text("\n".join(lines) + "\n")
    return path


# Every list has trees that differ in tags or in the root alone.
LISTS = [
    [(-1.0, tree(SENTENCES[0], 1)), (-2.0, tree(SENTENCES[0], 0))]
    + [(-2.5, tree(SENTENCES[0], 1, "YY")), (-3.0, tree(SENTENCES[0], 2))],
    [(-10.0 - n, tree(SENTENCES[1], n)) for n in (3, 0, 5, 1)],
    [(-4.0, f"(TOP {tree(SENTENCES[2], 2)})"), (-4.5, tree(SENTENCES[2], 2))]
    + [(-5.0, f"(S1 {tree(SENTENCES[2], 2, 'DT')})")],
    [(-7.0, tree(SENTENCES[3], n, tag)) for n, tag in ((0, "X"), (1, "X"), (0, "Y"), (3, "Y"))],
]
DISTINCT = [[1, 0, 2], [3, 0, 5, 1], [2], [0, 1, 3]]  # the shapes in these lists
MERGED = [[0, 1, 3], [0, 1, 2, 3], [0], [0, 1, 3]]  # places of those that are kept
TEXTS = [[row[n][1] for n in kept] for row, kept in zip(LISTS, MERGED, strict=True)]


def gold_of(*shapes):
    """Gold trees of the lists above."""
    return [parse_tree(tree(w, n), "gold") for w, n in zip(SENTENCES, shapes, strict=True)]
