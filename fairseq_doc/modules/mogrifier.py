"""The Mogrifier's gates of an LSTM layer (Melis, Kocisky and Blunsom, 2020).

Axes: T time, B streams, E width of the layer's input, D width of the layer, k rank.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_doc.modules.lstm import LayerState, in_lower_precision, truncated_normal_
from fairseq_doc.ops.matmul import matmul_dtype
from fairseq_doc.ops.mogrifier import Round, mogrifier


class MogrifierGate(nn.Module):
    """The matrix and bias of one round, in which ``source`` numbers gate ``gated`` numbers.

    They are initialised as in deepmind/lamb: a full matrix (rank None) has the standard deviation
    source^(-1/2). Two factors are drawn such that their product has the same deviation, and are
    truncated at two standard deviations. The bias is zero."""

    def __init__(self, gated: int, source: int, rank: int | None) -> None:
        super().__init__()
        shapes = [(gated, source)] if rank is None else [(gated, rank), (rank, source)]
        self.matrices = nn.ParameterList(torch.empty(shape) for shape in shapes)
        self.bias = nn.Parameter(torch.zeros(gated))
        if rank is None:
            truncated_normal_(self.matrices[0], source**-0.5)
            return
        # An entry of the product is a sum of k products of two entries.
        deviation = (source * rank) ** -0.25
        for matrix in self.matrices:
            nn.init.trunc_normal_(matrix, std=deviation, a=-2 * deviation, b=2 * deviation)


class MogrifierGates(nn.Module):
    """The gates of one layer. Odd rounds gate its input (E = ``below``), even rounds its state."""

    def __init__(self, below: int, width: int, rounds: int, rank: int | None) -> None:
        super().__init__()
        sides = [(below, width), (width, below)]
        self.rounds = nn.ModuleList(MogrifierGate(*sides[n % 2], rank) for n in range(rounds))

    @property
    def parameters_of_rounds(self) -> list[Round]:
        """Each round's matrix (to, from), or its factors (to, k) and (k, from), and bias (to,)."""
        gates: Any = self.rounds
        return [Round(tuple(gate.matrices), gate.bias) for gate in gates]

    def run(
        self,
        layer: nn.LSTM,
        x: Tensor,
        state: LayerState,
        precision: torch.dtype,
        **replaced: Tensor,
    ) -> tuple[Tensor, LayerState]:
        """Run the layer as :func:`fairseq_doc.modules.lstm.run_lstm` does, with these gates."""
        w = {**dict(layer.named_parameters()), **replaced}
        weights = w["weight_ih_l0"], w["weight_hh_l0"], w["bias_ih_l0"] + w["bias_hh_l0"]
        narrow = in_lower_precision(layer, x, precision)
        dtype = matmul_dtype(x, precision if narrow else torch.float32)
        hidden, cell = (part[0] for part in state)
        result = mogrifier(x, hidden, cell, *weights, self.parameters_of_rounds, dtype=dtype)
        return result.output, result.state()
