"""Dynamic evaluation: a model that learns from the text it is scored on (Krause et al., 2018).

Each segment of T steps is scored; then the model learns from it:

    theta <- theta - s eta g / (M + epsilon) + lambda D (theta_0 - theta)
    D      = min(M / mean of M over all adapted weights, 1 / lambda)
    s      = min(1, bound sqrt(B) |M / (M + epsilon)| / |g / (M + epsilon)|)

g is the gradient of the segment's mean NLL, M the root mean square of such gradients on the
training text (:mod:`fairseq_doc.adaptation.gradient_statistics`), theta_0 the trained weights, to
which theta returns at the end. The factor s is an addition of this package: with an infinite
``bound`` the update is the published one. M averages over B columns, so a typical gradient of one
stream is sqrt(B) times as long; no update is longer than ``bound`` times the update that such a
gradient makes.

The next segment starts from the state that the older weights computed. Each model of an ensemble
learns from its own NLL. D's mean is over all weights, as in deepmind/lamb;
benkrause/dynamic-evaluation takes the mean of the tensors' means, which depends on how a model's
weights are cut into tensors.

Axes: one stream, T steps of a segment; B columns of the gradient statistics.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.utils import split_paths
from torch.nn.utils import get_total_norm

from fairseq_doc.adaptation.gradient_statistics import (
    differentiable,
    gradients_of,
    trained_parameters,
)
from fairseq_doc.errors import require
from fairseq_doc.options import check_ranges, option

ADAPTED = ("all", "output-weights")
# (eta, lambda) at segments of five steps that --dynamic-search tries; both grow with the segment.
RATES = (1e-5, 3e-5, 6e-5, 1e-4, 2e-4, 4e-4)
DECAYS = (3e-4, 1e-3, 3e-3, 1e-2)
USUAL_SEGMENT, USUAL_RATE, USUAL_DECAY = 5, 1e-4, 1e-3


@dataclass(frozen=True, kw_only=True)
class DynamicSettings:
    """How models learn while they are evaluated."""

    segment: int = option(
        "tokens between updates; a larger number is faster", USUAL_SEGMENT, metavar="T", least=1
    )
    rate: float | None = option(f"learning rate eta (default: {USUAL_RATE} T / 5)")
    decay: float | None = option(
        f"lambda, how fast weights return to the trained ones (default: {USUAL_DECAY} T / 5)"
    )
    epsilon: float = option(
        "added to M, so that weights that had almost no gradient in training take bounded steps",
        2e-5,
    )
    bound: float = option(
        "maximal length of an update, as a multiple of a typical one on the training text (inf: no "
        "limit, as published)",
        1.5,
    )
    adapt: str = option(
        "which weights learn; output-weights: W_pi and the output's bias",
        ADAPTED[0],
        choices=ADAPTED,
    )
    statistics: str | None = option(
        "file of the root mean squares of the gradients on the split train; computed and written if "
        "it does not exist; a.npz:b.npz for an ensemble (default: CHECKPOINT.BxT.npz)",
        metavar="FILE",
    )
    columns: int = option("columns of the batches for these gradients", 100, metavar="B", least=1)
    batches: int | None = option(
        "maximum number of batches for these gradients; with fewer, use a smaller rate (default: the "
        "whole text)",
        metavar="N",
        least=1,
    )

    def __post_init__(self) -> None:
        check_ranges(DynamicSettings, self, "dynamic.")
        scale = self.segment / USUAL_SEGMENT
        if self.rate is None:
            object.__setattr__(self, "rate", USUAL_RATE * scale)
        if self.decay is None:
            object.__setattr__(self, "decay", min(1.0, USUAL_DECAY * scale))
        assert self.rate is not None and self.decay is not None
        require(0 < self.rate < math.inf, "dynamic.rate", "positive", self.rate)
        require(0 <= self.decay <= 1, "dynamic.decay", "in [0, 1]", self.decay)
        require(0 < self.epsilon < math.inf, "dynamic.epsilon", "positive", self.epsilon)
        require(self.bound > 0, "dynamic.bound", "positive", self.bound)

    def statistics_paths(self, checkpoints: str) -> list[str]:
        """The file of gradient statistics of each checkpoint of ``a.pt:b.pt``."""
        models = split_paths(checkpoints)
        if self.statistics is None:
            return [f"{path}.{self.columns}x{self.segment}.npz" for path in models]
        files = split_paths(self.statistics)
        expected = f"a file for each model of {checkpoints}"
        require(len(files) == len(models), "dynamic.statistics", expected, self.statistics)
        return files


def grid(segment: int) -> list[tuple[float, float]]:
    """The pairs (eta, lambda) that a search tries, those near the usual pair first."""
    usual = (USUAL_RATE, USUAL_DECAY)

    def distance(pair):
        return sum(abs(math.log(x / y)) for x, y in zip(pair, usual, strict=True))

    scale = segment / USUAL_SEGMENT
    pairs = sorted(itertools.product(RATES, DECAYS), key=distance)
    return [(rate * scale, min(1.0, decay * scale)) for rate, decay in pairs]


def adapted_names(model: Any, adapt: str) -> list[str]:
    """Names of the parameters that learn."""
    parameters = trained_parameters(model)
    if adapt == ADAPTED[0]:
        return list(parameters)
    output = model.decoder.output
    chosen = [output.bias]
    if output.mixture_weights is not None:
        chosen.extend(output.mixture_weights.parameters())
    return [name for name, p in parameters.items() if any(p is one for one in chosen)]


class Adaptation:
    """One model while it learns; ``statistics`` are {name: M} of its parameters."""

    def __init__(
        self, model: Any, statistics: dict[str, torch.Tensor], settings: DynamicSettings
    ) -> None:
        self._model = model
        parameters = trained_parameters(model)
        names = adapted_names(model, settings.adapt)
        self._others = [p for name, p in parameters.items() if name not in names]
        # Any: torch's stubs know lists of plain tensors only.
        self._adapted: Any = [parameters[name] for name in names]
        self._trained = [p.detach().clone() for p in self._adapted]
        means = [statistics[name] for name in names]
        mean = torch.cat([m.double().flatten() for m in means]).mean()
        rate, decay = settings.rate, settings.decay
        assert rate is not None and decay is not None
        most = math.inf if decay == 0 else 1 / decay
        # lambda D, and eta / (M + epsilon)
        self._pulls: Any = [(m / mean.to(m)).clamp_(max=most).mul_(decay) for m in means]
        self._steps = [rate / (m + settings.epsilon) for m in means]
        typical = get_total_norm(torch._foreach_mul(means, self._steps)).item()
        self._longest = settings.bound * typical * math.sqrt(settings.columns)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Within the context the model can learn; its end restores the trained weights. The caller
        enables gradients, for the model's passes alone."""
        for parameter in self._others:
            parameter.requires_grad_(False)
        try:
            with differentiable(self._model):
                yield
        finally:
            for parameter in self._others:
                parameter.requires_grad_(True)
            with torch.no_grad():
                torch._foreach_copy_(self._adapted, self._trained)

    def learn(self, net_output: tuple, target: torch.Tensor) -> None:
        """One update from the model's output for a segment of one stream and its targets (1, T)."""
        gradients = gradients_of(self._model, net_output, target, self._adapted)
        updates = torch._foreach_mul(gradients, self._steps)
        length = get_total_norm(updates).item()
        share = self._longest / length if length > self._longest else 1.0
        torch._foreach_lerp_(self._adapted, self._trained, self._pulls)
        torch._foreach_add_(self._adapted, updates, alpha=-share)
