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
import re
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
from fairseq_doc.tuning.settings import READY, Options, ready_spaces

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution
Space: TypeAlias = dict[str, Distribution]  # {option without its dashes: its values}
Kinds: TypeAlias = Mapping[str, type]  # {option: int or float}, as fairseq's parser reads it


def read_space(name: str | os.PathLike, kinds: Kinds | None = None) -> Space:
    """The space in a YAML file or, if there is no such file, the ready space of that name."""
    path = Path(name)
    if not path.is_file():
        if str(name) not in ready_spaces():
            ready = ", ".join(ready_spaces())
            raise FairseqDocError(f"{name}: expected a YAML file or one of {ready}; got neither")
        path = READY / f"{name}.yaml"
    text = read_text(path)
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FairseqDocError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    options = re.findall(r"^-*([\w-]+)\s*:", text, re.MULTILINE)
    for option in options:  # YAML would take the last one
        if options.count(option) > 1:
            raise FairseqDocError(f"{path}: option {option} occurs twice; leave one out")
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
        except (ValueError, TypeError) as error:  # also raised by Optuna
            raise FairseqDocError(f"{name}: --{option}: {error}") from None
    return space


def _distribution(values: Any, kind: type | None) -> Distribution:
    """Optuna's distribution for the ``values`` of an option of this ``kind``. Optuna itself refuses
    an empty list, and ``log`` with low <= 0 or with a step."""
    keys = set(values) if isinstance(values, dict) else set()
    if keys == {"choices"} and isinstance(values["choices"], list):
        return CategoricalDistribution(values["choices"])
    if not {"low", "high"} <= keys <= {"low", "high", "log", "step"}:
        raise ValueError(
            "expected {low: ..., high: ...}, optionally with log: true or step: ..., or "
            f"{{choices: [...]}}; got {shown(str(values))}"
        )
    log = values.get("log", False)
    if not isinstance(log, bool):
        raise ValueError(f"log: expected true or false; got {shown(str(log))}")
    written = {key: value for key, value in values.items() if key != "log"}
    numbers = {key: float(value) for key, value in written.items()}  # YAML's 5e-4 is a string
    if not -math.inf < numbers["low"] < numbers["high"] < math.inf:
        raise ValueError("expected low < high; got low {low} and high {high}".format(**values))
    if kind is None:
        kind = int if all(isinstance(value, int) for value in written.values()) else float
    if kind is float:
        return FloatDistribution(**numbers, log=log)
    if not all(number.is_integer() for number in numbers.values()):
        raise ValueError(f"expected integers; got {shown(str(values))}")
    return IntDistribution(**{key: int(number) for key, number in numbers.items()}, log=log)


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
        parts = [(k, getattr(values, k, None)) for k in ("choices", "low", "high", "log", "step")]
        written[option] = {k: part for k, part in parts if part is not None and part is not False}
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
    startup = settings.startup_trials
    if settings.sampler == "gp":
        return GPSampler(seed=seed, n_startup_trials=startup)
    if settings.sampler == "tpe":
        return TPESampler(seed=seed, n_startup_trials=startup, multivariate=True)
    plain = RandomSampler(seed)
    if settings.sampler == "qmc":  # one sequence for all trials; the study counts its points
        return QMCSampler(seed=settings.seed, scramble=True, independent_sampler=plain)
    return plain
