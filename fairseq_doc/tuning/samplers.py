"""Which settings are tried next.

Every trial has a sampler of its own, seeded by ``--seed`` and by the number of the trial, which no other
process has. So processes that share a study do not draw the same points.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc

from fairseq_doc.tuning.space import Choices, Range, Space

STARTUP = 10  # trials that must be complete before GP and TPE learn from them; random before
# (seed, random trials) -> a sampler
MAKERS: dict[str, Callable[[int, int], BaseSampler]] = {
    "gp": lambda seed, startup: GPSampler(
        seed=seed, n_startup_trials=startup, warn_independent_sampling=False
    ),
    "tpe": lambda seed, startup: TPESampler(
        seed=seed, n_startup_trials=startup, multivariate=True, warn_independent_sampling=False
    ),
    "random": lambda seed, startup: RandomSampler(seed=seed),
}
NAMES = ("gp", "tpe", "qmc", "random")


def make_sampler(
    kind: str,
    seed: int,
    space: Space,
    startup: int = STARTUP,
) -> BaseSampler:
    """The sampler of a study.

    Args:
        kind: one of ``NAMES``.
        seed: of the study.
        space: what is tuned.
        startup: trials that must be complete before ``gp`` and ``tpe`` learn; random before.
    """
    return _SamplerOfTrials(kind, seed, space, startup)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space as Optuna has it."""
    return {option: _distribution(values) for option, values in space.items()}


def _distribution(values: Range | Choices) -> BaseDistribution:
    if isinstance(values, Choices):
        return CategoricalDistribution(values.values)
    if values.whole:
        return IntDistribution(
            int(values.low), int(values.high), log=values.log, step=int(values.step or 1)
        )
    return FloatDistribution(values.low, values.high, log=values.log, step=values.step)


class SobolSampler(BaseSampler):
    """Scrambled Sobol points: a trial has the point of its number. Optuna's own draws its first trials
    at random, and two processes may get one point."""

    def __init__(self, seed: int, space: Space) -> None:
        self._seed = seed
        self._space = space

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        points = qmc.Sobol(len(self._space), scramble=True, seed=self._seed)
        if trial.number:
            points.fast_forward(trial.number)
        position = points.random(1)[0]
        pairs = zip(self._space.items(), position, strict=True)
        return {option: values.at(float(part)) for (option, values), part in pairs}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        raise AssertionError("every setting is drawn with the others")


class _SamplerOfTrials(BaseSampler):
    """Hands each trial to a sampler of its own."""

    def __init__(
        self,
        kind: str,
        seed: int,
        space: Space,
        startup: int,
    ) -> None:
        self._startup = startup
        self._kind = kind
        self._seed = seed
        self._space = space
        self._sampler: BaseSampler = RandomSampler(seed=seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if self._kind == "qmc":
            self._sampler = SobolSampler(self._seed, self._space)
        else:
            own = np.random.SeedSequence([self._seed, trial.number]).generate_state(1)[0]
            self._sampler = MAKERS[self._kind](int(own) % 2**31, self._startup)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)
