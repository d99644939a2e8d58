"""Spaces of settings, from YAML to Optuna's distributions, and which values are tried next.

A space is a file of options of ``fairseq-train``:

    lr: {low: 0.0005, high: 0.01, log: true}
    layers: {low: 1, high: 4}            # whole numbers, since both ends are
    dropout: {low: 0, high: 0.8, step: 0.1}
    optimizer: {choices: [adam, nag]}    # true gives an option, false leaves it out
"""

import math
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, PartialFixedSampler, RandomSampler, TPESampler
from scipy.stats import qmc

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import read_text
from fairseq_doc.tuning.settings import READY, Options, Value, ready_spaces

MAX_BYTES = 1 << 20  # of a file

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution
Space: TypeAlias = dict[str, Distribution]  # {option without its dashes: its values}


def read_space(name: str | os.PathLike) -> Space:
    """The space in a YAML file or, if there is no such file, the ready space of that name."""
    path = Path(name)
    if not os.path.lexists(path):
        if str(name) not in ready_spaces():
            ready = ", ".join(ready_spaces())
            raise FairseqDocError(f"{name}: expected a YAML file or one of {ready}; got neither")
        path = READY / f"{name}.yaml"
    text = read_text(path, MAX_BYTES)
    try:
        node, data = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise FairseqDocError(f"{path} is not valid YAML: {reason}") from None
    names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    return parse_space(data, str(path), names)


def parse_space(data: Any, name: str, keys: list[str] | None = None) -> Space:
    """The space of the file ``name``; ``keys`` are its options as written, one perhaps twice."""
    if not isinstance(data, dict) or not data:
        raise FairseqDocError(
            f"{name}: expected options and their values, such as lr: {{low: 0.001, high: 0.1, "
            f"log: true}}; got {shown(str(data))}"
        )
    options = [str(key).lstrip("-") for key in (keys or data)]
    for option in options:
        if not option or options.count(option) > 1:
            raise FairseqDocError(f"{name}: expected every option once; got {shown(option)} twice")
    space = {}
    for option, values in data.items():
        option = str(option).lstrip("-")
        try:
            space[option] = _distribution(values)
        except ValueError as error:  # Optuna's too
            reason = " ".join(str(error).split())
            raise FairseqDocError(f"{name}: --{option}: {reason}") from None
    return space


def _distribution(values: Any) -> Distribution:
    keys = set(values) if isinstance(values, dict) else set()
    if keys == {"choices"}:
        return _choices(values["choices"])
    if {"low", "high"} <= keys <= {"low", "high", "log", "step"}:
        return _range(**values)
    raise ValueError(
        "expected {low: ..., high: ...}, with log: true or step: ... or without, or "
        f"{{choices: [...]}}; got {shown(str(values))}"
    )


def _choices(values: Any) -> CategoricalDistribution:
    if not isinstance(values, list):
        raise ValueError(f"choices: expected a list; got {shown(str(values))}")
    for value in values:
        if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(
                f"choices: expected numbers, words, true or false; got {shown(str(value))}"
            )
    if len({(type(value) is bool, value) for value in values}) < len(values):
        raise ValueError(f"choices: expected every value once; got {values}")
    return CategoricalDistribution(values)


def _range(low: Any, high: Any, log: Any = False, step: Any = None) -> Distribution:
    """Optuna itself refuses a logarithm of low <= 0 or with a step."""
    low, high = _number(low, "low"), _number(high, "high")
    step = None if step is None else _number(step, "step")
    if not isinstance(log, bool):
        raise ValueError(f"log: expected true or false; got {shown(str(log))}")
    if low >= high:
        raise ValueError(f"expected low < high; got low {low} and high {high}")
    values: Distribution
    if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
        values = IntDistribution(low, high, log, 1 if step is None else step)
    else:
        values = FloatDistribution(low, high, log, step)
    if values.high != high:  # Optuna lowers it to the last step
        raise ValueError(
            f"expected a whole number of steps from {low} to {high}; got steps of {step}"
        )
    return values


def _number(value: Any, name: str) -> int | float:
    """A finite number; YAML reads 5e-4, without a point, as a word."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected a number; got {shown(str(value))}")
    return value if isinstance(value, int) else number


def is_inside(value: Any, values: Distribution) -> bool:
    """Whether an option of these values can have this one."""
    try:
        return values._contains(values.to_internal_repr(value))
    except (ValueError, TypeError):
        return False


def as_json(space: Space) -> dict[str, dict[str, Any]]:
    """The space as in a file, shorter than Optuna's own JSON."""
    written: dict[str, dict[str, Any]] = {}
    for option, values in space.items():
        if isinstance(values, CategoricalDistribution):
            written[option] = {"choices": list(values.choices)}
            continue
        written[option] = {"low": values.low, "high": values.high}
        if values.log:
            written[option]["log"] = True
        elif values.step not in (None, 1) or isinstance(values.step, float):
            written[option]["step"] = values.step
    return written


def make_sampler(settings: Options, number: int, space: Space) -> BaseSampler:
    """The sampler of a study's draw ``number``, seeded by both, so that no two processes draw
    alike and an interrupted study draws as an uninterrupted one."""
    kind, startup = settings.sampler, settings.startup_trials
    seed = int(np.random.SeedSequence([settings.seed, number]).generate_state(1)[0]) % 2**31
    if kind == "gp":
        return GPSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
    if kind == "tpe":
        return TPESampler(
            seed=seed, n_startup_trials=startup, multivariate=True, warn_independent_sampling=False
        )
    if kind == "qmc":
        return PartialFixedSampler(sobol_point(settings.seed, number, space), RandomSampler(seed))
    return RandomSampler(seed)


def sobol_point(seed: int, number: int, space: Space) -> dict[str, Any]:
    """A trial's point of a scrambled Sobol sequence. Optuna's own sampler draws its first trials at
    random, and can give two processes one point."""
    points = qmc.Sobol(len(space), scramble=True, seed=seed)
    if number:
        points.fast_forward(number)
    pairs = zip(space.items(), points.random(1)[0].tolist(), strict=True)
    return {option: value_at(values, position) for (option, values), position in pairs}


def value_at(values: Distribution, position: float) -> Any:
    """The value at a position in [0, 1); choices, whole numbers and steps have equal parts."""
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
