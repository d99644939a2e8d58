"""Candidates as symbols of a language model, and their comparison with gold trees."""

import math
import re

import numpy as np
import pytest
from conftest import refusal
from generated_text import write

from fairseq_doc.parsing.bracketing import Parameters, bracketing_f1
from fairseq_doc.parsing.nbest import nbest_lines, parse_lists, read_nbest
from fairseq_doc.parsing.reranking import read_tree_lists, scored_lists
from fairseq_doc.preparation.trees import parse_tree

from ..preparation.conftest import dictionary_of

WORDS = "the dog saw the Cat"
SHAPES = ("(S (NP 0 1) (VP 2 (NP 3 4)))", "(S (NP 0 1) (VP 2 3 4))", "(S (NP 0 1 2) (NP 3 4))")
SYMBOLS = [
    "(S (NP the dog )NP (VP saw (NP the cat )NP )VP )S",
    "(S (NP the dog )NP (VP saw the cat )VP )S",
    "(S (NP the dog saw )NP (NP the cat )NP )S",
]


def tree(shape=0, words=WORDS, tags="XX"):
    """A tree over five words: a shape, or the number of one; a tag for all words or one each."""
    words, tags = words.split(), tags.split() * (1 if " " in tags else 5)
    shape = SHAPES[shape] if isinstance(shape, int) else shape
    return re.sub(r"\d", lambda m: f"({tags[int(m[0])]} {words[int(m[0])]})", shape)


def dictionary_with(*more):
    return dictionary_of(*" ".join(SYMBOLS).split(), *more)


def read(folder, *lists, dictionary=None, **more):
    """The lists of (score, tree), or of trees, from an n-best file."""
    lines = []
    for number, own in enumerate(lists):
        rows = [one if isinstance(one, tuple) else (-1, one) for one in own]
        lines += [f"{len(rows)} {number}", *(f"{score}\t{text}" for score, text in rows)]
    path = write(folder / "dev.nbest", lines)
    parsed = parse_lists(path, read_nbest(path))
    return read_tree_lists(path, parsed, dictionary or dictionary_with(), **more)


def symbols_of(found, dictionary):
    """The symbols of each list's candidates, without the end mark."""
    return [[" ".join(dictionary[i] for i in x[:-1]) for x in own] for own in found.encoded]


def test_candidates_that_differ_in_tags_or_root_alone_are_merged_into_the_first(tmp_path):
    first = [(-1.0, tree(1)), (-2.0, tree(0)), (-2.5, tree(1, tags="YY")), (-3.0, tree(2))]
    second = [(-4.0, f"(TOP {tree(2)})"), (-4.5, tree(2)), (-5.0, f"(S1 {tree(2, tags='DT')})")]
    dictionary = dictionary_with()
    found = read(tmp_path, first, second, [f"( {tree()})"], dictionary=dictionary)
    assert (found.statistics, found.unknown) == ([], 0)
    assert found.roots == {None, "TOP", ""}
    kept = [[tree(1), tree(0), tree(2)], [f"(TOP {tree(2)})"], [f"( {tree()})"]]
    assert [one.texts for one in found.lists] == kept
    expected = [[SYMBOLS[n] for n in row] for row in ((1, 0, 2), (2,), (0,))]
    assert symbols_of(found, dictionary) == expected
    assert [one.first_pass.tolist() for one in found.lists] == [[-1.0, -2.0, -3.0], [-4.0], [-1.0]]
    in_base_2 = read(tmp_path, first, base=2).lists[0].first_pass
    assert in_base_2.tolist() == pytest.approx([x * math.log(2) for x in (-1, -2, -3)])


def test_rare_words_become_the_symbols_of_the_dictionary(tmp_path):
    dictionary = dictionary_with("<unk-capital>", "<unk-ing>")
    found = read(tmp_path, [tree(words="the Xx saw the barking")], dictionary=dictionary)
    ((symbols,),) = symbols_of(found, dictionary)
    words = [symbol for symbol in symbols.split() if symbol[0] not in "()"]
    assert words == "the <unk-capital> saw the <unk-ing>".split()


