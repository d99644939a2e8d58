import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.parsing.nbest import Candidate, read_nbest
from fairseq_doc.parsing.outputs import (
    Output,
    candidate_lists,
    flat_tree,
    nbest_lines,
    read_outputs,
    repaired,
    tree_of_output,
)
from fairseq_doc.preparation.symbols import symbols_of, tree_of
from fairseq_doc.preparation.trees import bracketed

from .conftest import read, refusal, trees, write

DOG = read("(TOP (S (NP (DT The) (NN Dog)) (VP (VBZ barks))))")
SOURCE = ["the", "dog", "<unk>"]
LABELS = ("S", "NP", "X-Y", "")
SYMBOLS = st.sampled_from([*(b + label for label in LABELS for b in "()"), "dog", "-LRB-", "<unk>"])


def block(number, source, *hypotheses):
    """What fairseq-generate prints of one sentence, of (symbols, log-probabilities to base 2)."""
    lines = [f"S-{number}\t{source}", f"T-{number}\t(S x )S"]
    for symbols, scores in hypotheses:
        lines += [f"H-{number}\t-0.5\t{symbols}", f"D-{number}\t-0.5\t{symbols}"]
        lines += [f"P-{number}\t{scores}"]
    return lines


def test_outputs_in_the_order_of_ids(tmp_path):
    lines = [
        "2024 | INFO | fairseq_cli.generate | S-9\tno",
        *block(1, "b c", ("(S b", "-1 -0.5 0")),
    ]
    lines += block(0, "the dog", ("(S the dog )S", "-1.5 -0.25 0 -0.25 0"), ("", "-7"))
    lines += ["Generate test with beam=2: BLEU4 = 1.00", "H-x\t1", " P-0\t1", ""]
    first, second = read_outputs(write(tmp_path / "o", *lines))
    assert first.source == ["the", "dog"] and second.source == ["b", "c"]
    assert [symbols for _, symbols in first.hypotheses] == [["(S", "the", "dog", ")S"], []]
    assert [score for score, _ in first.hypotheses] == pytest.approx(
        [math.log(1 / 4), math.log(2**-7)]
    )
    assert second.hypotheses == [(pytest.approx(math.log(2**-1.5)), ["(S", "b"])]


@pytest.mark.parametrize(
    "lines, told",
    [
        ([], ": expected fairseq-generate's output, with S-, H- and P- lines of every sentence; "),
        (
            block(0, "a", ("a", "-1 0")) + block(0, "a"),
            ": line 6: sentence 0 is there twice; expected",
        ),
        (block(0, "a", ("a", "-1 x")), ": line 5 is damaged; generate again"),
        (block(0, "a", ("a", "-1")), ": line 5 is damaged"),
        (block(0, "a", ("a", "-1 nan")), ": line 5 is damaged"),
        (["S-0\ta", "P-0\t-1 0"], ": line 2 is damaged"),
        (block(0, "a", ("a", "-1 0")) + ["P-0\t-1 0"], ": line 6 is damaged"),
        (block(0, "a", ("a", "-1 0")) + ["H-0\t-1\tb", "H-0\t-1\tc"], ": line 7 is damaged"),
        (["S-0\ta", "H-0\t-1\ta", "P-1\t-1 0"], ": line 3 is damaged"),
        (block(0, "a", ("a", "-1 0")) + ["H-0\t-1\tb"], " is cut off: it lacks the last P- line"),
    ],
)
def test_damaged_output_is_refused(tmp_path, lines, told):
    path = write(tmp_path / "o", *lines)
    assert refusal(read_outputs, path).startswith(f"{path}{told}")


