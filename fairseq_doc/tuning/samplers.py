"""Which settings are tried next.

Every trial has a sampler of its own, seeded by ``--seed`` and by the number of the trial, which no other
process has. So processes that share a study do not draw the same points.
"""

import math
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    PartialFixedSampler,
    RandomSampler,
    TPESampler,
)
from scipy.stats import qmc

from fairseq_doc.tuning.space import Distribution, Space

STARTUP = 10  # trials that must be complete before GP and TPE learn from them; random before
NAMES = ("gp", "tpe", "qmc", "random")


def make_sampler(
    kind: str, seed: int, number: int, space: Space, startup: int = STARTUP
) -> BaseSampler:
    """The sampler of one trial.

    Args:
        kind: one of ``NAMES``.
        seed: of the study.
        number: of the trial.
        space: what is tuned.
        startup: trials that must be complete before ``gp`` and ``tpe`` learn; random before.
    """
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) % 2**31
    if kind == "gp":
        return GPSampler(seed=own, n_startup_trials=startup, warn_independent_sampling=False)
    if kind == "tpe":
        return TPESampler(
            seed=own, n_startup_trials=startup, multivariate=True, warn_independent_sampling=False
        )
    if kind == "qmc":
        return PartialFixedSampler(sobol_point(seed, number, space), RandomSampler(seed=own))
    return RandomSampler(seed=own)


def sobol_point(seed: int, number: int, space: Space) -> dict[str, Any]:
    """A trial's point of a scrambled Sobol sequence. Optuna's own sampler draws its first trials at
    random, and two processes may get one point."""
    points = qmc.Sobol(len(space), scramble=True, seed=seed)
    if number:
        points.fast_forward(number)
    pairs = zip(space.items(), points.random(1)[0], strict=True)
    return {option: value_at(values, float(position)) for (option, values), position in pairs}


def value_at(values: Distribution, position: float) -> Any:
    """The value at a position in [0, 1): equal parts for choices, whole numbers and steps."""
    if isinstance(values, CategoricalDistribution):
        return values.choices[int(position * len(values.choices))]
    low, high, whole = values.low, values.high, isinstance(values, IntDistribution)
    if values.step is not None and not values.log:
        count = round((high - low) / values.step) + 1
        return min(low + int(position * count) * values.step, high)
    if values.log:
        first, last = (low - 0.5, high + 0.5) if whole else (low, high)
        value = math.exp(math.log(first) + position * (math.log(last) - math.log(first)))
    else:
        value = low + position * (high - low)
    value = min(max(value, low), high)
    return round(value) if whole else value
