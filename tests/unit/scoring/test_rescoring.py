"""Lists scored by language models, the best candidates, tuned weights."""

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.preparation.text_form import WORDS
from fairseq_doc.scoring.metrics import Metric, metric_of
from fairseq_doc.scoring.nbest_lists import NBestList, tokenize
from fairseq_doc.scoring.rescoring import (
    LANGUAGE_MODEL,
    Judge,
    Weights,
    choose,
    score,
    search,
    totals,
    tune,
)
from fairseq_doc.scoring.rescoring import encode as encode_tokens

from ..evaluation.conftest import EOS, ProgressSpy, ensemble, log_probs_by_hand, peaked_model

MODELS = [peaked_model(1), peaked_model(2)]
texts = st.lists(st.sampled_from(["w0", "w1", "w2", "odd"]), max_size=4).map(" ".join)
candidates = st.lists(st.tuples(texts, st.integers(-3, 3)), min_size=1, max_size=4)


@st.composite
def problems(draw):
    """Utterances, and a reference with words for each."""
    lists = [
        NBestList(str(n), [t for t, _ in own], np.array([s for _, s in own], float))
        for n, own in enumerate(draw(st.lists(candidates, min_size=1, max_size=4)))
    ]  # fmt: skip
    return lists, [draw(texts.filter(bool)) for _ in lists]


IT = ensemble(*MODELS)


def encode(lists):
    return encode_tokens(IT.dictionary, tokenize(lists, WORDS, 9))


def log_probs_of(lists):
    return list(map(totals, score(IT, lists, encode(lists)[0])))


def judge_of(metric, lists, references):
    pairs = zip(lists, references, strict=True)
    return Judge(
        metric, [np.array([metric.statistics(t, r) for t in one.texts]) for one, r in pairs]
    )


@settings(max_examples=20)
@given(problems(), st.sampled_from([1, 3, 2000]))
def test_candidates_have_the_scores_of_their_sentences(problem, at_once):
    lists, _ = problem
    encoded, unknown = encode(lists)
    expected = [
        [s.word_log_probs for s in score_text(IT, [t.split() for t in one.texts]).sentences]
        for one in lists
    ]
    progress = ProgressSpy()
    scored = list(score(IT, lists, encoded, progress=progress, at_once=at_once))
    for rows, own in zip(scored, expected, strict=True):
        for row, log_probs in zip(rows, own, strict=True):
            assert row.tolist() == pytest.approx(log_probs)
    longest = [max(map(len, own)) for own in encoded]
    if at_once != 3:
        assert progress.seen == [("score", sum(longest) if at_once == 1 else max(longest))]
    assert unknown.total() == sum(text.split().count("odd") for one in lists for text in one.texts)


@settings(max_examples=20)
@given(problems(), st.sampled_from([None, Weights(1, 0.5, 0.7), Weights(1, 2.0, -1.0)]))
def test_a_carried_state_is_that_after_the_last_ones_best(problem, weights):
    lists, _ = problem
    encoded, _ = encode(lists)
    scored = score(IT, lists, encoded, carry=True, weights=weights)
    text = [EOS]
    for one, sequences, rows in zip(lists, encoded, scored, strict=True):
        for sequence, row in zip(sequences, rows, strict=True):
            by_hand = log_probs_by_hand(MODELS, [*text, *sequence])[len(text) - 1 :]
            assert row.tolist() == pytest.approx(by_hand.tolist())
        best = 0
        if weights:
            values = [weights[1] * row.sum() + weights[2] * len(t.split()) + s
                      for row, t, s in zip(rows, one.texts, one.first_pass, strict=True)]  # fmt: skip
            best = values.index(max(values))
        text += sequences[best]


GRID = [Weights(1, w, b) for w in (0, 0.5, 2) for b in (0, -1, 1)]


@settings(max_examples=20)
@given(problems(), st.sampled_from(["wer", "bleu"]))
def test_the_best_of_all_weights_is_found(problem, name):
    lists, references = problem
    log_probs = log_probs_of(lists)
    metric = metric_of(name)
    found = search(judge_of(metric, lists, references), lists, log_probs, GRID)

    def by_hand(weights):
        chosen = [
            max(range(len(own)), key=lambda k: one.first_pass[k] + weights[1] * own[k]
                + weights[2] * len(one.texts[k].split()))
            for one, own in zip(lists, log_probs, strict=True)
        ]  # fmt: skip
        assert choose(lists, log_probs, weights).tolist() == chosen
        best = [one.texts[k] for one, k in zip(lists, chosen, strict=True)]
        return metric.value(sum(map(np.array, map(metric.statistics, best, references))))

    values = list(map(by_hand, GRID))
    assert list(found.tried.values()) == pytest.approx(values)
    best = max(values, key=lambda value: metric.sign * value)
    assert found.value == pytest.approx(best) and found.tried[found.weights] == found.value


