import gzip
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.parsing import reranking
from fairseq_doc.parsing.bracketing import Parameters, compare, summarize
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.reranking import (
    KeptScores,
    Sentence,
    best_candidates,
    best_trees,
    check_dictionary,
    corpus_f1,
    oracle,
    read_sentences,
    score_candidates,
    scored_lists,
    tune,
)
from fairseq_doc.preparation.trees import parse_tree

from ..conftest import small_dictionary
from ..evaluation.conftest import peaked_model

LABELS = ("S", "NP", "VP", "PP")
WORDS = ("the", "dog", "cat", "saw", "with")
STAMP = {"sha256": ["a", "b"], "max_candidates": 4}

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
    shape = SHAPES[8 if len(known) > 5 else 5][shape]
    parts = re.findall(r"\(\w+|\d|\)", shape)
    open_, found = [], []
    for part in parts:
        if part == ")":
            found.append(f"){open_.pop()}")
        elif part.startswith("("):
            open_.append(part[1:])
            found.append(part)
        else:
            found.append(known[int(part)])
    return found


def tree_dictionary(*more):
    dictionary = Dictionary()
    for label in LABELS:
        dictionary.add_symbol(f"({label}")
        dictionary.add_symbol(f"){label}")
    for word in (*WORDS, *more):
        dictionary.add_symbol(word)
    return dictionary


DICTIONARY = tree_dictionary()
MODELS = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]


def of_trees(*models):
    return Ensemble(models or MODELS, SimpleNamespace(dictionary=DICTIONARY))


def write_nbest(path, lists):
    """An n-best file of lists of (score, tree)."""
    lines = []
    for number, candidates in enumerate(lists):
        lines.append(f"{len(candidates)} {number}")
        lines += [f"{score}\t{text}" for score, text in candidates]
    path.write_text("\n".join(lines) + "\n")
    return path


# In every list trees that differ in tags or in the root alone.
LISTS = [
    [(-1.0, tree(SENTENCES[0], 1)), (-2.0, tree(SENTENCES[0], 0))]
    + [(-2.5, tree(SENTENCES[0], 1, "YY")), (-3.0, tree(SENTENCES[0], 2))],
    [(-10.0 - n, tree(SENTENCES[1], n)) for n in (3, 0, 5, 1)],
    [(-4.0, f"(TOP {tree(SENTENCES[2], 2)})"), (-4.5, tree(SENTENCES[2], 2))]
    + [(-5.0, f"(S1 {tree(SENTENCES[2], 2, 'DT')})")],
    [(-7.0, tree(SENTENCES[3], n, tag)) for n, tag in ((0, "X"), (1, "X"), (0, "Y"), (3, "Y"))],
]
DISTINCT = [[1, 0, 2], [3, 0, 5, 1], [2], [0, 1, 3]]  # the shapes in these lists
LINES = [[2, 3, 5], [7, 8, 9, 10], [12], [16, 17, 19]]
KEPT = [[0, 1, 3], [0, 1, 2, 3], [0], [0, 1, 3]]
TEXTS = [[row[n][1] for n in kept] for row, kept in zip(LISTS, KEPT, strict=True)]


