"""The Direct Output Connection: layer outputs -> component vectors and log weights -> P.

Axes: B streams, T time, V vocabulary, N LSTM layers, D_n width of layer n, J components, d width of
a component's vector.
"""

import torch
from torch import nn
from torch.nn import functional as F

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.modules.dropout import dropout_mask
from fairseq_doc.ops.mixture_nll import (
    mixture_log_probs,
    mixture_nll,
    smoothed_mixture_nll,
)
from fairseq_doc.ops.reference import sum_dtype

ACTIVATIONS = {"tanh": torch.tanh, "linear": lambda x: x}


def parse_components(text, n_layers):
    """``"0,0,5,15"`` -> [0, 0, 5, 15]: i_n, how many components come from layer n = 0..N.

    Raises:
        FairseqDocError: not integers, not N + 1 of them, one negative, or none positive.
    """
    advice = f"expected {n_layers + 1} numbers, for layers 0 (the embedding) to {n_layers}"
    try:
        counts = [int(part) for part in str(text).split(",")]
    except ValueError:
        raise FairseqDocError(f"--doc-components {text}: {advice}, such as 0,0,5,15") from None
    if len(counts) != n_layers + 1:
        raise FairseqDocError(f"--doc-components {text}: {advice}; got {len(counts)}")
    if min(counts) < 0:
        raise FairseqDocError(
            f"--doc-components {text}: {advice}, none negative; got {min(counts)}"
        )
    if sum(counts) == 0:
        raise FairseqDocError(f"--doc-components {text}: {advice}, at least one positive; got none")
    return counts


def check_finite(scores):
    """Raise ``FairseqDocError`` if a score, or a sum of scores, is infinite or not a number."""
    if not torch.isfinite(scores).all():
        raise FairseqDocError(
            "a score is not finite: expected every target to have a log probability, got "
            f"{scores[~torch.isfinite(scores)].flatten()[0].item()}; has the training diverged?"
        )


def at_temperature(log_probs, inverse):
    """log of P^(1/T), renormalised, for log P (..., V) and the inverse of T; float64."""
    below_top = (log_probs - log_probs.amax(-1, keepdim=True)).double()
    return torch.log_softmax(below_top * inverse, dim=-1)


class MixtureOutput(nn.Module):
    """P = sum_j pi_j softmax(W k_j + b), components from any layers (Eq. 7-11).

    ``components = [0, ..., 0, J]`` is a mixture of softmaxes (MoS); a single component has weight
    one and no W_pi. With ``project`` false there is one component, h^N itself: the output of a
    plain AWD-LSTM (Merity et al., 2018).

    What the layer needs to give probabilities travels as one *packed* tensor (..., J d + J + 1), the
    component vectors, the log weights and a one, because fairseq slices and flattens the decoder's
    first output and nothing else. Generation divides that tensor by the temperature, so that the
    one becomes its inverse.

    Args:
        widths: D_0, ..., D_N.
        components: i_0, ..., i_N, with J = their sum.
        weight: W, (V, d), a parameter that may be tied to the embedding.
        activation: ``tanh`` or ``linear``, applied to W_j h^n + b_j.
        dropout: locked dropout of the k_j: one mask of d numbers a stream, shared over time and
            components.
        project: whether k_j = activation(W_j h^n + b_j), or k_1 = h^N.
    """

    def __init__(self, widths, components, weight, activation="tanh", dropout=0.0, project=True):
        super().__init__()
        self.components = list(components)
        self.n_components = sum(components)
        self.dim = weight.size(1)
        self.activation = ACTIVATIONS[activation]
        self.dropout = dropout
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.size(0)))
        self.projections = nn.ModuleDict()
        if project:
            for n, (width, count) in enumerate(zip(widths, components, strict=True)):
                if count:
                    self.projections[str(n)] = nn.Linear(width, count * self.dim)
                    nn.init.zeros_(self.projections[str(n)].bias)
        elif self.components != [0] * (len(components) - 1) + [1] or widths[-1] != self.dim:
            raise FairseqDocError(
                "--plain-output takes its logits straight from the last layer: expected "
                f"--doc-components {'0,' * (len(components) - 1)}1 and a last layer {self.dim} wide, "
                f"as the output matrix; got {','.join(map(str, components))} and {widths[-1]}"
            )
        self.mixture_weights = (
            nn.Linear(widths[-1], self.n_components, bias=False) if self.n_components > 1 else None
        )

    def forward(self, layer_outputs):
        """
        Args:
            layer_outputs: [h^0, ..., h^N] after dropout, each (B, T, D_n).

        Returns:
            packed: (B, T, J d + J + 1).
            log_weights: log pi, (B, T, J), float32 or wider.
        """
        last = layer_outputs[-1].contiguous()
        batch, time = last.shape[:2]
        parts = [last]
        if self.projections:
            parts = []  # each (B, T, i_n d)
            mask = dropout_mask((batch, 1, 1, self.dim), self.dropout, self.training, last)
            for n, projection in self.projections.items():
                h = last if int(n) == len(layer_outputs) - 1 else layer_outputs[int(n)].contiguous()
                k = self.activation(projection(h))
                if mask is not None:
                    k = (k.view(batch, time, -1, self.dim) * mask).flatten(2)
                parts.append(k)
        if self.mixture_weights is None:
            log_weights = last.new_zeros(batch, time, 1, dtype=sum_dtype(last.dtype))
        else:
            scores = self.mixture_weights(last)  # (B, T, J)
            log_weights = F.log_softmax(scores, dim=-1, dtype=sum_dtype(scores.dtype))
        one = log_weights.new_ones(batch, time, 1)
        packed = torch.cat([*parts, log_weights, one], dim=-1)  # of the wider dtype
        return packed, log_weights

    def unpack(self, packed):
        """(..., J d + J + 1) -> component vectors (tokens, J, d) and log weights (tokens, J)."""
        j = self.n_components
        vectors, log_weights, _ = packed.flatten(0, -2).split([j * self.dim, j, 1], dim=-1)
        return vectors.unflatten(-1, (j, self.dim)), log_weights

    def nll(self, packed, target, ignore_index=-100, reduction="sum"):
        """-log P(target), natural logarithm; target (B, T); see
        :func:`fairseq_doc.ops.reference.mixture_nll`."""
        return mixture_nll(
            *self.unpack(packed), self.weight, self.bias, target.flatten(), ignore_index, reduction
        )

    def smoothed_nll(self, packed, target, smoothing, ignore_index=-100):
        """Cross entropy against smoothed labels and NLL, sums; target (B, T); see
        :func:`fairseq_doc.ops.reference.smoothed_mixture_nll`."""
        return smoothed_mixture_nll(
            *self.unpack(packed), self.weight, self.bias, target.flatten(), smoothing, ignore_index
        )

    def log_probs(self, packed):
        """log P of every word, (B, T, V). Where ``packed`` was divided by a temperature T, of
        P^(1/T), renormalised."""
        shape = (*packed.shape[:-1], -1)
        inverse = packed[..., -1:]  # 1 / T
        if (inverse == 1).all():
            return mixture_log_probs(*self.unpack(packed), self.weight, self.bias).view(shape)
        log_probs = self.log_probs(packed / inverse)
        return at_temperature(log_probs, inverse).to(log_probs.dtype)
