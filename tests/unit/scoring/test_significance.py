import numpy as np
import pytest

from fairseq_doc.scoring.significance import Estimate, compare_systems, p_value, resampled_means

VALUES = np.random.default_rng(0).uniform(size=50)


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
    assert first == Estimate(VALUES.mean(), low, high, None) and low < first.mean < high
    assert same == Estimate(first.mean, low, high, 1.0)
    assert better.p == pytest.approx(1 / 301) and better.mean == pytest.approx(first.mean + 0.1)
