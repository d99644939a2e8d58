"""Search spaces: from YAML to Optuna's distributions, and the samplers that draw from them.

A space is a file of options of ``fairseq-train``:

    lr: {low: 0.0005, high: 0.01, log: true}
    layers: {low: 1, high: 4}
    dropout: {low: 0, high: 0.8, step: 0.1}
    optimizer: {choices: [adam, nag]}    # for a flag: true sets it, false leaves it out

A range consists of integers if the option takes integers.
"""

import functools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import Trial

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import read_text
from fairseq_doc.tuning.settings import READY, Options, Value, ready_spaces

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution
Space: TypeAlias = dict[str, Distribution]  # {option without its dashes: its values}
Kinds: TypeAlias = Mapping[str, type]  # {option: int or float}, as fairseq's parser reads it


def read_space(name: str | os.PathLike, kinds: Kinds | None = None) -> Space:
    """The space in a YAML file or, if the file does not exist, the ready space of that name."""
    path = Path(name)
    if not os.path.lexists(path):
        if str(name) not in ready_spaces():
            ready = ", ".join(ready_spaces())
            raise FairseqDocError(f"{name}: expected a YAML file or one of {ready}; got neither")
        path = READY / f"{name}.yaml"
    text = read_text(path)
    try:
        node, data = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise FairseqDocError(f"{path} is not valid YAML: {reason}") from None
    names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    options = [str(option).lstrip("-") for option in names]
    twice = [option for option in options if not option or options.count(option) > 1]
    if twice:
        raise FairseqDocError(f"{path}: option {shown(twice[0])} occurs twice; leave one out")
    return parse_space(data, str(path), kinds)


def parse_space(data: Any, name: str, kinds: Kinds | None = None) -> Space:
    """The space from ``data``, the YAML or JSON of the file ``name``. Without ``kinds`` a range
    consists of integers if its ends are written as integers."""
    if not isinstance(data, dict) or not data:
        raise FairseqDocError(
            f"{name}: expected options and their values, such as lr: {{low: 0.001, high: 0.1, "
            f"log: true}}; got {shown(str(data))}"
        )
    space = {}
    for written, values in data.items():
        option = str(written).lstrip("-")
        try:
            space[option] = _distribution(values, (kinds or {}).get(option))
        except (ValueError, OverflowError) as error:  # also raised by Optuna
            reason = " ".join(str(error).split())
            raise FairseqDocError(f"{name}: --{option}: {reason}") from None
    return space


def _distribution(values: Any, kind: type | None) -> Distribution:
    keys = set(values) if isinstance(values, dict) else set()
    if keys == {"choices"}:
        choices = values["choices"]
        if not isinstance(choices, list) or not all(isinstance(one, Value) for one in choices):
            raise ValueError(
                f"choices: expected a list of numbers, words, true or false; got {choices}"
            )
        return CategoricalDistribution(choices)
    if {"low", "high"} <= keys <= {"low", "high", "log", "step"}:
        return _range(kind, **values)
    raise ValueError(
        "expected {low: ..., high: ...}, optionally with log: true or step: ..., or "
        f"{{choices: [...]}}; got {shown(str(values))}"
    )


def _range(
    kind: type | None, low: Any, high: Any, log: Any = False, step: Any = None
) -> Distribution:
    """A range; Optuna itself refuses log with low <= 0 or with a step."""
    written = {"low": low, "high": high} | ({} if step is None else {"step": step})
    numbers = {name: _number(value, name) for name, value in written.items()}
    if not isinstance(log, bool):
        raise ValueError(f"log: expected true or false; got {shown(str(log))}")
    if numbers["low"] >= numbers["high"]:
        raise ValueError(f"expected low < high; got low {low} and high {high}")
    whole = all(isinstance(number, int) for number in numbers.values())
    values: Distribution
    if kind is int or (kind is None and whole):
        for name, number in numbers.items():
            if number != int(number):
                raise ValueError(f"{name}: expected an integer; got {number}")
        values = IntDistribution(**{key: int(n) for key, n in numbers.items()}, log=log)
    else:
        values = FloatDistribution(**{key: float(n) for key, n in numbers.items()}, log=log)
    if values.high != numbers["high"]:  # Optuna lowers it to a multiple of the step
        raise ValueError(f"steps of {step} do not lead from {low} to {high}: change one of them")
    return values


def _number(value: Any, name: str) -> int | float:
    """A finite number; YAML reads 5e-4, without a decimal point, as a string."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected a number; got {shown(str(value))}")
    return value if isinstance(value, int) else number


def is_inside(value: Any, values: Distribution) -> bool:
    """Whether a distribution contains this value; steps are not checked."""
    if isinstance(values, CategoricalDistribution):
        return value in values.choices
    kinds = int if isinstance(values, IntDistribution) else int | float
    return isinstance(value, kinds) and values.low <= value <= values.high


def as_json(space: Space) -> dict[str, dict[str, Any]]:
    """The space in the form of a space file, shorter than Optuna's own JSON."""
    written = {}
    for option, values in space.items():
        parts = {
            key: getattr(values, key, None) for key in ("choices", "low", "high", "log", "step")
        }
        written[option] = {key: p for key, p in parts.items() if p is not None and p is not False}
    return written


def suggest(trial: Trial, option: str, values: Distribution) -> Any:
    """The value of an option in a trial."""
    if isinstance(values, CategoricalDistribution):
        return trial.suggest_categorical(option, values.choices)
    if isinstance(values, IntDistribution):
        return trial.suggest_int(option, values.low, values.high, step=values.step, log=values.log)
    return trial.suggest_float(option, values.low, values.high, step=values.step, log=values.log)


class TrialSampler(BaseSampler):
    """A new sampler for each trial, seeded by the seed and the trial's number. So processes and
    threads draw different settings, and one worker with the same seed repeats its trials."""

    def __init__(self, settings: Options) -> None:
        self._of = functools.lru_cache(functools.partial(_sampler, settings))

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return self._of(trial.number).infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return self._of(trial.number).sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, *option: Any) -> Any:
        return self._of(trial.number).sample_independent(study, trial, *option)


def _sampler(settings: Options, number: int) -> BaseSampler:
    seed = int(np.random.SeedSequence([settings.seed, number]).generate_state(1)[0]) % 2**31
    known: dict[str, Any] = {"seed": seed, "warn_independent_sampling": False}
    if settings.sampler == "gp":
        return GPSampler(n_startup_trials=settings.startup_trials, **known)
    if settings.sampler == "tpe":
        startup = settings.startup_trials
        return TPESampler(n_startup_trials=startup, multivariate=True, **known)
    plain = RandomSampler(seed)
    if settings.sampler == "qmc":  # one sequence for all trials; the study counts its points
        known |= {"seed": settings.seed, "independent_sampler": plain}
        return QMCSampler(scramble=True, **known)
    return plain
