"""Bootstrap resampling of the sentences: intervals of a mean, and whether two systems differ
(Koehn, 2004)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SEED = 12345
INTERVAL = (2.5, 97.5)  # percentiles of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """A system's mean over sentences.

    Attributes:
        mean: over the sentences.
        low, high: its 95 % interval.
        p: of its difference from the first system; None for the first.
    """

    mean: float
    low: float
    high: float
    p: float | None


def compare_systems(systems: Sequence[np.ndarray], resamples: int) -> list[Estimate]:
    """Compare the systems with the first one.

    Args:
        systems: for each system the values of the sentences, (N,), in the same order.
        resamples: how often N sentences are drawn with replacement.
    """
    means = [resampled_means(values, resamples) for values in systems]
    estimates = []
    for number, values in enumerate(systems):
        low, high = np.percentile(means[number], INTERVAL).tolist()
        p = None
        if number > 0:
            difference = values.mean() - systems[0].mean()
            p = p_value(difference, means[number] - means[0])
        estimates.append(Estimate(values.mean().item(), low, high, p))
    return estimates


def resampled_means(values: np.ndarray, resamples: int, seed: int = SEED) -> np.ndarray:
    """Means over sentences drawn with replacement, (resamples,). The same number of sentences and
    the same seed always draw the same sentences, so systems are compared pairwise."""
    rng = np.random.default_rng(seed)
    return np.array(
        [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
    )


def p_value(difference: float, resampled: np.ndarray) -> float:
    """How often a resampled difference is as far from the measured one as that is from zero,
    two-sided; at least 1 / (resamples + 1)."""
    beyond = np.abs(resampled - difference) >= abs(difference)
    return (beyond.sum().item() + 1) / (len(resampled) + 1)
