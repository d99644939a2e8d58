import math

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.parsing.bracketing import Parameters, compare, summarize
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.reranking import (
    Sentence,
    best_candidates,
    best_trees,
    corpus_f1,
    oracle,
    read_sentences,
    score_candidates,
    scored_lists,
    tune,
)
from fairseq_doc.preparation.trees import parse_tree

from ..conftest import small_dictionary
from ..evaluation.conftest import ProgressSpy
from .lists import (
    DICTIONARY,
    DISTINCT,
    LISTS,
    MODELS,
    SENTENCES,
    SHAPES,
    TEXTS,
    gold_of,
    of_trees,
    symbols,
    tree,
    tree_dictionary,
    write_nbest,
)


@pytest.fixture
def nbest(tmp_path):
    return write_nbest(tmp_path / "dev.nbest", LISTS)


def sentence(own, counts=None):
    """One by hand."""
    counts = None if counts is None else np.array(counts)
    return Sentence(len(own), ["a"] * len(own), ["(S (DT a))"] * len(own), np.array(own), counts)


def by_hand(models=MODELS):
    """ln P of the symbols of each list's trees, one tree after another."""
    texts = [[symbols(w, n) for n in row] for w, row in zip(SENTENCES, DISTINCT, strict=True)]
    return [[s.log_prob for s in score_text(of_trees(*models), t).sentences] for t in texts]


def close(expected):
    return [pytest.approx(row, rel=0, abs=1e-9) for row in expected]


# Reading


def test_candidates_that_differ_in_tags_or_root_alone_are_merged_into_the_first(nbest):
    sentences = read_sentences(nbest, DICTIONARY)
    assert [s.candidates for s in sentences] == [4, 4, 3, 4]
    assert [s.trees for s in sentences] == TEXTS
    assert [s.symbols for s in sentences] == [
        [" ".join(symbols(w, n)) for n in row] for w, row in zip(SENTENCES, DISTINCT, strict=True)
    ]
    assert [s.parser_scores.tolist() for s in sentences] == [
        [-1.0, -2.0, -3.0],
        [-13.0, -10.0, -15.0, -11.0],
        [-4.0],
        [-7.0, -7.0, -7.0],
    ]
    assert all(s.counts is None for s in sentences)


@pytest.mark.parametrize("base", [2, 10, math.e])
def test_scores_of_the_parser_become_natural_logarithms(nbest, base):
    sentences = read_sentences(nbest, DICTIONARY, base)
    assert sentences[0].parser_scores.tolist() == pytest.approx(
        [x * math.log(base) for x in (-1, -2, -3)]
    )


@pytest.mark.parametrize(
    "more, words, expected",
    [
        ((), SENTENCES[2], "the dog saw <unk> <unk> cat with the"),
        (("<unk-capital>", "<unk-ing>"), "the Xx saw the barking", "the <unk-capital> saw the <unk-ing>"),
    ],
)  # fmt: skip
def test_words_in_any_case_are_known_and_others_unknown_or_shapes(tmp_path, more, words, expected):
    path = write_nbest(tmp_path / "a", [[(-1.0, tree(words))]])
    (found,) = read_sentences(path, tree_dictionary(*more))
    assert [s for s in found.symbols[0].split() if s[0] not in "()"] == expected.split()


def test_brackets_are_counted_against_the_gold_trees(nbest):
    gold = gold_of(0, 1, 2, 3)
    sentences = read_sentences(nbest, DICTIONARY, gold=gold, parameters=Parameters())
    assert sentences[0].counts.tolist() == [[3, 4, 3], [4, 4, 4], [2, 4, 3]]
    for one, expected, shapes, words in zip(sentences, gold, DISTINCT, SENTENCES, strict=True):
        found = [compare(expected, parse_tree(tree(words, n), ""), Parameters()) for n in shapes]
        assert one.counts.tolist() == [[r.matched, r.gold, r.test] for r in found]


