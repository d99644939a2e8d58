"""Plots of a study. Trials that diverged have no value: in the history they are crosses at the edge, in
the other plots a note counts them."""

import math
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fairseq_doc.evaluation.plotting import new_figure, save_figure
from fairseq_doc.tuning.slots import Slot
from fairseq_doc.tuning.space import Choices, Range, Space

COLUMNS = 3  # of the slices; four for more than six options
_Path = str | os.PathLike[str]


def _finite(slots: Sequence[Slot]) -> tuple[list[Slot], str]:
    """The slots of finite values, and a note on those left out."""
    complete = [slot for slot in slots if slot.complete]
    finite = [slot for slot in complete if math.isfinite(_value(slot))]
    left_out = len(complete) - len(finite)
    note = f"{left_out} of {len(complete)} trials diverged and are left out" if left_out else ""
    return finite, note


def _value(slot: Slot) -> float:
    assert slot.last.value is not None
    return slot.last.value


def _limits(values: Sequence[float], maximize: bool) -> tuple[float, float, int]:
    """The part of the axis that shows the better three quarters of the values, with a margin; how many
    values are beyond it. A few bad trainings would else press all others into one line."""
    worse = -1 if maximize else 1
    ordered = sorted(values, key=lambda value: worse * value)
    best, edge = ordered[0], ordered[math.ceil(0.75 * (len(ordered) - 1))]
    bound = edge + 1.5 * (edge - best) if edge != best else ordered[-1]
    far = max((value for value in values if worse * (bound - value) >= 0), key=lambda v: worse * v)
    margin = 0.05 * abs(far - best) or 0.05 * abs(best) or 1.0
    low, high = min(best, far) - margin, max(best, far) + margin
    return low, high, sum(not low <= value <= high for value in values)


def plot_history(slots: Sequence[Slot], metric: str, maximize: bool, path: _Path) -> None:
    """Plot every value by the order of the trials, and the best one so far."""
    finite, _ = _finite(slots)
    figure, axes = new_figure()
    numbers = [slot.number for slot in finite]
    values = [_value(slot) for slot in finite]
    low, high, beyond = _limits(values, maximize)
    axes.plot(numbers, values, "o", markersize=5, alpha=0.7, label="a trial")
    best = list(accumulate(values, max if maximize else min))
    axes.step(numbers, best, where="post", color="C1", label="best so far")
    diverged = [slot.number for slot in slots if slot.complete and slot not in finite]
    edge = low if maximize else high
    if diverged:
        axes.plot(
            diverged,
            [edge] * len(diverged),
            "x",
            color="gray",
            clip_on=False,
            label="diverged (at the edge)",
        )
    axes.set_ylim(low, high)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("trial")
    axes.set_ylabel(f"best validation {metric}")
    axes.grid(alpha=0.3)
    axes.legend()
    _title(axes, _beyond("", beyond))
    save_figure(figure, path)


