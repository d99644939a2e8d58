"""One LSTM layer, run with replaced weights, with bfloat16 products or with a Mogrifier's gates;
initialisation of recurrent layers.

Axes: T time, B streams, E width of the layer's input, D width of the layer, k rank.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_doc.ops.gated_cell import LSTMCell
from fairseq_doc.ops.matmul import linear, matmul_dtype
from fairseq_doc.ops.mogrifier import Round, mogrifier
from fairseq_doc.ops.recurrence import recurrence

LayerState = tuple[Tensor, ...]  # (h, c), each (1, B, D)

# bfloat16 is faster in layers with at least this many weights (docs/experiments/speed.md).
LEAST_WEIGHTS = 1_000_000


def truncated_normal_(weight: Tensor, deviation: float) -> None:
    """Fill with normal numbers truncated at two standard deviations, as in deepmind/lamb. They are
    drawn with 1.3 times the variance, so that the standard deviation after the truncation is
    ``deviation`` (within 0.3 %)."""
    drawn = 1.3**0.5 * deviation
    nn.init.trunc_normal_(weight, std=drawn, a=-2 * drawn, b=2 * drawn)


class MogrifierGate(nn.Module):
    """The matrix and bias of one round, in which a vector of width ``source`` gates one of width
    ``gated``.

    They are initialised as in deepmind/lamb: a full matrix (rank None) has the standard deviation
    source^(-1/2). Two factors are drawn with the deviation (source k)^(-1/4), k being the rank,
    which would give their product the same deviation; the truncation at two standard deviations,
    here without the factor 1.3, reduces it to 0.77 of that. The bias is zero."""

    def __init__(self, gated: int, source: int, rank: int | None) -> None:
        super().__init__()
        shapes = [(gated, source)] if rank is None else [(gated, rank), (rank, source)]
        self.matrices = nn.ParameterList(torch.empty(shape) for shape in shapes)
        self.bias = nn.Parameter(torch.zeros(gated))
        if rank is None:
            truncated_normal_(self.matrices[0], source**-0.5)
            return
        deviation = (source * rank) ** -0.25  # entries of the product are sums of k products
        for matrix in self.matrices:
            nn.init.trunc_normal_(matrix, std=deviation, a=-2 * deviation, b=2 * deviation)


class MogrifierGates(nn.Module):
    """The gates of one layer (Melis, Kocisky and Blunsom, 2020), see ``ops/mogrifier.py``. Odd
    rounds gate its input, even rounds its state."""

    def __init__(self, below: int, width: int, rounds: int, rank: int | None) -> None:
        super().__init__()
        sides = [(below, width), (width, below)]
        self.rounds = nn.ModuleList(MogrifierGate(*sides[n % 2], rank) for n in range(rounds))

    @property
    def parameters_of_rounds(self) -> list[Round]:
        gates: Any = self.rounds
        return [Round(tuple(gate.matrices), gate.bias) for gate in gates]


def run_lstm(
    layer: nn.LSTM,
    x: Tensor,
    state: LayerState | None,
    precision: torch.dtype,
    gates: MogrifierGates | None = None,
    **replaced: Tensor,
) -> tuple[Tensor, LayerState]:
    """``layer(x, state)`` for a single layer and direction; x (T, B, E), state None: zeros. In this
    call the weights ``replaced``, {name, such as ``weight_hh_l0``: weight}, are used in place of
    the parameters; x may then have a different width. For ``precision`` see
    :func:`in_lower_precision`."""
    if state is None:
        zeros = x.new_zeros(1, x.size(1), layer.hidden_size)
        state = zeros, zeros
    narrow = in_lower_precision(layer, x, precision)
    if not (replaced or narrow or gates):
        return layer(x, state)
    weights = {**dict(layer.named_parameters()), **replaced}
    if gates or narrow:
        of_input, of_state, *biases = weights.values()
        bias = biases[0] + biases[1]  # torch has two
        hidden, cell = (part[0] for part in state)
        if gates:
            dtype = matmul_dtype(x, precision if narrow else torch.float32)
            rounds = gates.parameters_of_rounds
            result = mogrifier(x, hidden, cell, of_input, of_state, bias, rounds, dtype=dtype)
        else:
            inputs = linear(x, of_input, None, precision) + bias
            result = recurrence(LSTMCell(), inputs, hidden, cell, [of_state], dtype=precision)
        return result.output, result.state()
    if x.is_cuda:
        weights = _in_one_buffer(weights)
    output, h, c = torch.lstm(
        x, state, list(weights.values()), True, 1, 0.0, layer.training, False, False
    )
    return output, (h, c)


def in_lower_precision(layer: nn.LSTM, x: Tensor, precision: torch.dtype) -> bool:
    """Whether the layer's products are rounded to ``precision``: only in training, since evaluation
    would round all weights again for each token; only on a CPU, since cuDNN's loop is faster on a
    GPU; not under autocast, which chooses dtypes itself."""
    return (
        precision != torch.float32
        and layer.training
        and sum(weight.numel() for weight in layer.parameters()) >= LEAST_WEIGHTS
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and matmul_dtype(x, precision) == precision
    )


def _in_one_buffer(weights):
    """The weights as views of one buffer in cuDNN's order (input, recurrent, biases), without which
    cuDNN creates such a buffer in every call, with a warning."""
    buffer = torch.cat([weight.reshape(-1) for weight in weights.values()])
    parts = buffer.split([weight.numel() for weight in weights.values()])
    return {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}