def test_a_candidate_that_evalb_excludes_counts_nothing(tmp_path):
    """Its tags delete another word, or every word."""
    words = "the dog saw the ."
    first = tree(words, 0, "DT NN VB DT NN")
    other = tree(words, 1, "DT NN VB DT .")
    nothing = tree(words, 2, ".")
    path = write_nbest(tmp_path / "a", [[(-1, other), (-2, first), (-3, nothing)]])
    gold = [parse_tree(first, "")]
    (found,) = read_sentences(path, DICTIONARY, gold=gold, parameters=Parameters())
    assert found.counts.tolist() == [[0, 0, 0], [4, 4, 4], [0, 0, 0]]


OTHER = "a tree over other words than the first candidate of list"


FIRST, SECOND = tree(SENTENCES[0]), tree(SENTENCES[1])


@pytest.mark.parametrize(
    "lists, line, problem",
    [
        (
            [[FIRST, tree("the dog saw the dog")]],
            3,
            f"{OTHER} 1: at word 5 expected 'cat'; got 'dog'",
        ),
        ([[FIRST], [FIRST, SECOND]], 5, f"{OTHER} 2: at word 2 expected 'dog'; got 'cat'"),
        ([[FIRST, "(S (DT the) (NN dog))"]], 3, "at word 3 expected 'saw'; got its end"),
        ([["(S (DT the) (NN dog))", FIRST]], 3, "at word 3 expected its end; got 'saw'"),
        ([[FIRST, "(S (DT the)"]], 3, "the tree is not closed"),
        ([["(())"]], 2, "without words"),
        ([[FIRST], []], 3, "sentence 1 has no candidate"),
    ],
)
def test_an_unusable_candidate_is_named_by_file_and_line(tmp_path, lists, line, problem):
    lists = [[(-1, text) for text in row] for row in lists]
    path = write_nbest(tmp_path / "dev.nbest", lists)
    message = refusal(read_sentences, path, DICTIONARY)
    assert message.startswith(f"{path}: line {line}: ") and problem in message


GOLD = gold_of(0, 0, 0, 0)
OTHERS = [GOLD[0], parse_tree(tree("the cat saw the cat with the dog"), "gold"), *GOLD[2:]]
OF_GOLD = "a tree over other words than gold tree"


@pytest.mark.parametrize(
    "trees, problem",
    [
        ({"gold": OTHERS}, f"line 7: {OF_GOLD} 2: at word 5 expected 'cat'; got 'dog'"),
        *(
            ({"gold": [*GOLD, GOLD[0]][:n]}, f"expected a list for each of {n} gold trees; got 4")
            for n in (1, 3, 5)
        ),
        ({"word_trees": GOLD[:1]}, "line 7: expected lists of 1 sentences; got more"),
    ],
)
def test_trees_of_other_sentences_are_refused(nbest, trees, problem):
    assert refusal(read_sentences, nbest, DICTIONARY, **trees) == f"{nbest}: {problem}"


def test_a_dictionary_without_opening_brackets_is_refused_before_the_list_is_read(tmp_path):
    for more in ("word", "(", ")NP"):
        dictionary = small_dictionary()
        dictionary.add_symbol(more)
        assert "without opening brackets" in refusal(read_sentences, tmp_path / "none", dictionary)


def test_symbols_outside_the_dictionary_are_counted_over_the_distinct_candidates(tmp_path):
    shape = SHAPES[5][0].replace("(VP", "(VX")
    rows = [tree(SENTENCES[0], shape), tree(SENTENCES[0], shape, "YY"), tree(SENTENCES[0], 1)]
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in rows], [(-1, rows[2])]])
    # (VX and )VX of one tree; a rare word is <unk>, which the dictionary has.
    assert [s.unknown for s in read_sentences(path, DICTIONARY)] == [2, 0]
    assert [s.unknown for s in read_sentences(path, tree_dictionary("(VX"))] == [1, 0]


