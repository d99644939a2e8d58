"""The Direct Output Connection: layer outputs -> component vectors and log weights -> P.

This file needs torch but not fairseq (docs/output_layer.md).

Axes: B streams, T time, V vocabulary, N LSTM layers, D_n width of layer n, J components, d width of
a component vector.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.modules.dropout import dropout, dropout_mask
from fairseq_doc.ops.matmul import is_on_cpu, linear
from fairseq_doc.ops.mixture import Mixture, sum_dtype
from fairseq_doc.ops.mixture_log_probs import mixture_log_probs
from fairseq_doc.ops.mixture_nll import fused_mixture_nll, fused_smoothed_mixture_nll

# Named functions, which pickle can find.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "linear": torch.positive}


def parse_components(text: str, n_layers: int) -> list[int]:
    """``"0,0,5,15"`` -> [0, 0, 5, 15]: the number of components i_n from each layer n = 0..N.
    Raises ``FairseqDocError`` unless they are N + 1 integers >= 0, at least one positive."""
    try:
        counts = [int(part) for part in str(text).split(",")]
    except ValueError:
        counts = []
    if len(counts) != n_layers + 1 or min(counts) < 0 or not any(counts):
        raise FairseqDocError(
            f"components {text}: expected {n_layers + 1} numbers, for layers 0 (the embedding) to "
            f"{n_layers}, none negative and not all 0, such as 0,0,5,15",
            "components",
        )
    return counts


class NotFiniteError(FairseqDocError):
    """A score is infinite or NaN."""


def check_finite(
    scores: Tensor, question: str = "has the training diverged?", *parameters: str
) -> None:
    """Raise ``NotFiniteError``, whose text ends with ``question``, unless all scores are finite.
    ``parameters`` are the parameters named in the question."""
    finite = torch.isfinite(scores)
    if not finite.all():
        raise NotFiniteError(
            "a score is not finite: expected a finite log-probability for every target, got "
            f"{scores[~finite].flatten()[0].item()}; {question}",
            *parameters,
        )


def at_temperature(log_probs: Tensor, inverse: Tensor | float) -> Tensor:
    """log of P^(1/T), renormalised, from log P (..., V) and ``inverse`` = 1 / T. On a CPU it is
    computed in float64, which would be slow on most GPUs."""
    below_top = log_probs - log_probs.amax(-1, keepdim=True)
    if log_probs.device.type == "cpu":
        below_top = below_top.double()
    return torch.log_softmax(below_top * inverse, dim=-1)


def near(weight: Tensor, n_components: int, noise: float) -> Tensor:
    """W_j = W + noise r E_j for J components, stacked to (J d, D), from W (d, D). The entries of E_j
    are standard normal, and r is the root mean square of those of W (1 / sqrt(d) for the identity),
    so the noise changes W h by about ``noise`` times its length."""
    copies = weight.repeat(n_components, 1)
    return copies + torch.randn_like(copies) * (noise * weight.pow(2).mean().sqrt())


class MixtureOutput(nn.Module):
    """P = sum_j pi_j softmax(W k_j + b), with components k_j from any layers (Eq. 7-11).

    ``components = [0, ..., 0, J]`` is a mixture of softmaxes (MoS). A single component has the
    weight one and no W_pi. If ``project`` is false, the single component is h^N itself, as in the
    output of a plain AWD-LSTM (Merity et al., 2018).

    :meth:`forward` returns the component vectors, the log weights and a one in a single tensor,
    ``mixture_params`` (..., J d + J + 1), because fairseq slices and flattens only the first output
    of a decoder. fairseq's generator also divides it by the temperature T. The one is then 1 / T,
    from which :meth:`log_probs` recovers T.

    Raises ``FairseqDocError`` for inconsistent arguments.
    """

    def __init__(
        self,
        widths: Sequence[int],  # D_0, ..., D_N
        components: Sequence[int],  # i_0, ..., i_N, with J = their sum
        weight: nn.Parameter,  # W, (V, d), which may be tied to the embedding
        activation: str = "tanh",  # or linear: of W_j h^n + b_j
        dropout: float = 0.0,  # dropout of the k_j
        project: bool = True,  # k_j = activation(W_j h^n + b_j), or k_1 = h^N
        precision: torch.dtype = torch.float32,  # of products with W and W_j: ``matmul_dtype``
        locked: bool = True,  # one dropout mask (d,) per stream for all T and J; else per entry
        weight_bias: bool = False,  # add b_pi: pi = softmax(W_pi h^N + b_pi)
    ) -> None:
        super().__init__()
        self.dim = weight.size(1)
        if len(widths) != len(components) or min(components, default=0) < 0 or not any(components):
            raise FairseqDocError(
                "the mixture expects the widths of layers 0 to N and as many numbers of "
                "components, none negative and at least one positive; got "
                f"{list(widths)} and {list(components)}"
            )
        if not project and (any(components[:-1]) or components[-1] != 1 or widths[-1] != self.dim):
            raise FairseqDocError(
                "project=False computes logits from the last layer without a projection: "
                f"expected components {'0,' * (len(components) - 1)}1 and a last layer of width "
                f"{self.dim}, as the output matrix; got {','.join(map(str, components))} and "
                f"{widths[-1]}",
                "project=False",
                "components",
            )
        self.widths, self.components = list(widths), list(components)
        self.n_components = sum(components)
        require(activation in ACTIVATIONS, "activation", " or ".join(ACTIVATIONS), activation)
        self.activation = ACTIVATIONS[activation]
        self.dropout, self.locked, self.precision = dropout, locked, precision
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.size(0)))
        self.projections = nn.ModuleDict()
        for n, (width, count) in enumerate(zip(widths, components, strict=True)):
            if project and count > 0:
                projection = nn.Linear(width, count * self.dim)
                nn.init.zeros_(projection.bias)
                self.projections[str(n)] = projection
        self.mixture_weights = None
        if self.n_components > 1:
            self.mixture_weights = nn.Linear(widths[-1], self.n_components, bias=weight_bias)
            if weight_bias:
                nn.init.zeros_(self.mixture_weights.bias)

    @classmethod
    def replacing(
        cls,
        weight: nn.Parameter,  # W, (V, d), of the softmax; it is used, not copied
        bias: Tensor | None,  # b, (V,), copied; None: zeros
        widths: Sequence[int],  # D_0, ..., D_N, with D_N = d
        components: Sequence[int],  # 0, ..., 0, J: all from the last layer
        noise: float = 0.01,
        **settings: Any,  # dropout and precision, as in the constructor
    ) -> "MixtureOutput":
        """A mixture initialised as the trained softmax it replaces, softmax(W h^N + b):
        k_j = W_j h^N with W_j near the identity, and equal weights; see :meth:`grow_from`. Without
        ``noise`` all components would have equal gradients and remain equal. Raises
        ``FairseqDocError`` for inconsistent arguments, and for a noise that is negative or not
        finite."""
        if any(components[:-1]) or widths[-1] != weight.size(1):
            raise FairseqDocError(
                "a mixture that replaces a softmax expects components of the last layer only, "
                f"whose width must be that of the output matrix, {weight.size(1)}; got components "
                f"{list(components)} and a width of {widths[-1]}"
            )
        output = cls(widths, components, weight, activation="linear", **settings)
        output.to(weight)  # device and dtype
        output.grow_from(torch.eye(output.dim), torch.zeros(output.dim), noise)
        if bias is not None:
            output.bias.data.copy_(bias)
        return output

    @torch.no_grad()
    def grow_from(
        self, weight: Tensor, bias: Tensor, noise: float, lower_weight: float = 0.01
    ) -> None:
        """Initialise the components from the single one of a trained model, activation(W_1 h^N +
        b_1). Those of the last layer get W_j near W_1, see :func:`near`, and b_j = b_1. W_pi is
        zero, so they have equal weights. Components of lower layers keep their initial W_j, and
        b_pi gives them ``lower_weight`` in total. Apart from the noise, the NLL per token is then
        at most -ln(1 - lower_weight) larger than the trained model's.

        Args:
            weight, bias: W_1 (d, D_N) and b_1 (d,); the identity and zeros for a softmax of h^N.
            noise: see :func:`near`.

        Raises:
            FairseqDocError: a noise that is negative or not finite, a lower weight outside (0, 1),
                no component of the last layer, or components of lower layers without b_pi.
        """
        require(0 <= noise < math.inf, "noise", "at least 0 and finite", noise)
        require(0 < lower_weight < 1, "lower_weight", "in (0, 1)", lower_weight)
        *lower, last = self.components
        if not self.projections or not last:
            raise FairseqDocError(
                "components start from a trained one of the last layer: expected at least one of "
                f"that layer, with a projection; got {','.join(map(str, self.components))}",
                "components",
            )
        projection: Any = self.projections[str(len(lower))]
        projection.weight.copy_(near(weight, last, noise))
        projection.bias.copy_(bias.repeat(last))
        if self.mixture_weights is not None:
            for parameter in self.mixture_weights.parameters():  # W_pi, and b_pi if there is one
                parameter.zero_()
        if any(lower):
            if self.mixture_weights is None or self.mixture_weights.bias is None:
                raise FairseqDocError(
                    "components of lower layers start with a small weight, which needs a bias of "
                    "the mixture weights: set weight_bias",
                    "weight_bias",
                )
            log_weights = self.mixture_weights.bias
            log_weights[:-last] = math.log(lower_weight / sum(lower))
            log_weights[-last:] = math.log((1 - lower_weight) / last)

    def forward(self, layer_outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """[h^0, ..., h^N] after dropout, each (B, T, D_n) -> ``mixture_params``
        (B, T, J d + J + 1), and log pi, (B, T, J), in float32 or wider."""
        if len(layer_outputs) != len(self.widths):
            raise FairseqDocError(
                f"the mixture expects the outputs of {len(self.widths)} layers, 0 to N; got "
                f"{len(layer_outputs)}"
            )
        last = layer_outputs[-1].contiguous()
        batch, time = last.shape[:2]
        vectors = [] if self.projections else [last]  # each (B, T, i_n d)
        rate = self.dropout if self.projections and self.locked else 0.0
        mask = dropout_mask((batch, 1, 1, self.dim), rate, self.training, last)
        projection: Any  # mypy does not know the type of a ModuleDict's values
        for n, projection in self.projections.items():
            h = last if int(n) == len(layer_outputs) - 1 else layer_outputs[int(n)].contiguous()
            k = self.activation(linear(h, projection.weight, projection.bias, self.precision))
            if not self.locked:
                k = dropout(k, self.dropout, self.training)
            elif mask is not None:
                k = (k.unflatten(2, (self.components[int(n)], self.dim)) * mask).flatten(2)
            vectors.append(k)
        if self.mixture_weights is None:
            log_weights = last.new_zeros(batch, time, 1, dtype=sum_dtype(last.dtype))
        else:
            scores = self.mixture_weights(last)  # (B, T, J)
            log_weights = F.log_softmax(scores, dim=-1, dtype=sum_dtype(scores.dtype))
        one = log_weights.new_ones(batch, time, 1)
        mixture_params = torch.cat([*vectors, log_weights, one], dim=-1)  # in the wider dtype
        return mixture_params, log_weights

    def unpack(self, mixture_params: Tensor) -> Mixture:
        """(..., J d + J + 1) -> the mixtures of all tokens."""
        j = self.n_components
        vectors, log_weights, _ = mixture_params.flatten(0, -2).split([j * self.dim, j, 1], dim=-1)
        return Mixture(vectors.unflatten(-1, (j, self.dim)), log_weights, self.weight, self.bias)

    def nll(
        self,
        mixture_params: Tensor,
        target: Tensor,
        ignore_index: int = -100,
        reduction: str = "sum",
        gradient_sampling: float = 0.0,
    ) -> Tensor:
        """-log P(target) in nats; target (B, T); other arguments as in
        :func:`fairseq_doc.ops.mixture_nll.fused_mixture_nll`."""
        return fused_mixture_nll(
            self.unpack(mixture_params),
            target.flatten(),
            ignore_index,
            reduction,
            precision=self.precision,
            gradient_sampling=gradient_sampling,
        )

    def smoothed_nll(
        self, mixture_params: Tensor, target: Tensor, smoothing: float, ignore_index: int = -100
    ) -> tuple[Tensor, Tensor]:
        """Sums of the cross entropy against smoothed labels and of the NLL; target (B, T); see
        :func:`fairseq_doc.ops.reference.smoothed_mixture_nll`."""
        mixture, target = self.unpack(mixture_params), target.flatten()
        return fused_smoothed_mixture_nll(
            mixture, target, smoothing, ignore_index, precision=self.precision
        )

    def log_probs(self, mixture_params: Tensor) -> Tensor:
        """log P of every word, (B, T, V); if ``mixture_params`` was divided by a temperature T, the
        log of P^(1/T), renormalised."""
        inverse = mixture_params[..., -1:]  # 1 / T
        is_divided = not (is_on_cpu(inverse) and (inverse == 1).all())
        if is_divided:
            mixture_params = mixture_params / inverse
        log_probs = mixture_log_probs(self.unpack(mixture_params), precision=self.precision)
        log_probs = log_probs.view(*mixture_params.shape[:-1], len(self.weight))
        return at_temperature(log_probs, inverse).to(log_probs.dtype) if is_divided else log_probs
