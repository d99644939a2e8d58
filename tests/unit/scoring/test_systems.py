"""ROUGE of systems, and its bootstrap."""

import numpy as np
import pytest

from fairseq_doc.scoring.hypotheses import System, Undoing
from fairseq_doc.scoring.systems import compare_systems, resampled_means, score_rouge

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


def test_the_same_sentences_are_drawn_for_every_system():
    means = resampled_means(VALUES, 200)
    np.testing.assert_allclose(resampled_means(VALUES + 0.25, 200), means + 0.25)
    assert abs(means.mean() - VALUES.mean()) < 4 * VALUES.std() / 50**0.5
    assert means.std() == pytest.approx(VALUES.std() / 50**0.5, rel=0.3)


def test_systems_are_compared_with_the_first():
    """p is the share of resamples at least as far from the difference as that is from zero."""
    other = VALUES[::-1] + 0.02
    first, same, better, near = compare_systems([VALUES, VALUES, VALUES + 0.1, other], 300)
    means = resampled_means(VALUES, 300)
    low, high = np.percentile(means, [2.5, 97.5])
    expected = {"f1": 100 * VALUES.mean(), "low": 100 * low, "high": 100 * high}
    assert first == {**expected, "p": None} and low < VALUES.mean() < high
    assert same == {**expected, "p": 1.0}
    assert better["p"] == pytest.approx(1 / 301)
    assert better["f1"] == pytest.approx(100 * (VALUES.mean() + 0.1))
    resampled, difference = resampled_means(other, 300) - means, other.mean() - VALUES.mean()
    beyond = sum(abs(one - difference) >= abs(difference) for one in resampled)
    assert near["p"] == (beyond + 1) / 301 and 0.01 < near["p"] < 1