def test_the_first_candidates_root_is_noted(tmp_path):
    rows = [[f"(S1 {tree(SENTENCES[0])})", tree(SENTENCES[0], 1)], [tree(SENTENCES[0])]]
    rows.append([f"( {tree(SENTENCES[0])})"])
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in row] for row in rows])
    assert [s.root for s in read_sentences(path, DICTIONARY)] == ["S1", None, ""]


# Scoring


@pytest.mark.parametrize("models", [MODELS[:1], MODELS], ids=["one model", "an ensemble"])
def test_scores_are_those_of_the_trees_symbols_each_scored_once(nbest, models, calls):
    scores = score_candidates(of_trees(*models), read_sentences(nbest, DICTIONARY))
    assert [row.tolist() for row in scores] == close(by_hand(models=models))
    expected = [symbols(w, n) for w, row in zip(SENTENCES, DISTINCT, strict=True) for n in row]
    assert calls == [expected]


@pytest.mark.parametrize("at_once", [1, 3, 4, 5, 8, 10, 11])
def test_how_many_are_scored_at_once_changes_no_score(nbest, calls, at_once):
    """No sentence's list is cut; they have 3, 4, 1 and 3 candidates."""
    progress = ProgressSpy()
    sentences = read_sentences(nbest, DICTIONARY)
    scores = score_candidates(of_trees(), sentences, at_once, progress=progress)
    assert [row.tolist() for row in scores] == close(by_hand())
    assert all(len(call) < at_once + 4 for call in calls)
    assert {sum(map(len, calls[:n])) for n in range(1, 5)} <= {3, 7, 8, 11}
    assert len(calls) == {1: 4, 11: 1}.get(at_once, len(calls))
    assert progress.seen == [("rerank", len(calls))]


# The best


def test_the_score_is_the_language_models_plus_the_weighted_parsers():
    lm, one = np.array([-10.0, -12.0, -11.0]), sentence([-6.0, -2.0, -5.0])
    assert one.scores(lm, 0.5).tolist() == [-13.0, -13.0, -13.5]
    best = [best_candidates([one], [lm], weight) for weight in (0.0, 0.4, 0.5, 0.6, 9.0)]
    assert best == [[0], [0], [0], [1], [1]]


@given(st.lists(st.tuples(st.integers(-3, 0), st.integers(-3, 0)), min_size=1, max_size=8))
def test_the_first_of_several_best_candidates_wins(numbers):
    lm, own = (np.array(x, dtype=float) for x in zip(*numbers, strict=True))
    scores = [a + 2 * b for a, b in numbers]
    assert best_candidates([sentence(own)] * 2, [lm, lm], 2.0) == [scores.index(max(scores))] * 2


# By hand: two sentences; the right choice is the second candidate of the one and the first of the
# other. The one changes at the weight 2/3, the other at 2.
TWO = [
    sentence([-5.0, -2.0], [[3, 4, 3], [4, 4, 4]]),
    sentence([-4.0, -3.5], [[4, 4, 4], [2, 4, 3]]),
]
TWO_LM = [np.array([-1.0, -3.0]), np.array([-1.0, -2.0])]


def test_f1_is_of_all_brackets_together():
    assert corpus_f1(TWO, [0, 0]) == pytest.approx(100 * 2 * 7 / (8 + 7))
    assert corpus_f1(TWO, [1, 0]) == 100
    assert corpus_f1(TWO, [1, 1]) == pytest.approx(100 * 2 * 6 / (8 + 7))
    assert corpus_f1([sentence([0.0], [[0, 0, 0]])], [0]) == 0


def test_the_weight_with_the_highest_f1_is_found():
    found = tune(TWO, TWO_LM, [0.0, 0.5, 1.0, 2.5])
    assert found["weight"] == 1.0 and list(found["tuning"]) == [0.0, 0.5, 1.0, 2.5]
    assert list(found["tuning"].values()) == pytest.approx([1400 / 15, 1400 / 15, 100, 1200 / 15])
    assert (found["f1"], found["oracle_f1"]) == (100, 100)
    assert (found["parser_f1"], found["lm_f1"]) == pytest.approx((1400 / 15, 1400 / 15))


