import numpy as np
import pytest
from conftest import refusal

from fairseq_doc.scoring.hypotheses import System, Undoing
from fairseq_doc.scoring.rouge import compare_systems, p_value, resampled_means, score_rouge

VALUES = np.random.default_rng(0).uniform(size=50)


def system(*texts, targets=None):
    return System("a.out", list(texts), Undoing("none", "none", "en"), targets, None, 0)


def test_scores_are_in_percent():
    found = score_rouge([system("a dog runs", "two cats")], ["a dog runs", "two dogs"], 100)
    assert found["unstemmed"]["rouge1"][0]["f1"] == pytest.approx(75)


def test_the_score_of_the_targets():
    found = score_rouge([system("a", "b", targets=["a dog", "b"])], ["a dog runs", "b"], 100)
    assert found["stemmed"]["rouge1"][0]["ceiling"] == pytest.approx(100 * (0.8 + 1) / 2)
    assert score_rouge([system("a")], ["a"], 100)["stemmed"]["rouge1"][0]["ceiling"] is None


def test_a_line_that_would_take_memory_with_its_square_is_refused():
    long = "a-" * 5_001  # a word of many words
    message = refusal(score_rouge, [system("a", long)], ["a", "a"])
    assert message == "a.out: sentence 2 has 5,001 words; expected at most 5,000"
    message = refusal(score_rouge, [system("a")], [long])
    assert message.startswith("the references: sentence 1 has 5,001 words")


def test_the_same_sentences_are_drawn_for_every_system():
    means = resampled_means(VALUES, 200)
    np.testing.assert_allclose(resampled_means(VALUES + 0.25, 200), means + 0.25)
    assert np.array_equal(resampled_means(VALUES, 100), means[:100])
    assert not np.array_equal(resampled_means(VALUES, 200, seed=1), means)
    assert abs(means.mean() - VALUES.mean()) < 4 * VALUES.std() / 50**0.5
    assert means.std() == pytest.approx(VALUES.std() / 50**0.5, rel=0.3)


def test_p_is_the_share_of_resamples_as_far_away_as_the_difference():
    resampled = np.array([0.5, 0.25, 0.0, 1.0])  # 0.25 away from 0.25: 0.5, 0 and 1
    assert p_value(0.25, resampled) == (3 + 1) / 5
    assert p_value(9.0, resampled) == (1 + 1) / 5  # 0 is 9 away; the others are nearer
    assert p_value(10.0, resampled + 5.0) == 1 / 5 and p_value(0.0, np.zeros(4)) == 1


def test_systems_are_compared_with_the_first():
    first, same, better = compare_systems([VALUES, VALUES, VALUES + 0.1], 300)
    low, high = np.percentile(resampled_means(VALUES, 300), [2.5, 97.5])
    mean = VALUES.mean()
    expected = {"f1": 100 * mean, "low": 100 * low, "high": 100 * high}
    assert first == {**expected, "p": None} and low < mean < high
    assert same == {**expected, "p": 1.0}
    assert better["p"] == pytest.approx(1 / 301)
    assert better["f1"] == pytest.approx(100 * (mean + 0.1))
