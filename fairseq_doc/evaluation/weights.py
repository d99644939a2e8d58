"""Mean weights of a mixture's components over a text (the paper's Table 4)."""

from dataclasses import dataclass

import torch

from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import Progress, no_progress


@dataclass(frozen=True)
class MixtureWeights:
    """Mean weights over a text."""

    layers: list[int]  # the layer n that each component comes from, (J,)
    weights: list[float]  # the mean of pi_j over the tokens, (J,); their sum is one
    tokens: int

    @property
    def by_layer(self) -> dict[int, float]:
        """{layer: sum of the weights of its components}."""
        totals = dict.fromkeys(self.layers, 0.0)
        for layer, weight in zip(self.layers, self.weights, strict=True):
            totals[layer] += weight
        return totals

    @property
    def coefficient_of_variation(self) -> float:
        """sqrt(beta) of Eq. 12-13: population standard deviation divided by mean."""
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return (weights.std(correction=0) / weights.mean()).item()


@torch.no_grad()
def mixture_weights(
    ensemble: Ensemble, split: str, progress: Progress = no_progress
) -> MixtureWeights:
    """Mean weights of one model over a split, with a carried state."""
    model = ensemble.single
    components = model.decoder.output.components  # number of components from each layer
    total = torch.zeros(sum(components), dtype=torch.float64, device=ensemble.device)  # (J,)
    tokens = 0
    for sample in progress(windows_of(ensemble, split), f"weights {split}"):
        source = sample["net_input"]["src_tokens"].to(ensemble.device)
        _, extra = model(source, window=sample["net_input"]["window"])
        total += extra["log_weights"].double().exp().sum((0, 1))  # (J,)
        tokens += source.numel()
    layers = [layer for layer, count in enumerate(components) for _ in range(count)]
    return MixtureWeights(layers, (total / tokens).tolist(), tokens)