@pytest.fixture
def nbest(tmp_path):
    return write_nbest(tmp_path / "dev.nbest", LISTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lists")


@pytest.fixture
def asked(monkeypatch):
    """What the model was asked for, a list of symbols' lists a call."""
    calls = []
    original = reranking.score_prefix_tree

    def noting(ensemble, sentences):
        calls.append(sentences)
        return original(ensemble, sentences)

    monkeypatch.setattr(reranking, "score_prefix_tree", noting)
    return calls


def gold_of(*shapes):
    """Gold trees of the lists above."""
    return [parse_tree(tree(w, n), "gold") for w, n in zip(SENTENCES, shapes, strict=True)]


def sentence(own, counts=None):
    """One by hand, its trees on lines 1, 2, ..."""
    counts = None if counts is None else np.array(counts)
    return Sentence(len(own), np.arange(1, len(own) + 1), np.array(own), counts)


def by_hand(shapes=DISTINCT, models=MODELS):
    """ln P of the symbols of each list's trees, one tree after another."""
    texts = [[symbols(w, n) for n in row] for w, row in zip(SENTENCES, shapes, strict=True)]
    return [[s.log_prob for s in score_text(of_trees(*models), t).sentences] for t in texts]


def close(expected):
    return [pytest.approx(row, rel=0, abs=1e-9) for row in expected]


# Reading


def test_candidates_that_differ_in_tags_or_root_alone_are_one_with_the_first_ones_line_and_score(
    nbest,
):
    sentences = read_sentences(nbest, DICTIONARY)
    assert [s.candidates for s in sentences] == [4, 4, 3, 4]
    assert [s.lines.tolist() for s in sentences] == LINES
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


def test_words_in_any_case_are_those_of_the_dictionary_and_others_unknown(nbest, asked):
    score_candidates(of_trees(), nbest, read_sentences(nbest, DICTIONARY), 1)
    words = [symbol for symbol in asked[2][0] if symbol[0] not in "()"]
    assert words == "the dog saw <unk> <unk> cat with the".split()


def test_rare_words_are_shapes_where_the_dictionary_has_some(tmp_path, asked):
    dictionary = tree_dictionary("<unk-capital>", "<unk-ing>")
    path = write_nbest(tmp_path / "a", [[(-1.0, tree("the Xx saw the barking"))]])
    it = Ensemble([peaked_model(dictionary=dictionary)], SimpleNamespace(dictionary=dictionary))
    score_candidates(it, path, read_sentences(path, dictionary))
    words = [symbol for symbol in asked[0][0] if symbol[0] not in "()"]
    assert words == ["the", "<unk-capital>", "saw", "the", "<unk-ing>"]


def test_brackets_are_counted_against_the_gold_trees(nbest):
    gold = gold_of(0, 1, 2, 3)
    sentences = read_sentences(nbest, DICTIONARY, gold=gold, parameters=Parameters())
    assert sentences[0].counts.tolist() == [[3, 4, 3], [4, 4, 4], [2, 4, 3]]
    for one, expected, shapes, words in zip(sentences, gold, DISTINCT, SENTENCES, strict=True):
        found = [compare(expected, parse_tree(tree(words, n), ""), Parameters()) for n in shapes]
        assert one.counts.tolist() == [[r.matched, r.gold, r.test] for r in found]


def test_a_candidate_that_evalb_leaves_out_counts_nothing(tmp_path):
    """Its tags delete another word, or every word."""
    words = "the dog saw the ."
    first = tree(words, 0, "DT NN VB DT NN")
    other = tree(words, 1, "DT NN VB DT .")
    nothing = tree(words, 2, ".")
    path = write_nbest(tmp_path / "a", [[(-1, other), (-2, first), (-3, nothing)]])
    gold = [parse_tree(first, "")]
    (found,) = read_sentences(path, DICTIONARY, gold=gold, parameters=Parameters())
    assert found.counts.tolist() == [[0, 0, 0], [4, 4, 4], [0, 0, 0]]


@pytest.mark.parametrize(
    "lists, told",
    [
        (
            [[(-1, tree(SENTENCES[0])), (-2, tree("the dog saw the dog"))]],
            "line 3: a tree over other words than the first candidate of list 1: at word 5 expected "
            "'cat'; got 'dog'",
        ),
        (
            [[(-1, tree(SENTENCES[0]))], [(-2, tree(SENTENCES[0])), (-2, tree(SENTENCES[1]))]],
            "line 5: a tree over other words than the first candidate of list 2: at word 2 expected "
            "'dog'; got 'cat'",
        ),
        (
            [[(-1, tree(SENTENCES[0])), (-2, "(S (DT the) (NN dog))")]],
            "line 3: a tree over other words than .*: at word 3 expected 'saw'; got its end",
        ),
        (
            [[(-1, "(S (DT the) (NN dog))"), (-2, tree(SENTENCES[0]))]],
            "line 3: a tree over other words than .*: at word 3 expected its end; got 'saw'",
        ),
        ([[(-1, tree(SENTENCES[0])), (-2, "(S (DT the)")]], "line 3: the tree is not closed"),
        ([[(-1, "(())")]], "line 2: "),
        ([[("x", tree(SENTENCES[0]))]], "line 2: expected a score, a number; got 'x'"),
        ([[(-1, tree(SENTENCES[0]))], []], "line 3: sentence 1 has no candidate"),
    ],
)  # fmt: skip
def test_a_candidate_that_cannot_be_used_is_named_by_file_and_line(tmp_path, lists, told):
    path = write_nbest(tmp_path / "dev.nbest", lists)
    with pytest.raises(FairseqDocError, match=f"dev.nbest: {told}") as caught:
        read_sentences(path, DICTIONARY)
    assert "\n" not in str(caught.value)


def test_gold_trees_over_other_words_are_refused_by_the_lists_line(nbest):
    gold = gold_of(0, 0, 0, 0)
    gold[1] = parse_tree(tree("the cat saw the cat with the dog"), "")
    told = (
        "dev.nbest: line 7: a tree over other words than gold tree 2: at word 5 expected 'cat'; got"
    )
    with pytest.raises(FairseqDocError, match=told):
        read_sentences(nbest, DICTIONARY, gold=gold, parameters=Parameters())


@pytest.mark.parametrize("number", [1, 3, 5])
def test_another_number_of_gold_trees_is_refused(nbest, number):
    gold = [*gold_of(0, 0, 0, 0), gold_of(0, 0, 0, 0)[0]][:number]
    told = f"dev.nbest: expected a list for each of {number} gold trees; got 4"
    with pytest.raises(FairseqDocError, match=told):
        read_sentences(nbest, DICTIONARY, gold=gold, parameters=Parameters())


def test_a_dictionary_without_opening_brackets_is_refused_before_the_list_is_read(tmp_path):
    words, bare, closing = small_dictionary(), small_dictionary(), small_dictionary()
    bare.add_symbol("(")
    closing.add_symbol(")NP")
    for dictionary in (words, bare, closing):
        for refused in (check_dictionary, lambda d: read_sentences(tmp_path / "none", d)):
            with pytest.raises(FairseqDocError, match="no opening bracket"):
                refused(dictionary)
    check_dictionary(DICTIONARY)


def test_symbols_outside_the_dictionary_are_counted_over_the_distinct_candidates(tmp_path):
    shape = SHAPES[5][0].replace("(VP", "(VX")
    rows = [tree(SENTENCES[0], shape), tree(SENTENCES[0], shape, "YY"), tree(SENTENCES[0], 1)]
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in rows], [(-1, rows[2])]])
    # (VX and )VX of one tree; a rare word is <unk>, which the dictionary has.
    assert [s.unknown for s in read_sentences(path, DICTIONARY)] == [2, 0]
    assert [s.unknown for s in read_sentences(path, tree_dictionary("(VX"))] == [1, 0]


