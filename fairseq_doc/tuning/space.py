"""Spaces of settings: which options of ``fairseq-train`` are tuned, and between which values.

A space is a YAML file of option names:

    lr: {low: 0.0005, high: 0.01, log: true}
    layers: {low: 1, high: 4}            # whole numbers, since both ends are
    dropout: {low: 0, high: 0.8, step: 0.1}
    optimizer: {choices: [adam, nag]}
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import read_text

READY = Path(__file__).parent / "spaces"  # those that can be used by name
MAX_BYTES = 1 << 20  # of a file
_KEYS = {"low", "high", "log", "step"}

Value: TypeAlias = bool | int | float | str
Settings: TypeAlias = Mapping[str, Value]  # {option without its dashes: value}


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones if both are.

    Attributes:
        log: whether they are drawn evenly on a logarithmic scale.
        step: between neighbouring values; None for every number.
    """

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def ends(self) -> tuple[Value, ...]:
        """The values that show whether an option takes all of them."""
        return self.low, self.high

    def at(self, position: float) -> Value:
        """The value at a position in [0, 1): equal parts for whole numbers and steps."""
        low, high = float(self.low), float(self.high)
        if self.whole and self.log:
            low, high = low - 0.5, high + 0.5
        elif self.whole or self.step is not None:
            step = self.step or 1
            count = round((high - low) / step) + 1
            value = self.low + min(int(position * count), count - 1) * step
            return value if self.whole else min(float(value), high)
        if self.log:
            value = math.exp(math.log(low) + position * (math.log(high) - math.log(low)))
        else:
            value = low + position * (high - low)
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(value)


@dataclass(frozen=True)
class Choices:
    """Some values, without an order. True gives the option, False leaves it out."""

    values: tuple[Value, ...]

    def ends(self) -> tuple[Value, ...]:
        """The values that show whether an option takes all of them."""
        return self.values

    def at(self, position: float) -> Value:
        """The value at a position in [0, 1)."""
        return self.values[min(int(position * len(self.values)), len(self.values) - 1)]


Space: TypeAlias = dict[str, Range | Choices]  # {option without its dashes: its values}


def ready_spaces() -> list[str]:
    """The names of the spaces that come with the package."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


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
    space: Space = {}
    options = [str(key).lstrip("-") for key in (keys or data)]
    for option in options:
        if not option or options.count(option) > 1:
            raise FairseqDocError(f"{name}: expected every option once; got {shown(option)} twice")
    for key, values in data.items():
        option = str(key).lstrip("-")
        space[option] = _parameter(values, f"{name}: --{option}")
    return space


def _parameter(values: Any, where: str) -> Range | Choices:
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
    if not all(isinstance(number, int | None) for number in (low, high, step)):
        low, high, step = float(low), float(high), None if step is None else float(step)
    return Range(low, high, log, step)


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


def _choices(values: Any, where: str) -> Choices:
    if not isinstance(values, list) or not values:
        raise FairseqDocError(f"{where}: choices: expected a list; got {shown(str(values))}")
    for value in values:
        if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
            raise FairseqDocError(
                f"{where}: choices: expected numbers, words, true or false; got {shown(str(value))}"
            )
    if len({(type(value) is bool, value) for value in values}) < len(values):
        raise FairseqDocError(f"{where}: choices: expected every value once; got {values}")
    return Choices(tuple(values))


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


def as_json(space: Space) -> dict[str, dict[str, Any]]:
    """The space as a file holds it, as what JSON can hold."""
    found: dict[str, dict[str, Any]] = {}
    for option, values in space.items():
        if isinstance(values, Choices):
            found[option] = {"choices": list(values.values)}
        else:
            kept = {"low": values.low, "high": values.high, "log": values.log, "step": values.step}
            found[option] = {
                key: value for key, value in kept.items() if value not in (False, None)
            }
            found[option] |= {"low": values.low, "high": values.high}  # 0 == False
    return found


def option_words(settings: Settings) -> list[str]:
    """``{"lr": 0.1, "amp": True}`` -> ``["--lr", "0.1", "--amp"]``, every digit kept."""
    words = []
    for option, value in settings.items():
        text = repr(value) if isinstance(value, float) else str(value)
        if isinstance(value, bool):
            words += [f"--{option}"] if value else []
        elif text.startswith("-"):  # argparse takes -1e-05 for an option
            words.append(f"--{option}={text}")
        else:
            words += [f"--{option}", text]
    return words


def short(settings: Settings) -> str:
    """Settings for a line that is read: four digits."""
    rounded = {
        option: float(f"{value:.4g}") if isinstance(value, float) else value
        for option, value in settings.items()
    }
    return " ".join(option_words(rounded))
