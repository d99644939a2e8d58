"""Lists scored by language models, the best candidates, tuned weights."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.preparation.text_form import WORDS
from fairseq_doc.scoring import rescoring
from fairseq_doc.scoring.metrics import Metric, metric_of
from fairseq_doc.scoring.nbest_lists import NBestList, encode
from fairseq_doc.scoring.rescoring import Judge, Rescorer, Weights, choose, totals

from ..evaluation.conftest import EOS, ProgressSpy, ensemble, log_probs_by_hand, peaked_model

MODELS = [peaked_model(1), peaked_model(2)]
IT = ensemble(*MODELS)
texts = st.lists(st.sampled_from(["w0", "w1", "w2", "odd"]), max_size=4).map(" ".join)
candidates = st.lists(st.tuples(texts, st.integers(-3, 3)), min_size=1, max_size=4)
GRID = [Weights(a, w, b) for a in (1, 0, 0.3) for w in (0, 0.5, 2) for b in (0, -1, 1)]


@st.composite
def problems(draw):
    """Utterances, and a reference with words for each."""
    lists = [
        NBestList(str(n), [t for t, _ in own], np.array([s for _, s in own], float))
        for n, own in enumerate(draw(st.lists(candidates, min_size=1, max_size=4)))
    ]  # fmt: skip
    return lists, [draw(texts.filter(bool)) for _ in lists]


def rescorer(lists, **more):
    return Rescorer(IT, lists, encode(lists, WORDS, IT.dictionary, 9)[0], **more)


def judge_of(metric, lists, references):
    return Judge.of(metric, [one.texts for one in lists], references)


def best_by_hand(one, log_probs, weights):
    a, w, b = weights
    scores = [a * s + w * p + b * len(text.split())
              for s, p, text in zip(one.first_pass, log_probs, one.texts, strict=True)]  # fmt: skip
    return scores.index(max(scores))


@settings(max_examples=20)
@given(problems(), st.sampled_from([1, 3, 2000]))
def test_candidates_have_the_scores_of_their_sentences(problem, at_once):
    lists, _ = problem
    progress = ProgressSpy()
    own = rescorer(lists, at_once=at_once)
    with mock.patch.object(rescoring, "track", progress):
        scored = list(own.score())
    for rows, one in zip(scored, lists, strict=True):
        expected = score_text(IT, [text.split() for text in one.texts])
        for row, sentence in zip(rows, expected, strict=True):
            assert row.tolist() == pytest.approx(sentence.word_log_probs)
    longest = [max(map(len, sequences)) for sequences in own.encoded]
    if at_once != 3:
        assert progress.seen == [("score", sum(longest) if at_once == 1 else max(longest))]


@settings(max_examples=20)
@given(problems(), st.sampled_from([None, Weights(1, 0.5, 0.7), Weights(1, 2.0, -1.0)]))
def test_a_carried_state_is_that_after_the_last_ones_best(problem, weights):
    own, text = rescorer(problem[0], carry=True), [EOS]
    for one, sequences, rows in zip(own.lists, own.encoded, own.score(weights), strict=True):
        for sequence, row in zip(sequences, rows, strict=True):
            by_hand = log_probs_by_hand(MODELS, [*text, *sequence])[len(text) - 1 :]
            assert row.tolist() == pytest.approx(by_hand.tolist())
        best = best_by_hand(one, [row.sum() for row in rows], weights) if weights else 0
        text += sequences[best]


@settings(max_examples=20)
@given(problems(), st.sampled_from(["wer", "bleu"]))
def test_the_best_of_all_weights_is_found(problem, name):
    lists, references = problem
    log_probs, metric = list(map(totals, rescorer(lists).score())), metric_of(name)
    weights, tried, scored = rescorer(lists).tune(judge_of(metric, lists, references), GRID)
    assert all(map(np.array_equal, map(totals, scored), log_probs))
    for one, value in tried.items():
        chosen = [best_by_hand(*pair, one) for pair in zip(lists, log_probs, strict=True)]
        assert choose(lists, log_probs, one) == chosen
        best = [own.texts[k] for own, k in zip(lists, chosen, strict=True)]
        sums = sum(map(np.array, map(metric.statistics, best, references)))
        assert value == pytest.approx(metric.value(sums))
    assert list(tried) == GRID
    assert tried[weights] == max(tried.values(), key=lambda value: metric.sign * value)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_weights_tuned_with_carried_states_give_their_value_again(problem):
    lists, references = problem
    own, judge = rescorer(lists, carry=True), judge_of(metric_of("wer"), lists, references)
    weights, tried, scored = own.tune(judge, GRID)
    again = list(own.score(weights))
    for rows, others in zip(scored, again, strict=True):
        assert all(map(np.array_equal, rows, others))
    value = judge(choose(lists, list(map(totals, again)), weights))
    assert value == tried[weights] <= judge([one.first_pass.argmax() for one in lists])


# Statistics by hand: right, in all.
F1 = Metric("F1", 1, lambda a, b: (0, 0), lambda sums: 100 * sums[0] / sums[1])
JUDGE = Judge(F1, [np.array([[3, 4], [4, 4]]), np.array([[4, 4], [2, 4]])])


def test_the_metric_follows_from_the_summed_statistics():
    assert [JUDGE(chosen) for chosen in ([0, 0], [1, 0], [1, 1])] == [87.5, 100, 75]
    assert JUDGE.statistics_of([1, 1]).tolist() == [[4, 4], [2, 4]]
    assert (JUDGE.first, JUDGE.oracle) == (87.5, 100)


MANY = [Weights(1, n) for n in range(9)]


@pytest.mark.parametrize(
    "rounds, best",
    [
        # they alternate: the better one of those with which the lists were scored
        ([{1: 90, 2: 10}, {1: 50, 2: 60}, {1: 80, 2: 75}], 2),
        # they never repeat: the best of five
        ([{n + 1: 99, n: 10 * n} for n in range(1, 7)], 6),
    ],
)
def test_tuning_with_carried_states_ends(rounds, best):
    class Scripted(Judge):
        """The value of each of ``MANY`` in each round."""

        def __call__(self, chosen):
            return next(values)

    values = iter([own.get(n, 0) for own in rounds for n in range(1, 9)])
    lists = [NBestList("u", ["w0"], np.zeros(1))]
    weights, tried, _ = rescorer(lists, carry=True).tune(Scripted(F1, []), MANY[1:])
    assert weights == MANY[best] and tried[weights] == rounds[-1][best]
    assert not list(values)


@pytest.mark.parametrize("weights", [Weights(0.0, 1.0), Weights(5.0, 1.0)])
def test_a_candidate_without_tokens_is_the_last_choice(weights):
    lists = [
        NBestList("u", ["(())", "w0"], np.array([9.0, -9.0])),
        NBestList("v", ["(())"], np.zeros(1)),
    ]
    log_probs = list(map(totals, Rescorer(IT, lists, [[[], [4, EOS]], [[]]]).score()))
    assert choose(lists, log_probs, weights) == [1, 0]
