import math

import numpy as np
import pytest
from conftest import refusal

from fairseq_doc.parsing.bracketing import EXCLUDED, Parameters, bracketing_f1, compare
from fairseq_doc.parsing.reranking import read_tree_lists, scored_lines
from fairseq_doc.preparation.trees import parse_tree

from ..conftest import small_dictionary
from .conftest import write
from .lists import (
    DICTIONARY,
    DISTINCT,
    LISTS,
    SENTENCES,
    SHAPES,
    TEXTS,
    gold_of,
    symbols,
    tree,
    tree_dictionary,
    write_nbest,
)


@pytest.fixture
def nbest(tmp_path):
    return write_nbest(tmp_path / "dev.nbest", LISTS)


def words_of(found):
    """The symbols of the candidates."""
    return [[[DICTIONARY[i] for i in x[:-1]] for x in sequences] for sequences in found.encoded]


def test_candidates_that_differ_in_tags_or_root_alone_are_merged_into_the_first(nbest):
    found = read_tree_lists(nbest, DICTIONARY)
    assert found.candidates == sum(map(len, LISTS)) and found.statistics == []
    assert [one.texts for one in found.lists] == TEXTS
    expected = [[symbols(w, n) for n in row] for w, row in zip(SENTENCES, DISTINCT, strict=True)]
    assert words_of(found) == expected
    scores = [[-1.0, -2.0, -3.0], [-13.0, -10.0, -15.0, -11.0], [-4.0], [-7.0, -7.0, -7.0]]
    assert [one.first_pass.tolist() for one in found.lists] == scores
    in_base_2 = read_tree_lists(nbest, DICTIONARY, 2).lists[0].first_pass
    assert in_base_2.tolist() == pytest.approx([x * math.log(2) for x in scores[0]])


@pytest.mark.parametrize(
    "more, words, expected",
    [
        ((), SENTENCES[2], "the dog saw <unk> <unk> cat with the"),
        (("<unk-capital>", "<unk-ing>"), "the Xx saw the barking", "the <unk-capital> saw the <unk-ing>"),
    ],
)  # fmt: skip
def test_words_in_any_case_are_known_and_others_unknown_or_shapes(tmp_path, more, words, expected):
    path, dictionary = write_nbest(tmp_path / "a", [[(-1.0, tree(words))]]), tree_dictionary(*more)
    ((found,),) = read_tree_lists(path, dictionary).encoded
    symbols = [dictionary[index] for index in found[:-1]]
    assert [s for s in symbols if s[0] not in "()"] == expected.split()


def test_brackets_are_counted_against_the_gold_trees(nbest):
    gold, metric = gold_of(0, 1, 2, 3), bracketing_f1(Parameters())
    found = read_tree_lists(nbest, DICTIONARY, metric=metric, gold=gold).statistics
    assert found[0].tolist() == [[3, 4, 3, 0], [4, 4, 4, 0], [2, 4, 3, 0]]
    for rows, expected, shapes, words in zip(found, gold, DISTINCT, SENTENCES, strict=True):
        of = [compare(expected, parse_tree(tree(words, n), ""), Parameters()) for n in shapes]
        assert rows[:, :3].tolist() == [[r.matched, r.gold, r.test] for r in of]
    assert metric.value(found[0].sum(0)) == pytest.approx(100 * 2 * 9 / 22)