def test_the_first_candidates_root_is_told(tmp_path):
    rows = [[f"(S1 {tree(SENTENCES[0])})", tree(SENTENCES[0], 1)], [tree(SENTENCES[0])]]
    rows.append([f"( {tree(SENTENCES[0])})"])
    path = write_nbest(tmp_path / "a", [[(-1, text) for text in row] for row in rows])
    assert [s.root for s in read_sentences(path, DICTIONARY)] == ["S1", None, ""]


# Scoring


@pytest.mark.parametrize("models", [MODELS[:1], MODELS], ids=["one model", "an ensemble"])
def test_scores_are_those_of_the_trees_symbols_one_by_one(nbest, models):
    sentences = read_sentences(nbest, DICTIONARY)
    scores = score_candidates(of_trees(*models), nbest, sentences)
    assert [row.tolist() for row in scores] == close(by_hand(models=models))


def test_each_distinct_sequence_of_a_sentence_is_scored_once(nbest, asked):
    score_candidates(of_trees(), nbest, read_sentences(nbest, DICTIONARY))
    expected = [symbols(w, n) for w, row in zip(SENTENCES, DISTINCT, strict=True) for n in row]
    assert [list(map(list, call)) for call in asked] == [expected]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5, 7, 8, 10, 11, 99])
def test_how_many_are_scored_at_once_changes_no_score(nbest, asked, at_once):
    """No sentence's list is cut; they have 3, 4, 1 and 3 candidates."""
    sentences = read_sentences(nbest, DICTIONARY)
    scores = score_candidates(of_trees(), nbest, sentences, at_once)
    assert [row.tolist() for row in scores] == close(by_hand())
    assert all(len(call) < at_once + 4 for call in asked)
    assert {sum(map(len, asked[:n])) for n in range(1, 5)} <= {3, 7, 8, 11}
    assert len(asked) == {1: 4, 11: 1, 99: 1}.get(at_once, len(asked))


