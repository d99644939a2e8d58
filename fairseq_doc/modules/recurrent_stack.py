"""Recurrent layers of equal width whose outputs are added up (Melis et al., 2018).

Axes: T time, B streams, E width of the embedding, D of the layers, F of the output, N layers.

    layer 1 reads the embedding, layer n the output of layer n - 1
    h = h^1 + ... + h^N,    output = P h if a single softmax reads it and E is not D, else h

P is a matrix without bias or activation. Components read h itself: their W_j project it.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from fairseq_doc.modules.awd_lstm import States
from fairseq_doc.modules.dropout import dropout, dropout_mask
from fairseq_doc.modules.lstm import truncated_normal_
from fairseq_doc.modules.mogrifier import MogrifierGates
from fairseq_doc.ops.cell import Cell
from fairseq_doc.ops.matmul import linear, matmul_dtype
from fairseq_doc.ops.mogrifier import mogrifier
from fairseq_doc.ops.recurrence import RecurrenceResult, recurrence


class RecurrentLayer(nn.Module):
    """One layer; ``depth`` is the number of an RHN's micro-steps, 1 for other cells. By
    :func:`truncated_normal_` the weights have the standard deviation 1 / sqrt(fan in), and an
    LSTM's biases 1 / sqrt(D). ``rounds`` of a Mogrifier, of factors of ``rank`` or of full
    matrices, are for an LSTM."""

    def __init__(
        self,
        cell: Cell,
        below: int,
        width: int,
        depth: int = 1,
        rounds: int = 0,
        rank: int | None = None,
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
        self,
        x: torch.Tensor,
        state: tuple[torch.Tensor, ...],
        state_mask: torch.Tensor | None,
        recurrent_mask: torch.Tensor | None,
        precision: torch.dtype,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """x (T, B, below), a state, each part (1, B, D), and masks (B, D) -> the output (T, B, D)
        and the state after it."""
        parts = [part[0] for part in state]
        if self.mogrifier is None:
            run = self._run_plain(x, parts, state_mask, recurrent_mask, precision)
        else:
            hidden, cell = parts
            run = mogrifier(
                x,
                hidden,
                cell,
                self.input_weight,
                self.state_weights[0],
                self.biases[0],
                self.mogrifier.parameters_of_rounds,
                self.cell.gates,
                state_mask,
                recurrent_mask,
                matmul_dtype(x, precision),
            )
        after = (run.output[-1:].clone(),)
        return run.output, after if run.cell is None else (*after, run.cell.unsqueeze(0))

    def _run_plain(
        self,
        x: torch.Tensor,
        state: Sequence[torch.Tensor],
        state_mask: torch.Tensor | None,
        recurrent_mask: torch.Tensor | None,
        precision: torch.dtype,
    ) -> RecurrenceResult:
        hidden, *cell_state = state
        inputs = linear(x, self.cell.input_order(self.input_weight), None, precision)
        first_bias, *biases = list(self.biases) or [None]
        if first_bias is not None:
            inputs = inputs + self.cell.input_order(first_bias)
        return recurrence(
            self.cell,
            inputs,
            hidden,
            cell_state[0] if cell_state else None,
            [self.cell.state_order(weight) for weight in self.state_weights],
            biases,
            state_mask,
            recurrent_mask,
            matmul_dtype(inputs, precision),
        )


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
        read: Collection[int] = (),  # layers, from 1, that the mixture reads; dropped as h is
        intra_layer: float = 0.0,  # dropout of the inputs of layers 2 to N, each entry on its own
        state: float = 0.0,  # of the state that recurrent products read, a mask a stream and window
        recurrent: float = 0.0,  # of g in the cell (Semeniuta et al., 2016), masks as for state
        output: float = 0.0,  # of h and the output, each entry on its own
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        gates = mogrifier_rounds, mogrifier_rank
        self.layers = nn.ModuleList(
            RecurrentLayer(cell, width if n else embed_dim, width, depth, *gates)
            for n in range(layers)
        )
        self.projection = None
        if output_dim != width:
            self.projection = nn.Parameter(torch.empty(output_dim, width))
            nn.init.orthogonal_(self.projection)
        self.width, self.read = width, set(read)
        self.parts = 2 if cell.has_cell_state else 1
        self.intra_layer, self.output, self.precision = intra_layer, output, precision
        self.state_dropout, self.recurrent_dropout = state, recurrent

    def zero_state(self, batch: int, like: torch.Tensor) -> States:
        shape = (1, batch, self.width)
        return [tuple(like.new_zeros(shape) for _ in range(self.parts)) for _ in self.layers]

    def forward(
        self, x: torch.Tensor, state: States
    ) -> tuple[list[torch.Tensor], torch.Tensor, States]:
        """x are the embedded words after dropout, (T, B, E). Returns [h^1, ..., h^N, output], the
        last (T, B, F) after dropout; the output before it; the state after the last step."""
        outputs: list[torch.Tensor] = []
        new_state = []
        total: Any = 0.0
        for n, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True), start=1):
            if n > 1:
                x = dropout(x, self.intra_layer, self.training)
            state_mask, recurrent_mask = (
                dropout_mask((x.size(1), self.width), rate, self.training, x)
                for rate in (self.state_dropout, self.recurrent_dropout)
            )
            x, after = layer(x, layer_state, state_mask, recurrent_mask, self.precision)
            outputs.append(dropout(x, self.output, self.training) if n in self.read else x)
            new_state.append(after)
            total = total + x
        undropped = total
        if self.projection is not None:
            total = dropout(total, self.output, self.training)
            undropped = linear(total, self.projection, None, self.precision)
        outputs.append(dropout(undropped, self.output, self.training))
        return outputs, undropped, new_state
