"""Recurrent layers of equal width whose outputs are added up (Melis et al., 2018).

Axes: T time, B streams, N layers; widths: E of the embedding, D of the layers, F of the output.

    layer 1 reads the embedding, layer n the output of layer n - 1
    h = h^1 + ... + h^N,    output = P h if a single softmax reads it and F is not D, else h

P is a matrix without bias or activation. Components read h itself, which their W_j project.
"""

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_doc.modules.awd_lstm import States
from fairseq_doc.modules.dropout import dropout, dropout_mask
from fairseq_doc.modules.lstm import LayerState, MogrifierGates, truncated_normal_
from fairseq_doc.ops.cell import Cell
from fairseq_doc.ops.matmul import linear, matmul_dtype
from fairseq_doc.ops.mogrifier import mogrifier
from fairseq_doc.ops.recurrence import recurrence

# Dropout masks of the state and of the cell's g (``ops/gated_cell.py``), each (B, D).
Masks = tuple[Tensor | None, Tensor | None]


class RecurrentLayer(nn.Module):
    """One layer, whose input has the width ``below``. ``depth`` is the number of micro-steps of an
    RHN, and 1 for other cells. The weights are initialised with the standard deviation
    1 / sqrt(fan in), the biases of an LSTM with 1 / sqrt(D), those of an RHN with zeros; one is
    added to those of the forget gate. An LSTM may have ``rounds`` of a Mogrifier, with full
    matrices or with factors of ``rank``."""

    def __init__(
        self, cell: Cell, below: int, width: int, depth: int, rounds: int, rank: int | None
    ) -> None:
        super().__init__()
        self.cell, self.width = cell, width
        rows = cell.matmul_parts * width
        self.input_weight = nn.Parameter(torch.empty(rows, below))
        self.state_weights = nn.ParameterList(torch.empty(rows, width) for _ in range(depth))
        self.biases = nn.ParameterList(torch.zeros(rows) for _ in range(depth * cell.has_biases))
        for weight in (self.input_weight, *self.state_weights):
            truncated_normal_(weight, 1 / math.sqrt(weight.size(1)))
        with torch.no_grad():
            for bias in self.biases:
                if cell.has_cell_state:
                    truncated_normal_(bias, 1 / math.sqrt(width))
                bias.split(width)[cell.forget_part].add_(1)
        self.mogrifier = MogrifierGates(below, width, rounds, rank) if rounds else None

    def forward(
        self, x: Tensor, state: LayerState, masks: Masks, precision: torch.dtype
    ) -> tuple[Tensor, LayerState]:
        """x (T, B, below), a state with parts (1, B, D), and masks -> the output (T, B, D) and the
        state after the last step."""
        hidden, cell_state = state[0][0], (state[1][0] if len(state) > 1 else None)
        if self.mogrifier is not None:
            rounds, dtype = self.mogrifier.parameters_of_rounds, matmul_dtype(x, precision)
            weights = self.input_weight, self.state_weights[0], self.biases[0]
            kind = self.cell.kind
            result = mogrifier(x, hidden, state[1][0], *weights, rounds, kind, *masks, dtype)
        else:
            u = linear(x, self.cell.input_order(self.input_weight), None, precision)
            first_bias, *biases = list(self.biases) or [None]
            if first_bias is not None:
                u = u + self.cell.input_order(first_bias)
            matrices = [self.cell.state_order(weight) for weight in self.state_weights]
            dtype = matmul_dtype(u, precision)
            result = recurrence(self.cell, u, hidden, cell_state, matrices, biases, *masks, dtype)
        return result.output, result.state()


class RecurrentStack(nn.Module):
    """The layers, their sum and its projection."""

    def __init__(
        self,
        cell: Cell,
        embed_dim: int,  # E
        width: int,  # D
        output_dim: int,  # F; a projection is made unless it is D
        layers: int = 1,
        depth: int = 1,  # micro-steps of an RHN
        mogrifier_rounds: int = 0,  # of an LSTM, see ``ops/mogrifier.py``; 0: plain layers
        mogrifier_rank: int | None = None,  # of the gates' matrices; None: full matrices
        read: Collection[int] = (),  # layers that components read, so ``output_dropout`` is applied
        intra_layer_dropout: float = 0.0,  # of the inputs of layers 2 to N, entry by entry
        state_dropout: float = 0.0,  # of h in recurrent products, one mask per stream and window
        recurrent_dropout: float = 0.0,  # of g in the cell (Semeniuta et al., 2016), also one mask
        output_dropout: float = 0.0,  # of h and the output, entry by entry
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        below = [embed_dim] + [width] * (layers - 1)
        self.layers = nn.ModuleList(
            RecurrentLayer(cell, size, width, depth, mogrifier_rounds, mogrifier_rank)
            for size in below
        )
        self.projection = None
        if output_dim != width:
            self.projection = nn.Parameter(torch.empty(output_dim, width))
            nn.init.orthogonal_(self.projection)
        self.width, self.read = width, set(read)
        self.parts = 1 + cell.has_cell_state
        self.intra_layer_dropout, self.output_dropout = intra_layer_dropout, output_dropout
        self.state_dropout, self.recurrent_dropout = state_dropout, recurrent_dropout
        self.precision = precision

    def zero_state(self, batch: int, like: Tensor) -> States:
        shape = (1, batch, self.width)
        return [tuple(like.new_zeros(shape) for _ in range(self.parts)) for _ in self.layers]

    def forward(self, x: Tensor, state: States) -> tuple[list[Tensor], Tensor, States]:
        """x: the embedded words after dropout, (T, B, E). Returns [h^1, ..., h^N, output], in which
        the output (T, B, F) is after dropout; the output before dropout; and the state after the
        last step."""
        outputs: list[Tensor] = []
        new_state = []
        total: Any = 0.0
        for n, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True), start=1):
            if n > 1:
                x = dropout(x, self.intra_layer_dropout, self.training)
            of_state, of_g = (
                dropout_mask((x.size(1), self.width), rate, self.training, x)
                for rate in (self.state_dropout, self.recurrent_dropout)
            )
            x, after = layer(x, layer_state, (of_state, of_g), self.precision)
            outputs.append(dropout(x, self.output_dropout, self.training) if n in self.read else x)
            new_state.append(after)
            total = total + x
        undropped = total
        if self.projection is not None:
            total = dropout(total, self.output_dropout, self.training)
            undropped = linear(total, self.projection, None, self.precision)
        outputs.append(dropout(undropped, self.output_dropout, self.training))
        return outputs, undropped, new_state