@settings(max_examples=20, deadline=None)
@given(problems())
def test_weights_tuned_with_carried_states_give_their_value_again(problem):
    lists, references = problem
    encoded, _ = encode(lists)
    judge = judge_of(metric_of("wer"), lists, references)
    found, scored = tune(IT, judge, lists, encoded, GRID, carry=True)
    again = list(score(IT, lists, encoded, carry=True, weights=found.weights))
    for rows, others in zip(scored, again, strict=True):
        assert all(map(np.array_equal, rows, others))
    assert judge(choose(lists, list(map(totals, again)), found.weights)) == found.value
    assert found.value <= judge([one.first_pass.argmax() for one in lists])


def test_without_a_bonus_the_empty_candidate_wins():
    lists = [NBestList("u", ["w0 w1 w2 w1 w0 w2", ""], np.zeros(2))]
    log_probs = log_probs_of(lists)
    assert choose(lists, log_probs, Weights(1, 1, 0)).tolist() == [1]
    assert choose(lists, log_probs, Weights(1, 1, 9)).tolist() == [0]
    assert choose(lists, log_probs, Weights()).tolist() == [0]  # equal: the first


@given(st.lists(st.tuples(st.integers(-3, 0), st.integers(-3, 0)), min_size=1, max_size=8))
def test_the_first_of_several_best_candidates_wins(numbers):
    own, log_probs = (np.array(x, dtype=float) for x in zip(*numbers, strict=True))
    scores = [b + 2 * a for a, b in numbers]
    lists = [NBestList("u", [""] * len(own), own), NBestList("v", [""], np.zeros(1))]
    chosen = choose(lists, [log_probs, np.zeros(1)], Weights(2.0, 1.0))
    assert chosen.tolist() == [scores.index(max(scores)), 0]


def test_a_candidate_without_tokens_is_the_last_choice():
    lists = [
        NBestList("u", ["(())", "w0"], np.array([9.0, -9.0])),
        NBestList("v", ["(())"], np.zeros(1)),
    ]
    encoded, unknown = encode_tokens(IT.dictionary, [[None, ["w0"]], [None]])
    assert encoded[0][0] == encoded[1][0] == [] and not unknown
    log_probs = list(map(totals, score(IT, lists, encoded)))
    for weights in (LANGUAGE_MODEL, Weights(5.0, 1.0)):
        assert choose(lists, log_probs, weights).tolist() == [1, 0]


# By hand: the right choice is the second candidate of the one list and the first of the other. The one
# changes at the weight 2/3 of the first pass, the other at 2. Statistics: right, in all.
F1 = Metric("F1", 1, lambda a, b: (0, 0), lambda sums: 100 * sums[0] / sums[1])
TWO = [
    NBestList("", ["", ""], np.array([-5.0, -2.0])),
    NBestList("", ["", ""], np.array([-4.0, -3.5])),
]
TWO_LM = [np.array([-1.0, -3.0]), np.array([-1.0, -2.0])]
JUDGE = Judge(F1, [np.array([[3, 4], [4, 4]]), np.array([[4, 4], [2, 4]])])


def test_the_metric_follows_from_the_summed_statistics():
    assert [JUDGE(chosen) for chosen in ([0, 0], [1, 0], [1, 1])] == [87.5, 100, 75]
    assert JUDGE.chosen([1, 1]).tolist() == [[4, 4], [2, 4]]
    assert JUDGE.oracle == [1, 0]
    assert Judge(F1, [np.array([[1, 4], [2, 4], [2, 4]])]).oracle == [1]  # the first of equal ones


@pytest.mark.parametrize(
    "weights, best",
    [([0.0, 0.7, 1.0, 1.9, 3.0], 0.7), ([3.0, 1.9, 0.7, 1.0], 1.9), ([0.0, 0.5], 0)],
)
def test_the_first_of_the_best_weights_wins(weights, best):
    found = search(JUDGE, TWO, TWO_LM, [Weights(weight, 1.0) for weight in weights])
    assert found.weights == (best, 1.0, 0.0) and found.value == (100 if best else 87.5)


def test_lists_that_no_weight_changes():
    JUDGE.check_tunable()
    one = Judge(F1, [np.array([[1, 4], [1, 4]])])
    assert "weights cannot be tuned" in refusal(one.check_tunable)