def test_a_candidate_that_evalb_excludes_counts_nothing(tmp_path):
    """Its tags delete another word, or every word; or the parser failed."""
    words = "the dog saw the ."
    first = tree(words, 0, "DT NN VB DT NN")
    other = tree(words, 1, "DT NN VB DT .")
    rows = [(-1, other), (-2, first), (-3, tree(words, 2, ".")), (-4, "(())")]
    path, gold = write_nbest(tmp_path / "a", [rows]), [parse_tree(first, "")]
    found = read_tree_lists(path, DICTIONARY, metric=bracketing_f1(Parameters()), gold=gold)
    assert found.statistics[0][:, :EXCLUDED].tolist() == [
        [0, 0, 0],
        [4, 4, 4],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert found.statistics[0][:, EXCLUDED].tolist() == [1, 0, 1, 1]
    assert found.encoded[0][3] == [] and found.lists[0].texts[3] == "(())"


FIRST, SECOND = tree(SENTENCES[0]), tree(SENTENCES[1])


@pytest.mark.parametrize(
    "lists, line, problem",
    [
        ([[FIRST, tree("the dog saw the dog")]], 3, "list 1: at word 5 expected 'cat'; got 'dog'"),
        ([[FIRST], [FIRST, SECOND]], 5, "list 2: at word 2 expected 'dog'; got 'cat'"),
        ([[FIRST, "(S (DT the) (NN dog))"]], 3, "at word 3 expected 'saw'; got its end"),
        ([["(S (DT the) (NN dog))", FIRST]], 3, "at word 3 expected its end; got 'saw'"),
        ([["(())", FIRST, SECOND]], 4, "list 1: at word 2 expected 'dog'; got 'cat'"),
        ([[FIRST, "(S (DT the)"]], 3, "the tree is not closed"),
    ],
)
def test_an_unusable_candidate_is_named_by_file_and_line(tmp_path, lists, line, problem):
    lists = [[(-1, text) for text in row] for row in lists]
    path = write_nbest(tmp_path / "dev.nbest", lists)
    message = refusal(read_tree_lists, path, DICTIONARY)
    assert message.startswith(f"{path}: line {line}: ") and problem in message


OF_LISTS = gold_of(0, 0, 0, 0)
OTHERS = [OF_LISTS[0], parse_tree(tree("the cat saw the cat with the dog"), ""), *OF_LISTS[2:]]


@pytest.mark.parametrize(
    "others, problem",
    [
        ({"gold": OTHERS}, "gold tree 2: at word 5 expected 'cat'"),
        *(({"gold": [*OF_LISTS, OF_LISTS[0]][:n]}, f"of {n} gold trees; got 4") for n in (1, 3, 5)),
        ({"sentences": OF_LISTS[:1]}, "line 7: expected lists for 1 sentences; got more"),
    ],
)  # fmt: skip
def test_trees_of_other_sentences_are_refused(nbest, others, problem):
    assert problem in refusal(read_tree_lists, nbest, DICTIONARY, **others)


def test_a_dictionary_without_opening_brackets_is_refused_before_the_list_is_read(tmp_path):
    for more in ("word", "(", ")NP"):
        dictionary = small_dictionary()
        dictionary.add_symbol(more)
        assert "without opening brackets" in refusal(read_tree_lists, tmp_path / "n", dictionary)


def test_symbols_outside_the_dictionary_are_counted_over_the_distinct_candidates(tmp_path):
    shape = SHAPES[5][0].replace("(VP", "(VX")
    rows = [tree(SENTENCES[0], shape), tree(SENTENCES[0], shape, "YY"), tree(SENTENCES[0], 1)]
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in rows], [(-1, rows[2])]])
    # (VX and )VX of one tree; a rare word is <unk>, which the dictionary has.
    assert read_tree_lists(path, DICTIONARY).unknown == 2
    assert read_tree_lists(path, tree_dictionary("(VX")).unknown == 1


def test_the_first_candidates_roots_are_noted(tmp_path):
    rows = [[f"(S1 {tree(SENTENCES[0])})", f"(TOP {tree(SENTENCES[0], 1)})"], [tree(SENTENCES[0])]]
    rows.append([f"( {tree(SENTENCES[0])})"])
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in row] for row in rows])
    assert read_tree_lists(path, DICTIONARY).roots == {"S1", None, ""}


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_scored_lists_are_n_best_lists_best_first(nbest, weight):
    """To the last bit, and can be read again; equal scores stay in the list's order."""
    lists = read_tree_lists(nbest, DICTIONARY, 2).lists
    log_probs = [
        np.array(row, float) / 3 for row in ([-9, -8, -9], [-7, -5, -7, -6], [-1], [-2, -2, -2])
    ]
    path = write(nbest.with_name("scored"), *scored_lines(lists, log_probs, weight))
    expected = []
    for number, (one, own) in enumerate(zip(lists, log_probs, strict=True)):
        scores = (own + weight * one.first_pass).tolist()
        rows = zip(scores, own.tolist(), one.first_pass.tolist(), one.texts, strict=True)
        rows = sorted(rows, key=lambda row: -row[0])
        expected += [f"{len(rows)} {number}", *("\t".join(map(str, row)) for row in rows)]
    assert path.read_text().splitlines() == expected
    again = read_tree_lists(path, DICTIONARY).lists
    assert [one.first_pass.argmax() for one in again] == [0, 0, 0, 0]
