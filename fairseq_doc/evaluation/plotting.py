"""Pictures of learning curves, mixture weights and attention."""

import io
import tempfile
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output

FORMATS = ("png", "pdf", "svg", "jpg")


def check_plot_path(path, overwrite=False):
    """Raise ``FairseqDocError`` where a picture cannot be written to ``path``: before any work."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise FairseqDocError(
            f"{path}: expected a picture's name, ending in one of {', '.join(FORMATS)}"
        )
    check_output(path, overwrite)


def plot_curves(curves, path):
    """Draw {name: :class:`LearningCurve`}: perplexity over epochs, with a ring where averaging
    starts and a diamond where a fine-tuning stage does."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    figure, axes = _figure()
    for name, curve in curves.items():
        (line,) = axes.plot(
            list(curve.perplexities), list(curve.perplexities.values()), marker=".", label=name
        )
        marks = [(curve.averaging_after, "o", "averaging starts")]
        marks += [(epoch, "D", "fine-tuning starts") for epoch in curve.stages_after.values()]
        labelled = set()
        for epoch, marker, what in marks:
            if epoch in curve.perplexities:
                axes.plot(
                    epoch,
                    curve.perplexities[epoch],
                    marker,
                    color=line.get_color(),
                    markerfacecolor="none",
                    markersize=10,
                    linestyle="none",
                    label=None if what in labelled else f"{name}: {what}",
                )
                labelled.add(what)
    drawn = [p for curve in curves.values() for p in curve.perplexities.values()]
    within_a_decade = max(drawn) < 10 * min(drawn)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(
        MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10])
        if within_a_decade
        else LogLocator(subs=(1.0, 2.0, 5.0))
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation perplexity")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    _save(figure, path)


def plot_weights(weights, path):
    """Draw :class:`MixtureWeights`: one bar a component, coloured by its layer."""
    figure, axes = _figure()
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
    _save(figure, path)


def plot_attention(attention, path):
    """Draw :class:`fairseq_doc.evaluation.attention.Attention`: a row for each output word, a column
    for each source word, the darker the more weight."""
    columns, rows = len(attention.source), len(attention.output)
    figure, axes = _figure(2 + 0.32 * columns, 1.5 + 0.28 * rows)
    image = axes.imshow(attention.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    # Words are shown as they are, also where they hold what matplotlib would take for a formula.
    plain = {"parse_math": False}
    axes.set_xticks(range(columns), attention.source, rotation=60, ha="left", **plain)
    axes.set_yticks(range(rows), attention.output, **plain)
    axes.xaxis.tick_top()
    axes.set_xlabel("source")
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("output")
    figure.colorbar(image, label="attention weight")
    _save(figure, path)


def _figure(width=7, height=4.5):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _save(figure, path):
    path, drawn = Path(path), io.BytesIO()
    figure.savefig(drawn, dpi=130, format=path.suffix[1:].lower())
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # a full disk leaves no half
        whole = Path(folder) / path.name
        whole.write_bytes(drawn.getvalue())
        whole.replace(path)
