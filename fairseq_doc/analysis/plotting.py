"""Plots of learning curves, mixture weights and attention."""

import io
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_doc.analysis.components import MixtureWeights, SentenceComponents
from fairseq_doc.analysis.learning_curves import LearningCurve, mean_curve
from fairseq_doc.files import whole_file

MAX_HEAT_MAP_TOKENS = 200  # a heat map of this many words is 60 inches wide


def plot_curves(curves: Mapping[str, Sequence[LearningCurve]], path: str | os.PathLike) -> None:
    """Plot perplexity over epochs: for each name the mean of its seeds and, if there are several,
    their range as a band. A ring marks where averaging starts, a diamond where a fine-tuning stage
    starts."""
    figure, axes = new_figure()
    drawn: list[float] = []
    marks: dict[str, tuple[str, list[tuple[int, float]]]] = {
        "averaging starts": ("o", []),
        "fine-tuning starts": ("D", []),
    }
    for name, seeds in curves.items():
        curve = mean_curve(seeds)
        means, epochs = curve.perplexities, list(curve.perplexities)
        (line,) = axes.plot(epochs, list(means.values()), marker=".", label=name)
        ranges = [[seed.perplexities[epoch] for seed in seeds] for epoch in epochs]
        if len(seeds) > 1:
            lowest, highest = list(map(min, ranges)), list(map(max, ranges))
            axes.fill_between(epochs, lowest, highest, color=line.get_color(), alpha=0.25, lw=0)
        drawn += chain.from_iterable(ranges)
        starts = [curve.averaging_after], curve.stages_after.values()
        for (_, points), after in zip(marks.values(), starts, strict=True):
            points += [(epoch, means[epoch]) for epoch in epochs if epoch in after]
    for label, (marker, points) in marks.items():
        if points:
            style = {"color": "black", "markerfacecolor": "none", "markersize": 10}
            axes.plot(*zip(*points, strict=True), marker, label=label, **style)
    _use_log_scale(axes, min(drawn), max(drawn))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="epoch", ylabel="validation perplexity")
    axes.grid(alpha=0.3, which="both")
    for text in axes.legend().get_texts():
        text.set_parse_math(False)  # a name such as $x$ is no formula
    save_figure(figure, path)


def _use_log_scale(axes: Any, smallest: float, largest: float) -> None:
    """A logarithmic axis of perplexity, with enough ticks also within one decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    ticks: Any = LogLocator(subs=(1.0, 2.0, 5.0))
    if largest < 10 * smallest:
        ticks = MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10])
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticks)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def plot_weights(weights: MixtureWeights, path: str | os.PathLike) -> None:
    """Plot one bar for each component, coloured by its layer."""
    figure, axes = new_figure()
    totals = weights.by_layer
    numbers = range(1, len(weights.weights) + 1)
    for colour, layer in enumerate(totals):
        own = [number for number in numbers if weights.layers[number - 1] == layer]
        heights = [weights.weights[number - 1] for number in own]
        label = f"from layer {layer}: {totals[layer]:.3f} in all"
        axes.bar(own, heights, color=f"C{colour}", label=label)
    even = 1 / len(weights.weights)
    axes.axhline(even, color="gray", linestyle="--", linewidth=1, label=f"even: {even:.3f}")
    title = f"coefficient of variation {weights.coefficient_of_variation:.3f}"
    axes.set(xticks=numbers, xlabel="component", ylabel="mean weight", title=title)
    axes.legend()
    save_figure(figure, path)


def plot_attention(attention: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Plot a heat map of the result of ``fairseq-doc attention``: a row for each output word, a
    column for each source word."""
    columns, rows = len(attention["source"]), len(attention["output"])
    figure, axes = new_figure(2 + 0.32 * columns, 1.5 + 0.28 * rows)
    image = axes.imshow(attention["weights"], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    # Without parse_math matplotlib would read a word such as $x$ as a formula.
    plain: dict[str, Any] = {"parse_math": False}
    axes.set_xticks(range(columns), attention["source"], rotation=60, ha="left", **plain)
    axes.set_yticks(range(rows), attention["output"], **plain)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set(xlabel="source", ylabel="output")
    figure.colorbar(image, label="attention weight")
    save_figure(figure, path)


def plot_components(
    sentence: SentenceComponents, component_layers: Sequence[int], path: str | os.PathLike
) -> None:
    """Plot two heat maps, the weights and the posteriors: a column for each word, a row for each
    component and, if a layer has several, a row above them for their sum. ``component_layers``: the
    layer of each component, (J,)."""
    from matplotlib.colors import PowerNorm

    words = sentence.words
    rows = _rows_by_layer(component_layers)
    panels = (
        ("weight: before the word is known", sentence.parts.weights.t()),  # (G, n)
        ("posterior: when the word is known", sentence.parts.posteriors.t()),
    )
    width = max(5.5, 2.8 + 0.3 * len(words))  # the titles need the first
    figure, all_axes = new_figure(width, 2.6 + 0.4 * (rows[-1][0] + 1), rows=2)
    norm = PowerNorm(0.5, vmin=0, vmax=1)  # weights of many components are small
    columns = [column - 0.5 for column in range(len(words) + 1)]
    for axes, (title, shares) in zip(all_axes, panels, strict=True):
        for place, _, part in rows:
            edges = (place - 0.5, place + 0.5)
            cells = shares[part][None]
            image = axes.pcolormesh(
                columns, edges, cells, cmap="Blues", norm=norm, edgecolors="white", lw=0.5
            )
        axes.set_title(title, loc="left")
        axes.set_xticks(range(len(words)), words, rotation=60, ha="right", parse_math=False)
        axes.set_yticks([place for place, *_ in rows], [label for _, label, _ in rows])
        axes.set_ylabel("component")
        axes.set_ylim(rows[-1][0] + 0.5, -0.5)
        axes.tick_params(length=0)
        axes.set_frame_on(False)
    ticks = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]
    figure.colorbar(image, ax=list(all_axes), ticks=ticks, format="{x:g}", aspect=50, pad=0.02)
    save_figure(figure, path)


def _rows_by_layer(component_layers: Sequence[int]) -> list[tuple[float, str, int]]:
    """(vertical position, label, index of the part) of each row of a heat map, with gaps between
    layers."""
    rows: list[tuple[float, str, int]] = []
    place = 0.0
    for number, layer in enumerate(dict.fromkeys(component_layers)):
        own = [j for j, of in enumerate(component_layers) if of == layer]
        label = f"layer {layer}, "
        if len(own) > 1:
            rows.append((place, f"{label}sum", len(component_layers) + number))
            place += 1.2
            label = ""
        for component in own:
            rows.append((place, f"{label}{component + 1}", component))
            place += 1
        place += 0.6
    return rows


def new_figure(width: float = 7, height: float = 4.5, rows: int = 1) -> tuple[Any, Any]:
    """An empty figure of ``width`` and ``height`` inches, and its axes: an array if there are
    several rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows)


def save_figure(figure: Any, path: str | os.PathLike) -> None:
    """Write a figure in the format of the name's ending. The text of an SVG stays text, which is
    shown in the viewer's own font."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(drawn, dpi=130, format=Path(path).suffix[1:].lower())
    with whole_file(path, binary=True) as file:
        file.write(drawn.getvalue())
