"""Lists scored by language models, the best candidates, tuned weights."""

import itertools
from unittest import mock

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.preparation.text_form import WORDS
from fairseq_doc.scoring import rescoring
from fairseq_doc.scoring.metrics import metric_of
from fairseq_doc.scoring.nbest_lists import Utterance
from fairseq_doc.scoring.rescoring import (
    Judge,
    WeightOptions,
    Weights,
    choose,
    encode,
    score,
    score_lines,
    search,
    tune,
)

from ..evaluation.conftest import EOS, ensemble, log_probs_by_hand, peaked_model

MODELS = [peaked_model(1), peaked_model(2)]
texts = st.lists(st.sampled_from(["w0", "w1", "w2", "odd"]), max_size=4).map(" ".join)
candidates = st.lists(st.tuples(texts, st.integers(-3, 3)), min_size=1, max_size=4)


@st.composite
def problems(draw):
    """Utterances, and a reference with words for each."""
    lists = [
        Utterance(str(n), [f"{n}-{k}" for k in range(len(own))], [t for t, _ in own], np.array([s for _, s in own], float))
        for n, own in enumerate(draw(st.lists(candidates, min_size=1, max_size=4)))
    ]  # fmt: skip
    return lists, [draw(texts.filter(bool)) for _ in lists]


IT = ensemble(*MODELS)
IT.form = WORDS


@settings(max_examples=20)
@given(problems(), st.sampled_from([1, 3, 2000]))
def test_candidates_have_the_scores_of_their_sentences(problem, at_once):
    lists, _ = problem
    encoded, unknown = encode(IT, lists)
    expected = [
        [s.word_log_probs for s in score_text(IT, [t.split() for t in one.texts]).sentences]
        for one in lists
    ]
    with mock.patch.object(rescoring, "MAX_SEQUENCES", at_once):
        scored = score(IT, lists, encoded)
    for rows, own in zip(scored, expected, strict=True):
        for row, log_probs in zip(rows, own, strict=True):
            assert row.tolist() == pytest.approx(log_probs)
    assert unknown.total() == sum(text.split().count("odd") for one in lists for text in one.texts)


@settings(max_examples=20)
@given(problems(), st.sampled_from([None, Weights(0.5, 0.7), Weights(2.0, -1.0)]))
def test_a_carried_state_is_that_after_the_last_ones_best(problem, weights):
    lists, _ = problem
    encoded, _ = encode(IT, lists)
    scored = score(IT, lists, encoded, carry=True, weights=weights)
    text = [EOS]
    for one, sequences, rows in zip(lists, encoded, scored, strict=True):
        for sequence, row in zip(sequences, rows, strict=True):
            by_hand = log_probs_by_hand(MODELS, [*text, *sequence])[len(text) - 1 :]
            assert row.tolist() == pytest.approx(by_hand.tolist())
        best = 0
        if weights:
            values = [weights.weight * row.sum() + weights.bonus * len(t.split()) + s
                      for row, t, s in zip(rows, one.texts, one.first_pass, strict=True)]  # fmt: skip
            best = values.index(max(values))
        text += sequences[best]


GRID = [Weights(w, b) for w in (0, 0.5, 2) for b in (0, -1, 1)]


@settings(max_examples=20)
@given(problems(), st.sampled_from(["wer", "bleu"]))
def test_the_best_of_all_weights_is_found(problem, name):
    lists, references = problem
    scored = score(IT, lists, encode(IT, lists)[0])
    metric = metric_of(name)
    found = search(Judge(metric, lists, references), lists, scored, GRID)

    def by_hand(weights):
        chosen = [
            max(range(len(rows)), key=lambda k: one.first_pass[k] + weights[0] * rows[k].sum()
                + weights[1] * len(one.texts[k].split()))
            for one, rows in zip(lists, scored, strict=True)
        ]  # fmt: skip
        assert choose(lists, scored, weights).tolist() == chosen
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
    encoded, _ = encode(IT, lists)
    judge = Judge(metric_of("wer"), lists, references)
    pairs = zip(lists, references, strict=True)
    statistics = judge.metric.statistics
    if all(len({tuple(statistics(t, r)) for t in one.texts}) == 1 for one, r in pairs):
        assert "weights cannot be tuned" in refusal(tune, IT, judge, lists, encoded, GRID, True)
        return
    found, scored = tune(IT, judge, lists, encoded, GRID, carry=True)
    again = score(IT, lists, encoded, carry=True, weights=found.weights)
    for rows, others in zip(scored, again, strict=True):
        assert all(map(np.array_equal, rows, others))
    assert judge(choose(lists, again, found.weights)) == found.value
    started = score(IT, lists, encoded, carry=True, weights=Weights(0, 0))
    assert found.value <= judge(choose(lists, started, Weights(0, 0)))


def test_without_a_bonus_the_empty_candidate_wins():
    lists = [Utterance("u", ["u-1", "u-2"], ["w0 w1 w2 w1 w0 w2", ""], np.zeros(2))]
    scored = score(IT, lists, encode(IT, lists)[0])
    assert choose(lists, scored, Weights(1, 0)).tolist() == [1]
    assert choose(lists, scored, Weights(1, 9)).tolist() == [0]
    assert choose(lists, scored, Weights(0, 0)).tolist() == [0]  # equal: the first


def test_scores_as_kaldi_reads_them():
    lists = [Utterance("u", ["u-1", "u-2"], ["a", ""], np.zeros(2))]
    scored = [[np.array([-1.25, -0.5]), np.array([1e-9])]]
    assert list(score_lines(lists, scored)) == ["u-1 1.2500 0.5000", "u-2 0.0000"]
    assert list(score_lines(lists, scored, totals=True)) == ["u-1 1.7500", "u-2 0.0000"]


def test_references_without_words_have_no_wer():
    lists = [Utterance("u", ["u-1"], ["a"], np.zeros(1))]
    assert "expected references with words" in refusal(Judge, metric_of("wer"), lists, [""])


@pytest.mark.parametrize(
    "weight, bonus, tuned, chooses, carry",
    [
        *((w, b, False, True, False) for w, b in ((None, None), (1, None), (None, 1), (float("nan"), 1))),
        (1, 1, True, True, True),
        (1, 1, False, False, False),
        (1, None, False, False, True),
    ],
)  # fmt: skip
def test_weights_that_lack_or_do_nothing(weight, bonus, tuned, chooses, carry):
    options = WeightOptions(weight=weight, bonus=bonus, tune=tuned)
    assert "expected numbers for --weight and --bonus" in refusal(
        options.check_weights, chooses, carry
    )


def test_the_grid_begins_with_the_smallest():
    options = WeightOptions(weights="0:1:0.5", bonuses="-1:1:1")
    assert options.grid == [*itertools.product([0, 0.5, 1], [0, -1, 1])]


@pytest.mark.parametrize(
    "name, text", [("weights", "-1:1:1"), ("bonuses", "1:0:1"), ("bonuses", "-inf:0:1")]
)
def test_a_damaged_grid(name, text):
    options = WeightOptions(**{name: text})
    problem = refusal(options.check_weights, False, False)
    assert problem.startswith(f"--{name}: expected FROM:TO:STEP")
