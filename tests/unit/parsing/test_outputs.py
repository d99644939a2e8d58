"""Outputs of an encoder-decoder as trees; their lists are tested with ``collect-parses``."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.parsing.outputs import DROPPED, REPAIRED, WELL_FORMED, tree_of_output
from fairseq_doc.preparation.symbols import symbols_of
from fairseq_doc.preparation.trees import Tree

from .conftest import trees

LABELS = ("S", "NP", "X-Y", "")
SYMBOLS = st.sampled_from([*(b + label for label in LABELS for b in "()"), "dog", "-LRB-", "<unk>"])


def collected(symbols):
    """The tree, under the root TOP, and the kind of an output whose words are right."""
    words = [symbol for symbol in symbols if symbol[0] not in "()"]
    return tree_of_output(symbols, words, Tree(tuple(words), ("XX",) * len(words), ()))


@given(st.lists(SYMBOLS))
def test_any_output_with_the_right_words_becomes_a_tree(symbols):
    tree, kind = collected(symbols)
    again = symbols_of(tree, str)
    assert again == symbols if kind == WELL_FORMED else kind == REPAIRED
    assert collected(again) == (tree, WELL_FORMED)
    given_labels = Counter(symbol[1:] for symbol in symbols if symbol[0] == "(")
    assert Counter(label for label, *_ in tree.brackets[1:]) <= given_labels


@given(trees())
def test_nothing_is_lost_but_tags_and_the_root(tree):
    below = tree.brackets if tree.root is None else tree.brackets[1:]
    rooted = Tree(tree.words, tree.tags, (("TOP", 0, len(tree.words)), *below))
    source = ["<unk>"] * len(tree.words)
    hidden = symbols_of(tree, lambda _: "<unk>")
    assert tree_of_output(hidden, source, tree) == (rooted, WELL_FORMED)
    assert tree_of_output([*hidden, "<unk>"], source, tree) == (None, DROPPED)


@pytest.mark.parametrize(
    "symbols, expected",
    [
        ("(S (NP a )VP b )S", "(S (NP a )NP b )S"),  # whatever its label
        ("(S (NP a )S )NP", "(S (NP a )NP )S"),
        (")S a )NP (S b )S )S", "a (S b )S"),
        ("(S (NP a (VP b", "(S (NP a (VP b )VP )NP )S"),
        ("(S (NP (X )X )NP a (VP )VP )S (S", "(S a )S"),
        ("(S (NP )S a )NP", "(S a )S"),
    ],
)
def test_brackets_are_repaired(symbols, expected):
    tree, kind = collected(symbols.split())
    assert (symbols_of(tree, str), kind) == (expected.split(), REPAIRED)
