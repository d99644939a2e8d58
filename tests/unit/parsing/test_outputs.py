"""Outputs of an encoder-decoder as trees; their lists are tested with ``collect-parses``."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.parsing.outputs import repaired, tree_of_output
from fairseq_doc.preparation.symbols import symbols_of, tree_of
from fairseq_doc.preparation.trees import bracketed

from .conftest import read, trees

DOG = read("(TOP (S (NP (DT The) (NN Dog)) (VP (VBZ barks))))")
SOURCE = ["the", "dog", "<unk>"]
LABELS = ("S", "NP", "X-Y", "")
SYMBOLS = st.sampled_from([*(b + label for label in LABELS for b in "()"), "dog", "-LRB-", "<unk>"])


def words_of(symbols):
    return [symbol for symbol in symbols if symbol[0] not in "()"]


@given(st.lists(SYMBOLS))
def test_what_is_repaired_is_well_formed(symbols):
    result = repaired(symbols)
    assert words_of(result) == words_of(symbols)
    assert repaired(result) == result
    assert len(result) - len(words_of(symbols)) <= 2 * sum(s[0] == "(" for s in symbols)
    if words_of(symbols):
        tree = tree_of(result)
        assert symbols_of(tree, str) == result
        given_labels = Counter(s[1:] for s in symbols if s[0] == "(")
        assert Counter(label for label, *_ in tree.brackets[1:]) <= given_labels
    else:
        assert result == []


@given(trees())
def test_what_is_well_formed_is_not_changed(tree):
    symbols = symbols_of(tree, str)
    assert repaired(symbols) == symbols


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
def test_repairs_by_hand(symbols, expected):
    assert repaired(symbols.split()) == expected.split()


@pytest.mark.parametrize(
    "symbols, tree, how",
    [
        ("the dog <unk>", "(TOP (DT The) (NN Dog) (VBZ barks))", "well_formed"),
        ("(S (NP dog the )VP (VP <unk>", "(TOP (S (NP (DT The) (NN Dog)) (VP (VBZ barks))))", "repaired"),
    ],
)  # fmt: skip
def test_an_output_becomes_a_tree_over_the_sentence(symbols, tree, how):
    found, kind = tree_of_output(symbols.split(), SOURCE, DOG)
    assert (bracketed(found), kind) == (tree, how)
