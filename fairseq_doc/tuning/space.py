"""Spaces of settings: which options of ``fairseq-train`` are tuned, and between which values.

A space is a YAML file of option names, read into Optuna's distributions:

    lr: {low: 0.0005, high: 0.01, log: true}
    layers: {low: 1, high: 4}            # whole numbers, since both ends are
    dropout: {low: 0, high: 0.8, step: 0.1}
    optimizer: {choices: [adam, nag]}    # true gives an option, false leaves it out
"""

import math
import os
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import read_text
from fairseq_doc.tuning.settings import READY, Value, ready_spaces

MAX_BYTES = 1 << 20  # of a file
_KEYS = {"low", "high", "log", "step"}

Distribution: TypeAlias = FloatDistribution | IntDistribution | CategoricalDistribution
Space: TypeAlias = dict[str, Distribution]  # {option without its dashes: its values}


def read_space(name: str | os.PathLike) -> Space:
    """The space in a YAML file, or the ready one of that name where there is no such file.

    Raises:
        FairseqDocError: no such space, or one that cannot be used.
    """
    path = Path(name)
    if not os.path.lexists(path) and str(name) in ready_spaces():
        path = READY / f"{name}.yaml"
    elif not os.path.lexists(path):
        raise FairseqDocError(
            f"{name}: expected a YAML file or one of {', '.join(ready_spaces())}; got neither"
        )
    text = read_text(path, MAX_BYTES)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FairseqDocError(
            f"{path}: line {line} is not valid YAML: {error.problem}; expected lines such as "
            "lr: {low: 0.001, high: 0.1, log: true}"
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        text = " ".join(str(error).split())
        raise FairseqDocError(f"{path} is not valid YAML: {text[:200]}") from None
    names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    return parse_space(data, str(path), names)


def parse_space(data: Any, name: str, keys: list[str] | None = None) -> Space:
    """The space that a file holds.

    Args:
        data: what YAML or JSON gave.
        name: of the file, for messages.
        keys: the names as they are written, where some may be there twice.

    Raises:
        FairseqDocError: it cannot be used.
    """
    if not isinstance(data, dict) or not data:
        got = "nothing" if not data else shown(str(data))
        raise FairseqDocError(
            f"{name}: expected options and their values, such as lr: {{low: 0.001, high: 0.1, log: "
            f"true}}; got {got}"
        )
    options = [str(key).lstrip("-") for key in (keys or data)]
    for option in options:
        if not option or options.count(option) > 1:
            raise FairseqDocError(f"{name}: expected every option once; got {shown(option)} twice")
    names = {str(key).lstrip("-"): values for key, values in data.items()}
    return {option: _parameter(values, f"{name}: --{option}") for option, values in names.items()}


def _parameter(values: Any, where: str) -> Distribution:
    if isinstance(values, dict) and set(values) == {"choices"}:
        return _choices(values["choices"], where)
    if not isinstance(values, dict) or not {"low", "high"} <= set(values) <= _KEYS:
        raise FairseqDocError(
            f"{where}: expected {{low: ..., high: ...}}, with log: true or step: ... or without, or "
            f"{{choices: [...]}}; got {shown(str(values))}"
        )
    low, high = _number(values["low"], f"{where}: low"), _number(values["high"], f"{where}: high")
    log, step = values.get("log", False), values.get("step")
    if not isinstance(log, bool):
        raise FairseqDocError(f"{where}: log: expected true or false; got {shown(str(log))}")
    if low >= high:
        raise FairseqDocError(f"{where}: expected low < high; got low {low} and high {high}")
    if log and low <= 0:
        raise FairseqDocError(f"{where}: expected low > 0 with log: true; got {low}")
    if step is not None:
        step = _step(step, low, high, log, where)
    if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
        return IntDistribution(low, high, log=log, step=step or 1)
    return FloatDistribution(low, high, log=log, step=step)


def _step(value: Any, low: int | float, high: int | float, log: bool, where: str) -> int | float:
    step = _number(value, f"{where}: step")
    if log:
        raise FairseqDocError(f"{where}: expected log: true or a step; got both")
    if step <= 0:
        raise FairseqDocError(f"{where}: expected a step above 0; got {step}")
    count = (high - low) / step
    if abs(count - round(count)) > 1e-6 or round(count) < 1:
        raise FairseqDocError(
            f"{where}: expected a whole number of steps from {low} to {high}; got steps of {step}"
        )
    return step


def _choices(values: Any, where: str) -> Distribution:
    if not isinstance(values, list) or not values:
        raise FairseqDocError(f"{where}: choices: expected a list; got {shown(str(values))}")
    for value in values:
        if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
            raise FairseqDocError(
                f"{where}: choices: expected numbers, words, true or false; got {shown(str(value))}"
            )
    if len({(type(value) is bool, value) for value in values}) < len(values):
        raise FairseqDocError(f"{where}: choices: expected every value once; got {values}")
    return CategoricalDistribution(values)


def _number(value: Any, where: str) -> int | float:
    """A finite number; YAML takes 5e-4, without a point, for a word."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise FairseqDocError(f"{where}: expected a number; got {shown(str(value))}") from None
    return value if isinstance(value, int) else number


def ends(values: Distribution) -> tuple[Any, ...]:
    """The values that show whether an option takes all of them."""
    if isinstance(values, CategoricalDistribution):
        return values.choices
    return values.low, values.high


def is_inside(value: Any, values: Distribution) -> bool:
    """Whether an option of these values can have this one."""
    try:
        return values._contains(values.to_internal_repr(value))
    except (ValueError, TypeError):
        return False


def as_json(space: Space) -> dict[str, dict[str, Any]]:
    """The space as a file holds it, as what JSON can hold. Studies keep it, so it is not Optuna's
    own JSON of a distribution."""
    found: dict[str, dict[str, Any]] = {}
    for option, values in space.items():
        if isinstance(values, CategoricalDistribution):
            found[option] = {"choices": list(values.choices)}
            continue
        found[option] = {"low": values.low, "high": values.high}
        if values.log:
            found[option]["log"] = True
        elif values.step not in (None, 1) or isinstance(values.step, float):
            found[option]["step"] = values.step
    return found