def test_symbols_outside_the_dictionary_are_counted_over_the_distinct_candidates(tmp_path):
    shape = SHAPES[0].replace("(VP", "(VX")
    rows = [tree(shape, "a dog saw a cat"), tree(shape, "a dog saw a cat", "YY")]
    assert read(tmp_path, rows).unknown == 2  # (VX and )VX; a rare word is <unk>
    assert read(tmp_path, rows, dictionary=dictionary_with("(VX")).unknown == 1


def test_candidates_are_compared_with_the_gold_trees_as_by_evalb(tmp_path):
    """A candidate counts nothing whose tags delete another word or every word, or a failure."""
    words = "the dog saw the ."
    right, gold_text = "DT NN VB DT NN", tree(0, words, "DT NN VB DT NN")
    rows = [tree(1, words, "DT NN VB DT ."), gold_text, tree(2, words, "."), "(())"]
    gold, metric = parse_tree(gold_text, ""), bracketing_f1(Parameters())
    lists = (rows, [tree(1, words, right)])
    found = read(tmp_path, *lists, metric=metric, gold=[gold, gold])
    nothing = [0, 0, 0, True]
    expected = [[nothing, [4, 4, 4, False], nothing, nothing], [[3, 4, 3, False]]]
    assert [own.tolist() for own in found.statistics] == expected
    assert found.encoded[0][3] == [] and found.lists[0].texts[3] == "(())"
    assert metric.value(found.statistics[1][0]) == pytest.approx(100 * 2 * 3 / 7)


OTHER = tree(words="the cat saw the dog")
SHORT = "(S (DT the) (NN dog))"
GOLD = [parse_tree(tree(), ""), parse_tree(OTHER, "")]


@pytest.mark.parametrize(
    "lists, gold, line, problem",
    [
        ([[tree(), tree(words="the dog saw the dog")]], None, 3, "list 1 from word 5 on"),
        ([[tree()], [tree(), OTHER]], None, 5, "list 2 from word 2 on"),
        ([[SHORT, tree()]], None, 3, "from word 3 on"),
        ([["(())", tree(), OTHER]], None, 4, "list 1 from word 2 on"),
        ([[tree()], [tree()]], GOLD, 4, "gold tree 2 from word 2 on"),
    ],
)
def test_an_unusable_candidate_is_named_by_file_and_line(tmp_path, lists, gold, line, problem):
    message = refusal(read, tmp_path, *lists, gold=gold)
    assert f"dev.nbest: line {line}: " in message and problem in message


@pytest.mark.parametrize("more", ["word", "(", ")NP"])
def test_a_dictionary_without_opening_brackets_is_refused(tmp_path, more):
    message = refusal(read, tmp_path, [tree()], dictionary=dictionary_of(more))
    assert "without opening brackets" in message


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_scored_lists_are_n_best_lists_best_first(tmp_path, weight):
    """To the last bit; equal scores stay in the list's order."""
    rows = [[(-1.0, tree(1)), (-2.0, tree(0)), (-3.0, tree(2))], [(-7, tree(n)) for n in range(3)]]
    lists = read(tmp_path, *rows, base=2).lists
    log_probs = [np.array(row, float) / 3 for row in ([-9, -8, -9], [-2, -2, -2])]
    lines = list(nbest_lines(scored_lists(lists, log_probs, weight)))
    expected = []
    for number, (one, own) in enumerate(zip(lists, log_probs, strict=True)):
        scores = (own + weight * one.first_pass).tolist()
        numbered = zip(scores, own.tolist(), one.first_pass.tolist(), one.texts, strict=True)
        ordered = sorted(numbered, key=lambda row: -row[0])
        expected += [f"3 {number}", *("\t".join(map(str, row)) for row in ordered)]
    assert lines == expected