def plot_slices(
    slots: Sequence[Slot], space: Space, metric: str, maximize: bool, path: _Path
) -> None:
    """Plot the values against each option (Figure 2 of Melis et al.); later trials are darker."""
    from matplotlib.ticker import MaxNLocator

    finite, note = _finite(slots)
    columns = min(COLUMNS if len(space) <= 6 else COLUMNS + 1, len(space))
    rows = math.ceil(len(space) / columns)
    figure, grid = new_figure(1.5 + 3.2 * columns, 0.9 + 2.6 * rows, rows, columns)
    values = [_value(slot) for slot in finite]
    low, high, beyond = _limits(values, maximize)
    panels = list(np.ravel(grid))
    points: Any = None
    for axes, (option, parameter) in zip(panels, space.items(), strict=False):
        points = axes.scatter(
            [_position(slot.settings[option], parameter) for slot in finite],
            values,
            c=[slot.number for slot in finite],
            cmap="viridis_r",
            s=18,
            alpha=0.85,
        )
        _scale(axes, parameter)
        axes.set_ylim(low, high)
        axes.set_xlabel(f"--{option}")
        axes.grid(alpha=0.3)
    for axes in panels[len(space) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel(f"validation {metric}")
    whole = MaxNLocator(8, integer=True)
    figure.colorbar(points, ax=panels, label="trial", aspect=40, pad=0.01, ticks=whole)
    _title(figure, _beyond(note, beyond))
    save_figure(figure, path)


def plot_importances(importances: Mapping[str, float], path: _Path) -> None:
    """Plot PED-ANOVA's share of every option; empty with a note where there are too few trials."""
    figure, axes = new_figure(7, 1.4 + 0.4 * max(1, len(importances)))
    names = list(importances)[::-1]
    bars = axes.barh([f"--{name}" for name in names], [importances[name] for name in names])
    axes.bar_label(bars, [f"{importances[name]:.2f}" for name in names], padding=3)
    axes.set_xlim(0, 1.12 * max([*importances.values(), 0.1]))
    axes.set_xlabel("importance (PED-ANOVA, share of 1)")
    if not importances:
        axes.set_yticks([])
        _title(axes, "too few different values to say")
    save_figure(figure, path)


def plot_parallel(
    slots: Sequence[Slot], space: Space, metric: str, maximize: bool, path: _Path
) -> None:
    """Plot a line for each trial through its settings to its value; darker for better."""
    from matplotlib import colormaps

    finite, note = _finite(slots)
    figure, axes = new_figure(2.5 + 1.35 * (len(space) + 1), 4.8)
    values = [_value(slot) for slot in finite]
    low, high, beyond = _limits(values, maximize)
    shown = [slot for slot in finite if low <= _value(slot) <= high]
    ordered = sorted(shown, key=_value, reverse=not maximize)  # the best are drawn last
    colours = colormaps["viridis"].reversed()
    for rank, slot in enumerate(ordered):
        heights = [_height(slot.settings[option], p) for option, p in space.items()]
        heights.append((_value(slot) - low) / (high - low))
        share = (rank + 1) / len(ordered)
        axes.plot(range(len(heights)), heights, color=colours(share), alpha=0.25 + 0.65 * share)
    places = range(len(space) + 1)
    for place, parameter in zip(places, space.values(), strict=False):
        _write_ticks(axes, place, _ticks(parameter))
    _write_ticks(axes, len(space), [(k / 4, f"{low + k / 4 * (high - low):.4g}") for k in range(5)])
    axes.set_xlim(-0.45, len(space) + 0.45)
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([])
    names = [_in_two_lines(f"--{option}") for option in space]
    axes.set_xticks(list(places), [*names, f"validation\n{metric}"])
    for side in ("top", "left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    _title(
        axes, _beyond("; ".join(part for part in ("darker lines are better", note) if part), beyond)
    )
    save_figure(figure, path)


def _in_two_lines(option: str) -> str:
    """A long name, broken at its last hyphen."""
    first, _, last = option.rpartition("-")
    return f"{first}-\n{last}" if len(option) > 13 and first != "-" else option


def _write_ticks(axes: Any, place: int, ticks: Sequence[tuple[float, str]]) -> None:
    """A vertical axis at a place, its labels to its right."""
    axes.axvline(place, color="black", linewidth=0.8, zorder=3)
    for height, label in ticks:
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
        axes.text(place + 0.05, height, label, fontsize=7.5, va="center", bbox=box, zorder=4)


def _ticks(parameter: Range | Choices) -> list[tuple[float, str]]:
    """(height, label) of an axis of the parallel coordinates."""
    if isinstance(parameter, Choices):
        return [(_height(value, parameter), str(value)[:16]) for value in parameter.values]
    if parameter.log:
        low, high = math.log(parameter.low), math.log(parameter.high)
        values: list[float] = [math.exp(low + k / 4 * (high - low)) for k in range(5)]
    else:
        values = [parameter.low + k / 4 * (parameter.high - parameter.low) for k in range(5)]
    if parameter.whole:
        values = sorted({round(value) for value in values})
    return [(_height(value, parameter), f"{value:.3g}") for value in values]


def _height(value: Any, parameter: Range | Choices) -> float:
    """Where a value is on an axis from 0 to 1."""
    if isinstance(parameter, Choices):
        return (_position(value, parameter) + 0.5) / len(parameter.values)
    if parameter.log:
        return math.log(value / parameter.low) / math.log(parameter.high / parameter.low)
    return (value - parameter.low) / (parameter.high - parameter.low)


def _position(value: Any, parameter: Range | Choices) -> float:
    """Where a value is on the axis of a slice: a choice is its number."""
    if isinstance(parameter, Choices):
        return next(n for n, own in enumerate(parameter.values) if own is value or own == value)
    return value


def _scale(axes: Any, parameter: Range | Choices) -> None:
    """The axis of a slice: the whole range, and ticks that do not overlap."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if isinstance(parameter, Choices):
        axes.set_xticks(range(len(parameter.values)), [str(value) for value in parameter.values])
        axes.set_xlim(-0.5, len(parameter.values) - 0.5)
        return
    low, high = float(parameter.low), float(parameter.high)
    if parameter.log:
        axes.set_xscale("log")
        few = high <= 100 * low
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter("{x:g}")
        margin = (high / low) ** 0.04
        axes.set_xlim(low / margin, high * margin)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=parameter.whole))
        margin = 0.04 * (high - low)
        axes.set_xlim(low - margin, high + margin)


def _beyond(note: str, beyond: int) -> str:
    """The note, and how many values are beyond the axis."""
    verb = "value is" if beyond == 1 else "values are"
    far = f"{beyond} worse {verb} beyond the axis" if beyond else ""
    return "; ".join(part for part in (note, far) if part)


def _title(target: Any, text: str) -> None:
    if text and hasattr(target, "suptitle"):
        target.suptitle(text, fontsize=9)
    elif text:
        target.set_title(text, fontsize=9)
