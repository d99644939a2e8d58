"""analyse: mean weight of each mixture component, and their coefficient of variation (Table 4)."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.analysis.components import mixture_weights
from fairseq_doc.analysis.plotting import plot_weights
from fairseq_doc.cli.arguments import (
    PictureOptions,
    SingleModelOptions,
    SplitOptions,
    ensemble_of,
)
from fairseq_doc.cli.outputs import table

EXAMPLE = "fairseq-doc weights data-bin/ptb --path a.pt --gen-subset valid --picture weights.png"


@dataclass(frozen=True, kw_only=True)
class Options(PictureOptions, SplitOptions, SingleModelOptions):
    """Options of this command."""


def run(settings: Options) -> dict[str, Any]:
    """Result: ``components``, each with its ``layer`` and mean ``weight``; ``layers``, the sums by
    layer; ``coefficient_of_variation`` of the components' weights, sqrt(beta) (Eq. 13); ``tokens``;
    ``split``; ``picture``, the file."""
    found = mixture_weights(ensemble_of(settings), settings.gen_subset)
    if settings.picture:
        plot_weights(found, settings.picture)
    pairs = zip(found.layers, found.weights, strict=True)
    return {
        "split": settings.gen_subset,
        "components": [{"layer": layer, "weight": weight} for layer, weight in pairs],
        "layers": {str(layer): weight for layer, weight in found.by_layer.items()},
        "coefficient_of_variation": found.coefficient_of_variation,
        "tokens": found.tokens,
    }


def as_text(result: dict[str, Any]) -> str:
    """A table."""
    rows = [["component", "layer", "mean weight"]]
    for number, component in enumerate(result["components"], start=1):
        rows.append([str(number), str(component["layer"]), f"{component['weight']:.4f}"])
    rows += [["all", layer, f"{weight:.4f}"] for layer, weight in result["layers"].items()]
    total = (
        "{split}: coefficient of variation (sqrt(beta)) {coefficient_of_variation:.4f} over "
        "{tokens:,} tokens".format(**result)
    )
    return "\n".join([*table(rows, ">>>"), total])
