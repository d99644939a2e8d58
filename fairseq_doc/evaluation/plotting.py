"""Plots of learning curves, mixture weights and attention."""

import io
import os
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.attention import Attention
from fairseq_doc.evaluation.learning_curves import LearningCurve
from fairseq_doc.evaluation.weights import MixtureWeights
from fairseq_doc.files import check_output, whole_file

FORMATS = ("png", "pdf", "svg", "jpg")


def check_plot_path(path: str | os.PathLike, overwrite: bool = False) -> None:
    """Raise ``FairseqDocError`` where no picture can be written to ``path``; call it before any
    work."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise FairseqDocError(
            f"{path}: expected a picture's name, ending in one of {', '.join(FORMATS)}"
        )
    check_output(path, overwrite)


def plot_curves(curves: dict[str, LearningCurve], path: str | os.PathLike) -> None:
    """Plot perplexity over epochs, one curve for each name: a ring where averaging starts, a diamond
    where a fine-tuning stage starts."""
    figure, axes = new_figure()
    for name, curve in curves.items():
        epochs, perplexities = list(curve.perplexities), list(curve.perplexities.values())
        (line,) = axes.plot(epochs, perplexities, marker=".", label=name)
        averaging = [] if curve.averaging_after is None else [curve.averaging_after]
        fine_tuning = list(curve.stages_after.values())
        _mark(axes, curve, averaging, "o", f"{name}: averaging starts", line.get_color())
        _mark(axes, curve, fine_tuning, "D", f"{name}: fine-tuning starts", line.get_color())
    drawn = [value for curve in curves.values() for value in curve.perplexities.values()]
    _use_log_scale(axes, min(drawn), max(drawn))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation perplexity")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    save_figure(figure, path)


def _mark(
    axes: Any, curve: LearningCurve, epochs: list[int], marker: str, label: str, color: str
) -> None:
    """Mark those of the epochs that were validated; one entry in the legend for all of them."""
    epochs = [epoch for epoch in epochs if epoch in curve.perplexities]
    if epochs:
        axes.plot(
            epochs,
            [curve.perplexities[epoch] for epoch in epochs],
            marker,
            color=color,
            markerfacecolor="none",
            markersize=10,
            linestyle="none",
            label=label,
        )


def _use_log_scale(axes: Any, smallest: float, largest: float) -> None:
    """A logarithmic axis of perplexity, with enough ticks also within one decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    ticks: MaxNLocator | LogLocator
    if largest < 10 * smallest:
        ticks = MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10])
    else:
        ticks = LogLocator(subs=(1.0, 2.0, 5.0))
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
    axes.set_xticks(list(numbers))
    axes.set_xlabel("component")
    axes.set_ylabel("mean weight")
    axes.set_title(f"coefficient of variation {weights.coefficient_of_variation:.3f}")
    axes.legend()
    save_figure(figure, path)


def plot_attention(attention: Attention, path: str | os.PathLike) -> None:
    """Plot a heat map: a row for each output word, a column for each source word, darker for more
    weight."""
    columns, rows = len(attention.source), len(attention.output)
    figure, axes = new_figure(2 + 0.32 * columns, 1.5 + 0.28 * rows)
    image = axes.imshow(attention.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    # Without parse_math matplotlib would read a word such as $x$ as a formula.
    plain: dict[str, Any] = {"parse_math": False}
    axes.set_xticks(range(columns), attention.source, rotation=60, ha="left", **plain)
    axes.set_yticks(range(rows), attention.output, **plain)
    axes.xaxis.tick_top()
    axes.set_xlabel("source")
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("output")
    figure.colorbar(image, label="attention weight")
    save_figure(figure, path)


def new_figure(
    width: float = 7, height: float = 4.5, rows: int = 1, columns: int = 1
) -> tuple[Any, Any]:
    """An empty figure of so many inches, and its axes: an array of them where there are several."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def save_figure(figure: Any, path: str | os.PathLike) -> None:
    """Write a figure in the format that the name ends in."""
    path = Path(path)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=130, format=path.suffix[1:].lower())
    with whole_file(path, binary=True) as file:
        file.write(drawn.getvalue())
