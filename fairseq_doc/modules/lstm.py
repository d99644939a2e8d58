"""One LSTM layer, run with replaced weights or with bfloat16 products; initialisation of recurrent
layers."""

import torch
from torch import Tensor, nn

from fairseq_doc.ops.gated_cell import LSTMCell
from fairseq_doc.ops.matmul import linear, matmul_dtype
from fairseq_doc.ops.recurrence import recurrence

LayerState = tuple[Tensor, ...]  # (h, c), each (1, B, D)

# Number of weights from which bfloat16 is faster, as measured in docs/experiments/speed.md.
LEAST_WEIGHTS = 1_000_000


def truncated_normal_(weight: Tensor, deviation: float) -> None:
    """Fill with normal numbers truncated at two standard deviations, as in deepmind/lamb. They are
    drawn with 1.3 times the variance, so that the result has ``deviation`` (up to 0.3 %)."""
    drawn = 1.3**0.5 * deviation
    nn.init.trunc_normal_(weight, std=drawn, a=-2 * drawn, b=2 * drawn)


def run_lstm(
    layer: nn.LSTM, x: Tensor, state: LayerState | None, precision: torch.dtype, **replaced: Tensor
) -> tuple[Tensor, LayerState]:
    """``layer(x, state)`` for a single layer and direction; x (T, B, width), state None: zeros.
    ``replaced``, {name of a parameter, such as ``weight_hh_l0``: weight}, are used in place of the
    parameters for this call; x may then have another width. For ``precision`` see
    :func:`in_lower_precision`."""
    if state is None:
        zeros = x.new_zeros(1, x.size(1), layer.hidden_size)
        state = zeros, zeros
    if in_lower_precision(layer, x, precision):
        weights = {**dict(layer.named_parameters()), **replaced}
        bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]  # torch has two
        inputs = linear(x, weights["weight_ih_l0"], None, precision) + bias
        hidden, cell = (part[0] for part in state)
        matrices = [weights["weight_hh_l0"]]
        result = recurrence(LSTMCell(), inputs, hidden, cell, matrices, dtype=precision)
        return result.output, result.state()
    if not replaced:
        return layer(x, state)
    weights = {**dict(layer.named_parameters()), **replaced}
    if x.is_cuda:
        weights = _in_one_buffer(weights)
    output, h, c = torch.lstm(
        x, state, list(weights.values()), True, 1, 0.0, layer.training, False, False
    )
    return output, (h, c)


def in_lower_precision(layer: nn.LSTM, x: Tensor, precision: torch.dtype) -> bool:
    """Whether ``ops/recurrence.py`` runs the layer: only on a CPU, since cuDNN's loop is faster on a
    GPU; not under autocast, which chooses dtypes itself; not in evaluation, where all weights would
    be rounded again for each token."""
    return (
        precision != torch.float32
        and layer.training
        and sum(weight.numel() for weight in layer.parameters()) >= LEAST_WEIGHTS
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and matmul_dtype(x, precision) == precision
    )


def _in_one_buffer(weights):
    """The weights as views of one buffer in cuDNN's order (input, recurrent, biases). Otherwise
    cuDNN creates such a buffer in every call, with a warning."""
    buffer = torch.cat([weight.reshape(-1) for weight in weights.values()])
    parts = buffer.split([weight.numel() for weight in weights.values()])
    return {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}
