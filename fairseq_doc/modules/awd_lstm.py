"""The recurrent layers of AWD-LSTM: state in; every layer's output and the state out."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fairseq_doc.modules.dropout import locked_dropout, weight_dropout
from fairseq_doc.modules.lstm import MogrifierGates, run_lstm

# h and c of each layer, each (1, B, D_n); an RHN has only h.
States = list[tuple[Tensor, ...]]


class AWDLSTM(nn.Module):
    """N LSTM layers, each with its own width, with DropConnect on the recurrent weights: in each
    forward pass a matrix with dropped entries is used in place of the parameter."""

    def __init__(
        self,
        widths: Sequence[int],  # D_0 (the input's), D_1, ..., D_N
        weight_drop: float = 0.0,  # DropConnect on recurrent matrices, one mask per pass
        hidden_dropout: float = 0.0,  # locked, of h^1 .. h^{N-1}
        output_dropout: float = 0.0,  # locked, of h^N
        precision: torch.dtype = torch.float32,  # see ``run_lstm``
        mogrifier_rounds: int = 0,  # see ``ops/mogrifier.py``; 0: plain layers
        mogrifier_rank: int | None = None,  # of the gates' matrices; None: full matrices
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(below, width) for below, width in pairwise(widths))
        self.mogrifiers = nn.ModuleList(
            MogrifierGates(below, width, mogrifier_rounds, mogrifier_rank)
            for below, width in pairwise(widths)
            if mogrifier_rounds
        )
        self.widths = list(widths[1:])  # D_1, ..., D_N
        self.weight_drop, self.precision = weight_drop, precision
        self.dropouts = [hidden_dropout] * (len(self.layers) - 1) + [output_dropout]

    def zero_state(self, batch: int, like: Tensor) -> States:
        shapes = [(1, batch, width) for width in self.widths]
        return [(like.new_zeros(shape), like.new_zeros(shape)) for shape in shapes]

    def forward(self, x: Tensor, state: States) -> tuple[list[Tensor], Tensor, States]:
        """x is h^0 after its dropout, (T, B, D_0). Returns [h^1, ..., h^N] after dropout, each
        (T, B, D_n); h^N before dropout; and the state after the last step."""
        outputs, new_state = [], []
        for n, (layer_state, p) in enumerate(zip(state, self.dropouts, strict=True)):
            undropped, layer_state = self._run(n, x, layer_state)  # (T, B, D_n)
            x = locked_dropout(undropped, p, self.training)
            outputs.append(x)
            new_state.append(layer_state)
        return outputs, undropped, new_state

    def _run(self, n, x, state):
        layer, replaced = self.layers[n], {}
        gates = self.mogrifiers[n] if self.mogrifiers else None
        if self.training and self.weight_drop:
            replaced = {"weight_hh_l0": weight_dropout(layer.weight_hh_l0, self.weight_drop)}
        return run_lstm(layer, x, state, self.precision, gates, **replaced)
