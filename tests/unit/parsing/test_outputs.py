import math
from collections import Counter

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.outputs import candidate_lists, nbest_lines, repaired, tree_of_output
from fairseq_doc.preparation.symbols import symbols_of, tree_of
from fairseq_doc.preparation.trees import bracketed
from fairseq_doc.scoring.generated import GeneratedSentence, Hypothesis

from .conftest import read, trees, write

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
        ("(S (NP the dog )NP (VP <unk> )VP )S", bracketed(DOG), "well_formed"),
        ("(S the dog <unk> )S", "(TOP (S (DT The) (NN Dog) (VBZ barks)))", "well_formed"),
        ("the dog <unk>", "(TOP (DT The) (NN Dog) (VBZ barks))", "well_formed"),
        ("(S (NP the dog )VP (VP <unk>", bracketed(DOG), "repaired"),
        ("(S (NP the dog )NP (VP the )VP )S", bracketed(DOG), "repaired"),
        ("(S (NP dog the )VP (VP <unk>", bracketed(DOG), "repaired"),
        ("(S (NP the dog )NP )S", None, "dropped"),
        ("(S (NP the dog )NP (VP <unk> the )VP )S", None, "dropped"),
        ("", None, "dropped"),
    ],
)
def test_an_output_becomes_a_tree_over_the_sentence(symbols, tree, how):
    found, kind = tree_of_output(symbols.split(), SOURCE, DOG)
    assert (found and bracketed(found), kind) == (tree, how)


def output(source, *hypotheses):
    """A sentence of hypotheses (ln P, symbols)."""
    rows = []
    for log_prob, symbols in hypotheses:
        length = len(symbols.split()) + 1
        parts = (log_prob / math.log(2) / length,) * length
        rows.append(Hypothesis(1, symbols, symbols, parts))
    return GeneratedSentence(tuple(rows), source)


def test_outputs_become_lists_that_can_be_read_again(tmp_path):
    good, unclosed, short = "(S the dog <unk> )S", "(X the dog <unk>", "(S the )S"
    outputs = [
        output("the dog <unk>", (-0.1, short), (-1 / 3, good), (-1e-30, unclosed), (-2.0, good)),
        output("b", (-1.0, ""), (-2.0, "b b")),
        output("c", (-4.0, "c")),
    ]
    sentences = [DOG, read("(NP (NN B))"), read("(NP (VB C))")]
    lists, counts = candidate_lists(outputs, sentences, "out")
    over = "(DT The) (NN Dog) (VBZ barks)"
    expected = [
        [(-1 / 3, f"(TOP (S {over}))"), (-1e-30, f"(TOP (X {over}))"), (-2.0, f"(TOP (S {over}))")],
        [(0.0, "(TOP (S (NN B)))")],  # a flat one
        [(-4.0, "(TOP (VB C))")],
    ]
    assert [[(pytest.approx(p), bracketed(t)) for p, t in row] for row in lists] == expected
    assert +counts == {
        "well_formed": 3, "repaired": 1, "dropped": 3, "flat_trees": 1, "first_well_formed": 1,
        "first_dropped": 2,
    }  # fmt: skip
    lines = list(nbest_lines(lists))
    assert [line for line in lines if "\t" not in line] == ["3 0", "1 1", "1 2"]
    again = read_nbest(write(tmp_path / "n", *lines))
    assert [[(c.score, c.text) for c in own] for own in again] == [
        [(score, bracketed(tree)) for score, tree in row] for row in lists
    ]


TREE = read("(X (NN A))")


@pytest.mark.parametrize(
    "outputs, problem",
    [
        ([output("a", (-1.0, "a"))] * 2, "out: expected outputs for 1 sentences; got 2"),
        ([output("a b", (-1.0, "a"))], "out: sentence 0: expected an S- line of 1 words"),
        ([output(None, (-1.0, "a"))], "out: sentence 0: expected an S- line of 1 words"),
        *(([GeneratedSentence((Hypothesis(7, "a", "a", own),), "a")], "out: line 7: expected a P- line")
          for own in (None, (-1.0,), (-1.0, math.nan))),
    ],
)  # fmt: skip
def test_outputs_of_other_sentences_or_without_scores_are_refused(outputs, problem):
    assert problem in refusal(candidate_lists, outputs, [TREE], "out")
