"""The weights that a mixture gives to its components over a text (the paper's Table 4)."""

from dataclasses import dataclass

import torch

from fairseq_doc.evaluation.perplexity import unchanged, windows_of


@dataclass(frozen=True)
class MixtureWeights:
    """Mean weights over a text.

    Attributes:
        layers: the layer n that each component comes from, (J,).
        weights: the mean of pi_j over the tokens, (J,); their sum is one.
        tokens: how many.
    """

    layers: list
    weights: list
    tokens: int

    @property
    def by_layer(self):
        """{layer: sum of its components' weights}."""
        totals = dict.fromkeys(self.layers, 0.0)
        for layer, weight in zip(self.layers, self.weights, strict=True):
            totals[layer] += weight
        return totals

    @property
    def coefficient_of_variation(self):
        """sqrt(beta) of Eq. 12-13: population standard deviation over mean."""
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return (weights.std(correction=0) / weights.mean()).item()


@torch.no_grad()
def mixture_weights(ensemble, split, progress=unchanged):
    """:class:`MixtureWeights` of one model over a split, the state carried over the whole text.

    Raises:
        FairseqDocError: several models, or no such split.
    """
    model = ensemble.single
    total, tokens = 0.0, 0
    for sample in progress(windows_of(ensemble, split), f"weights {split}"):
        source = sample["net_input"]["src_tokens"].to(ensemble.device)
        _, extra = model(source, window=sample["net_input"]["window"])
        total = total + extra["log_weights"].double().exp().sum((0, 1))  # (J,)
        tokens += source.numel()
    counts = enumerate(model.decoder.output.components)
    layers = [layer for layer, count in counts for _ in range(count)]
    return MixtureWeights(layers, (total / tokens).tolist(), tokens)