@pytest.mark.parametrize(
    "weights, best",
    [([0.0, 0.7, 1.0, 1.9, 3.0], 0.7), ([3.0, 1.9, 0.7, 1.0], 0.7), ([0.0, 0.5], 0)],
)
def test_the_smallest_of_the_best_weights_wins(weights, best):
    assert tune(TWO, TWO_LM, weights)["weight"] == best


def test_at_equal_scores_tuning_takes_the_first_candidate_too():
    one = sentence([-1.0, 0.0], [[1, 4, 4], [4, 4, 4]])
    assert tune([one], [np.array([0.0, -1.0])], [1.0])["tuning"] == {1.0: 25.0}


def test_the_oracle_takes_the_first_candidate_of_the_best_f1():
    rows = [[0, 0, 0], [2, 4, 3], [3, 4, 5], [4, 5, 5], [3, 4, 5], [8, 10, 10]]
    assert oracle([sentence([0.0] * 6, rows), TWO[0], TWO[1]]) == [3, 1, 0]
    assert oracle([sentence([0.0, 0.0], [[0, 0, 0], [0, 0, 0]])]) == [0]


def test_figures_are_those_of_evalb_on_the_trees_chosen(nbest):
    gold = gold_of(0, 1, 2, 3)
    sentences = read_sentences(nbest, DICTIONARY, 2, gold, Parameters())
    lm = score_candidates(of_trees(), sentences)
    tuning = tune(sentences, lm, [0.0, 1.0, 20.0])["tuning"]
    for weight, f1 in tuning.items():
        trees = [parse_tree(text, "") for text in best_trees(sentences, lm, weight)]
        results = [compare(g, t, Parameters()) for g, t in zip(gold, trees, strict=True)]
        assert f1 == pytest.approx(summarize(results)["f1"])
    assert len(set(tuning.values())) > 1


# Scored lists


def written(nbest, weight, lm=None):
    """(sentences, ln P, the scored lists in a file)."""
    sentences = read_sentences(nbest, DICTIONARY, 2)
    lm = score_candidates(of_trees(), sentences) if lm is None else lm
    path = nbest.with_name("scored")
    path.write_text("".join(f"{line}\n" for line in scored_lists(sentences, lm, weight)))
    return sentences, lm, path


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_scored_lists_are_n_best_lists_of_the_distinct_candidates_best_first(nbest, weight):
    """To the last bit, and can be reranked."""
    sentences, lm, path = written(nbest, weight)
    expected = []
    for number, (one, of_lm, row) in enumerate(zip(sentences, lm, TEXTS, strict=True)):
        numbers = ((of_lm + weight * one.parser_scores), of_lm, one.parser_scores)
        rows = sorted(zip(*(x.tolist() for x in numbers), row, strict=True), reverse=True)
        expected += [f"{len(row)} {number}", *("\t".join(map(str, values)) for values in rows)]
    assert path.read_text().splitlines() == expected
    best = best_trees(sentences, lm, weight)
    assert [candidates[0].text for candidates in read_nbest(path)] == best
    again = read_sentences(path, DICTIONARY)
    assert best_trees(again, [np.zeros(len(s.trees)) for s in again], 1.0) == best


def test_candidates_of_equal_scores_stay_in_the_lists_order(nbest):
    lm = [np.zeros(n) for n in (3, 4, 1, 3)]
    lm[1][2] = 1.0
    _, _, path = written(nbest, 0.0, lm)
    first, second, _, last = read_nbest(path)
    assert [c.text for c in first] == TEXTS[0]
    assert [c.text for c in second] == [TEXTS[1][n] for n in (2, 0, 1, 3)]
    assert [c.text for c in last] == TEXTS[3]