@pytest.mark.parametrize(
    "lines, lacking, first",
    [
        (block(1, "b", ("b", "-1 0")) + block(4, "e", ("e", "-1 0")), 3, 0),
        (block(0, "a", ("a", "-1 0")) + block(1, "b"), 1, 1),
        (block(0, "a", ("a", "-1 0")) + block(2, "b", ("b", "-1 0"))[1:] + ["S-3\tc"], 3, 1),
    ],
)
def test_sentences_that_lack_lines_are_counted(tmp_path, lines, lacking, first):
    message = refusal(read_outputs, write(tmp_path / "o", *lines))
    assert message.endswith(f"; got {lacking} sentences without, first {first}")


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
def test_what_is_well_formed_is_left_alone(tree):
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
        ("(S (NP the dog )NP (VP <unk> )VP )S", bracketed(DOG), "well-formed"),
        ("(S the dog <unk> )S", "(TOP (S (DT The) (NN Dog) (VBZ barks)))", "well-formed"),
        ("the dog <unk>", "(TOP (DT The) (NN Dog) (VBZ barks))", "well-formed"),
        ("(S (NP the dog )VP (VP <unk>", bracketed(DOG), "repaired"),
        ("(S (NP the dog )NP (VP the )VP )S", bracketed(DOG), "repaired"),
        ("(S (NP dog the )VP (VP <unk>", bracketed(DOG), "repaired"),
        ("(S (NP the dog )NP )S", None, "dropped"),
        ("(S (NP the dog )NP (VP <unk> the )VP )S", None, "dropped"),
        ("", None, "dropped"),
    ],
)
def test_an_output_becomes_a_tree_over_the_sentence(symbols, tree, how):
    found, told = tree_of_output(symbols.split(), SOURCE, DOG.words, DOG.tags)
    assert (found and bracketed(found), told) == (tree, how)


def test_outputs_become_lists_that_can_be_read_again(tmp_path):
    good, open_, short = (
        "(S the dog <unk> )S".split(),
        "(X the dog <unk>".split(),
        ["(S", "the", ")S"],
    )
    outputs = [
        Output(SOURCE, [(-0.1, short), (-1 / 3, good), (-1e-30, open_), (-2.0, good)]),
        Output(["b"], [(-1.0, []), (-2.0, ["b", "b"])]),
        Output(["c"], [(-4.0, ["c"])]),
    ]
    sentences = [DOG, read("(NP (NN B))"), read("(NP (VB C))")]
    lists, kinds, firsts = candidate_lists(outputs, sentences, "out")
    over = "(DT The) (NN Dog) (VBZ barks)"
    assert [[(c.score, c.text) for c in candidates] for candidates in lists] == [
        [(-1 / 3, f"(TOP (S {over}))"), (-1e-30, f"(TOP (X {over}))"), (-2.0, f"(TOP (S {over}))")],
        [(0.0, "(TOP (S (NN B)))")],
        [(-4.0, "(TOP (VB C))")],
    ]
    assert kinds == Counter({"well-formed": 3, "repaired": 1, "dropped": 3, "fallback": 1})
    assert firsts == Counter({"well-formed": 1, "dropped": 2})
    lines = list(nbest_lines(lists))
    again = list(read_nbest(write(tmp_path / "n", *lines)))
    assert [[(c.score, c.text) for c in candidates] for candidates in again] == [
        [(c.score, c.text) for c in candidates] for candidates in lists
    ]
    assert [line for line in lines if "\t" not in line] == ["3 0", "1 1", "1 2"]


def test_a_flat_tree_is_an_s_under_the_root():
    assert flat_tree(["a", "b"], ["NN", "VB"]) == read("(TOP (S (NN a) (VB b)))")
    assert candidate_lists([Output(["a"], [(-1.0, [])])], [read("(X (NN A))")], "out")[0] == [
        [Candidate(0.0, "(TOP (S (NN A)))", 0)]
    ]


def test_outputs_of_other_sentences_are_refused():
    outputs = [Output(SOURCE, [(-1.0, [])]), Output(["b"], [(-1.0, [])])]
    told = refusal(candidate_lists, outputs, [DOG], "out")
    assert told == "out: expected outputs of 1 sentences; got 2"
    told = refusal(candidate_lists, outputs, [DOG, read("(S (NN a) (NN b))")], "out")
    assert told == "out: sentence 1: expected 2 words, as its tree has; got 1"