def test_progress_is_told_of_every_batch_and_changes_nothing(nbest, asked):
    sentences = read_sentences(nbest, DICTIONARY)
    told = []

    def progress(iterable, name):
        told.append((len(iterable), name))
        return iterable

    shown = score_candidates(of_trees(), nbest, sentences, 4, progress=progress)
    silent = score_candidates(of_trees(), nbest, sentences, 4)
    assert told == [(len(asked) // 2, "rerank")] and told[0][0] > 1
    assert [row.tolist() for row in shown] == [row.tolist() for row in silent]


FORMS = ("tab", "own line", "bars", "gzip", "from one")


def in_form(path, form):
    """The lists above as a parser prints them."""
    lines = []
    for number, candidates in enumerate(LISTS):
        number += form == "from one"
        if form != "bars":
            lines.append(f"{len(candidates)}\t{number}")
        for score, text in candidates:
            if form == "bars":
                lines.append(f"{number} ||| {score} ||| {text}")
            else:
                lines += [f"{score}", text, ""] if form == "own line" else [f"{score}\t{text}"]
    data = "\n".join(lines).encode() + b"\n"
    path.write_bytes(gzip.compress(data) if form == "gzip" else data)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_any_form_give_the_same_trees(nbest, tmp_path, form):
    path = in_form(tmp_path / "other", form)
    found = []
    for file in (nbest, path):
        sentences = read_sentences(file, DICTIONARY)
        lm = score_candidates(of_trees(), file, sentences)
        best = list(best_trees(file, sentences, lm, 0.5))
        found.append((best, list(scored_lists(file, sentences, lm, 0.5))))
    assert found[0] == found[1]
    assert len(found[0][0]) == 4


# The best


def test_the_score_is_the_language_models_plus_the_weighted_parsers():
    lm, one = np.array([-10.0, -12.0, -11.0]), sentence([-6.0, -2.0, -5.0])
    assert one.scores(lm, 0.5).tolist() == [-13.0, -13.0, -13.5]
    assert [one.best(lm, weight) for weight in (0.0, 0.4, 0.5, 0.6, 9.0)] == [0, 0, 0, 1, 1]


@given(st.lists(st.tuples(st.integers(-3, 0), st.integers(-3, 0)), min_size=1, max_size=8))
def test_the_first_of_several_best_candidates_wins(numbers):
    lm, own = (np.array(x, dtype=float) for x in zip(*numbers, strict=True))
    scores = [a + 2 * b for a, b in numbers]
    assert sentence(own).best(lm, 2.0) == scores.index(max(scores))
    assert best_candidates([sentence(own)] * 2, [lm, lm], 2.0) == [scores.index(max(scores))] * 2


def test_the_best_trees_are_as_the_file_has_them(nbest):
    sentences = read_sentences(nbest, DICTIONARY)
    lm = [np.arange(len(s.lines), dtype=float) for s in sentences]
    last = list(best_trees(nbest, sentences, lm, 0.0))
    assert last == [LISTS[0][3][1], LISTS[1][3][1], LISTS[2][0][1], LISTS[3][3][1]]
    first = list(best_trees(nbest, sentences, [-x for x in lm], 0.0))
    assert first == [candidates[0][1] for candidates in LISTS]


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
    best, f1 = tune(TWO, TWO_LM, [0.0, 0.5, 1.0, 2.5])
    assert best == 1.0
    assert f1 == pytest.approx([1400 / 15, 1400 / 15, 100, 1200 / 15])


@pytest.mark.parametrize(
    "weights, best",
    [([0.0, 0.7, 1.0, 1.9, 3.0], 0.7), ([3.0, 1.9, 0.7, 1.0], 0.7), ([0.0, 0.5], 0)],
)
def test_the_smallest_of_the_best_weights_wins(weights, best):
    assert tune(TWO, TWO_LM, weights)[0] == best


def test_at_equal_scores_tuning_takes_the_first_candidate_too():
    one = sentence([-1.0, 0.0], [[1, 4, 4], [4, 4, 4]])
    assert tune([one], [np.array([0.0, -1.0])], [1.0]) == (1.0, [25.0])


def test_the_oracle_takes_the_first_candidate_of_the_best_f1():
    rows = [[0, 0, 0], [2, 4, 3], [3, 4, 5], [4, 5, 5], [3, 4, 5], [8, 10, 10]]
    assert oracle([sentence([0.0] * 6, rows), TWO[0], TWO[1]]) == [3, 1, 0]
    assert oracle([sentence([0.0, 0.0], [[0, 0, 0], [0, 0, 0]])]) == [0]


def test_figures_are_those_of_evalb_on_the_trees_chosen(nbest):
    gold = gold_of(0, 1, 2, 3)
    sentences = read_sentences(nbest, DICTIONARY, 2, gold, Parameters())
    lm = score_candidates(of_trees(), nbest, sentences)
    weights = [0.0, 1.0, 20.0]
    _, found = tune(sentences, lm, weights)
    for weight, f1 in zip(weights, found, strict=True):
        trees = [parse_tree(text, "") for text in best_trees(nbest, sentences, lm, weight)]
        results = [compare(g, t, Parameters()) for g, t in zip(gold, trees, strict=True)]
        assert f1 == pytest.approx(summarize(results).f1)
    assert len(set(found)) > 1


# Scored lists


def written(nbest, weight, lm=None):
    """(sentences, ln P, the scored lists in a file)."""
    sentences = read_sentences(nbest, DICTIONARY, 2)
    lm = score_candidates(of_trees(), nbest, sentences) if lm is None else lm
    path = nbest.with_name("scored")
    path.write_text("".join(f"{line}\n" for line in scored_lists(nbest, sentences, lm, weight)))
    return sentences, lm, path


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_scored_lists_are_n_best_lists_of_the_distinct_candidates_best_first(nbest, weight):
    sentences, lm, path = written(nbest, weight)
    for one, of_lm, row, found in zip(sentences, lm, TEXTS, read_nbest(path), strict=True):
        scores = (of_lm + weight * one.parser_scores).tolist()
        expected = sorted(zip(scores, row, strict=True), reverse=True)
        assert [(c.score, c.text) for c in found] == expected
    best = [candidates[0].text for candidates in read_nbest(path)]
    assert best == list(best_trees(nbest, sentences, lm, weight))


def test_a_line_of_a_scored_list_holds_all_three_scores_to_the_last_bit(nbest):
    sentences, lm, path = written(nbest, 0.7)
    lines = path.read_text().splitlines()
    assert [line for line in lines if "\t" not in line] == ["3 0", "4 1", "1 2", "3 3"]
    rows = [line.split("\t") for line in lines[1:4]]
    told = {tuple(map(float, row[:3])) for row in rows}
    own = sentences[0].parser_scores
    assert told == set(zip((lm[0] + 0.7 * own).tolist(), lm[0].tolist(), own.tolist(), strict=True))
    by_text = {row[3]: float(row[1]) for row in rows}
    assert [by_text[text] for text in TEXTS[0]] == lm[0].tolist()


def test_candidates_of_equal_scores_stay_in_the_lists_order(nbest):
    lm = [np.zeros(n) for n in (3, 4, 1, 3)]
    lm[1][2] = 1.0
    _, _, path = written(nbest, 0.0, lm)
    first, second, _, last = read_nbest(path)
    assert [c.text for c in first] == TEXTS[0]
    assert [c.text for c in second] == [TEXTS[1][n] for n in (2, 0, 1, 3)]
    assert [c.text for c in last] == TEXTS[3]


def test_a_scored_list_can_be_reranked(nbest):
    sentences, lm, path = written(nbest, 0.7)
    again = read_sentences(path, DICTIONARY)
    zeros = [np.zeros(len(s.lines)) for s in again]
    best = list(best_trees(nbest, sentences, lm, 0.7))
    assert list(best_trees(path, again, zeros, 1.0)) == best


# Kept scores

AT_ONCE, BATCHES = 3, 6  # the third and the seventh sentence, of one candidate, go with the next


@pytest.fixture(scope="module")
def whole(folder):
    """An uninterrupted run in single precision, where a score's last bits hang on its batch."""
    models = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    it = of_trees(*models).to(torch.float32)
    path = write_nbest(folder / "many.nbest", LISTS * 2)
    sentences = read_sentences(path, DICTIONARY)
    scores = score_candidates(it, path, sentences, AT_ONCE)
    kept = folder / "whole.scores"
    again = score_candidates(it, path, sentences, AT_ONCE, KeptScores(kept, STAMP))
    assert [row.tolist() for row in again] == [row.tolist() for row in scores]

    def goes_on(file, stamp=STAMP):
        keeping = KeptScores(file, stamp)
        found = score_candidates(it, path, sentences, AT_ONCE, keeping)
        return [row.tolist() for row in found]

    numbers = [row.tolist() for row in scores]
    return SimpleNamespace(goes_on=goes_on, scores=numbers, kept=kept.read_bytes())


def test_a_file_of_scores_tells_what_they_are_of_and_holds_a_sentence_a_line(whole):
    head, *rows = map(json.loads, whole.kept.decode().splitlines())
    assert head == STAMP
    assert rows == whole.scores


def test_with_every_score_kept_the_model_is_not_asked(whole, tmp_path, asked):
    (tmp_path / "kept").write_bytes(whole.kept)
    assert whole.goes_on(tmp_path / "kept") == whole.scores
    assert asked == []
    assert (tmp_path / "kept").read_bytes() == whole.kept


@pytest.mark.parametrize("done", range(BATCHES))
def test_a_run_interrupted_between_batches_goes_on_to_the_same_result(
    whole, tmp_path, monkeypatch, done
):
    file, calls = tmp_path / "kept", []
    original = reranking.score_prefix_tree

    def interrupted(*args):
        calls.append(args)
        if len(calls) == done + 1:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(reranking, "score_prefix_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        whole.goes_on(file)
    assert whole.kept.startswith(file.read_bytes())
    assert whole.goes_on(file) == whole.scores
    assert len(calls) == BATCHES + 1  # only the batch that was interrupted began twice
    assert file.read_bytes() == whole.kept
    assert not list(tmp_path.glob("*.part"))


@settings(max_examples=12)
@given(st.integers(0, 10**6))
def test_a_run_cut_off_anywhere_goes_on_to_the_same_result(whole, folder, cut):
    """In the middle of a line, of a number, or of a batch."""
    file, head = folder / "cut.scores", whole.kept.index(b"\n") + 1
    file.write_bytes(whole.kept[: head + cut % (len(whole.kept) - head)])
    assert whole.goes_on(file) == whole.scores
    assert file.read_bytes() == whole.kept


def test_the_candidates_whose_scores_were_kept_are_counted(whole, nbest, tmp_path):
    sentences = read_sentences(nbest, DICTIONARY)  # of 3, 4, 1 and 3 candidates
    lines = whole.kept.decode().splitlines(keepends=True)
    for kept, taken in ((0, 0), (1, 3), (2, 7), (3, 7), (4, 11)):
        (tmp_path / "kept").write_text("".join(lines[: 1 + kept]))
        keeping = KeptScores(tmp_path / "kept", STAMP)
        score_candidates(of_trees(), nbest, sentences, AT_ONCE, keeping)
        assert keeping.taken == taken


def test_scores_after_ones_of_other_lists_are_made_anew(whole, tmp_path, asked):
    """Where a sentence has more or fewer candidates than were scored."""
    lines = whole.kept.decode().splitlines(keepends=True)
    lines[3] = "[-1.0, -2.0]\n"
    (tmp_path / "kept").write_text("".join(lines))
    assert whole.goes_on(tmp_path / "kept") == whole.scores
    assert len(asked) == BATCHES - 2
    assert (tmp_path / "kept").read_bytes() == whole.kept


@pytest.mark.parametrize(
    "content",
    [b"", b"3 0\n-1\t(S (DT a))\n", b"[1.0]\n", b"\xff\xfe\n", b"{}\n", json.dumps(STAMP).encode()],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_and_stays(whole, tmp_path, content, asked):
    file = tmp_path / "kept"
    file.write_bytes(content)
    with pytest.raises(FairseqDocError, match="kept: expected scores of these models on this list"):
        whole.goes_on(file)
    assert file.read_bytes() == content and asked == []


@pytest.mark.parametrize(
    "other", [{"sha256": ["a", "c"]}, {"max_candidates": 5}, {"sha256": ["a"]}]
)
def test_scores_of_other_models_or_of_another_list_are_refused(whole, tmp_path, other):
    file = tmp_path / "kept"
    file.write_bytes(whole.kept)
    with pytest.raises(FairseqDocError, match="expected scores of these models on this list"):
        whole.goes_on(file, STAMP | other)
    assert file.read_bytes() == whole.kept
    reordered = dict(reversed(STAMP.items()))
    assert whole.goes_on(file, reordered) == whole.scores


def test_a_model_without_finite_scores_keeps_those_before(tmp_path, nbest, monkeypatch):
    """And a mended one goes on from them."""
    bad = peaked_model(dictionary=tree_dictionary())
    bad.decoder.output.bias.data[DICTIONARY.index("with")] = -torch.inf
    sentences = read_sentences(nbest, DICTIONARY)
    with pytest.raises(FairseqDocError):
        score_candidates(of_trees(bad), nbest, sentences, 1, KeptScores(tmp_path / "k", STAMP))
    assert len((tmp_path / "k").read_text().splitlines()) == 2  # the head and the first sentence
