"""A recurrence over all steps of a window, with its own backward.

Axes: T time, R rows, D width, L micro-steps in a step (an LSTM has one), S = T L. Micro-step k = t L + l
reads the state h before it and gives the next one:

    z_k = W_l (m h) + (u_t if l = 0, else b_l)        then the cell, see ops/gated_cell.py

u_t = W x_t + b comes from outside, as one product for all steps. m is the state's dropout mask, one
for all steps: it changes what the product reads, not the state. So a micro-step has one product. Going
back it has one too, d (m h) = W_l^T d z_k, and after the loop each matrix's gradient is one product,
d W_l = Z^T (m H) with the rows of all steps. States, gates and gradients have the dtype of u; the
factors and results of the products may be rounded to a narrower one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops.gated_cell import (
    KINDS,
    CellGradients,
    CellSteps,
    GatedGradients,
    GatedSteps,
    gated_sum,
    lstm_cell,
    n_gates,
)
from fairseq_doc.ops.matmul import (
    autocast_off,
    backward_without_autocast,
    loop_operand,
    matmul,
    of_a_size,
)
from fairseq_doc.ops.nas_cell import PARTS, NASGradients, NASSteps, nas_cell

CELLS = ("lstm", "rhn", "nas")


class Cell(NamedTuple):
    """Which recurrence.

    Attributes:
        name: ``lstm``, ``rhn`` or ``nas``.
        gates: one of ``KINDS``, for the first two.
    """

    name: str = "lstm"
    gates: str = "untied"

    @property
    def parts(self) -> int:
        """How many vectors of width D z has."""
        if self.name == "nas":
            return PARTS
        return n_gates(self.gates, output=self.name == "lstm")

    @property
    def matmul_parts(self) -> int:
        """How many of them a matrix product gives: the input's the first ones, the state's the last ones."""
        return PARTS - 1 if self.name == "nas" else self.parts

    def check(self) -> "Cell":
        """The cell itself; ``FairseqDocError`` where there is no such cell."""
        if self.name not in CELLS or self.gates not in KINDS:
            raise FairseqDocError(
                f"expected a cell of {', '.join(CELLS)} with gates of {', '.join(KINDS)}; got "
                f"{self.name} with {self.gates}"
            )
        return self


class RecurrenceResult(NamedTuple):
    """What a recurrence computed.

    Attributes:
        output: the state h after every step, (T, R, D).
        cell: c of an LSTM or a NAS cell after the last step, (R, D); None of an RHN.
    """

    output: torch.Tensor
    cell: torch.Tensor | None


def recurrence_reference(
    cell: Cell,
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    cell_state: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor] = (),
    state_mask: torch.Tensor | None = None,
    recurrent_mask: torch.Tensor | None = None,
) -> RecurrenceResult:
    """The plain form, a loop for autograd; arguments as in :func:`recurrence`."""
    outputs = []
    for u in inputs:
        for weight, added in zip(weights, [u, *biases], strict=True):
            read = hidden if state_mask is None else hidden * state_mask
            product = read @ weight.t()
            if cell.name == "rhn":
                hidden = gated_sum(added + product, hidden, cell.gates, recurrent_mask)
                continue
            assert cell_state is not None
            if cell.name == "nas":
                hidden, cell_state = nas_cell(added, product, cell_state)
            else:
                hidden, cell_state = lstm_cell(
                    added + product, cell_state, cell.gates, recurrent_mask
                )
        outputs.append(hidden)
    return RecurrenceResult(torch.stack(outputs), cell_state)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, dtype, masks, inputs, hidden, cell_state, *matrices):
        (time, rows, _), width, depth = inputs.shape, hidden.size(1), (len(matrices) + 1) // 2
        weights, biases = matrices[:depth], matrices[depth:]
        state_mask, recurrent_mask = masks
        gates = inputs.new_empty(time * depth, rows, cell.parts * width)  # (S, R, G D)
        hiddens = inputs.new_empty(len(gates) + 1, rows, width)
        hiddens[0] = hidden
        steps: Any
        if cell.name == "rhn":
            cells = None
            steps = GatedSteps(gates, hiddens, cell.gates, recurrent_mask)
        else:
            cells = torch.empty_like(hiddens)
            cells[0] = cell_state
            if cell.name == "nas":
                steps = NASSteps(gates, cells, hiddens[1:])
            else:
                steps = CellSteps(gates, cells, hiddens[1:], cell.gates, recurrent_mask)
        operands = [loop_operand(weight.to(dtype), rows) for weight in weights]
        for t, u in enumerate(inputs.unbind(0)):
            for level, (operand, added) in enumerate(zip(operands, [u, *biases], strict=True)):
                read = hidden if state_mask is None else hidden * state_mask
                if cell.name == "nas":
                    product = matmul(read.to(dtype), operand).to(u.dtype)
                    hidden = steps.step(t, added, product)
                elif level and dtype == u.dtype:
                    hidden = steps.step(t * depth + level, matmul(read, operand, added))
                else:
                    product = matmul(read.to(dtype), operand).to(u.dtype)
                    hidden = steps.step(t * depth + level, product.add_(added))
        ctx.cell, ctx.dtype = cell, dtype
        ctx.save_for_backward(gates, hiddens, cells, state_mask, recurrent_mask, *weights)
        return hiddens[depth::depth], None if cells is None else cells[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_output, d_cell):
        gates, hiddens, cells, state_mask, recurrent_mask, *weights = ctx.saved_tensors
        cell, dtype, depth = ctx.cell, ctx.dtype, len(weights)
        rows, more = gates.size(1), gates.size(2) - len(weights[0])
        gradients: Any
        if cell.name == "rhn":
            gradients = GatedGradients(gates, hiddens, cell.gates, recurrent_mask)
        elif cell.name == "nas":
            gradients = NASGradients(gates, cells, hiddens[1:], d_cell)
        else:
            gradients = CellGradients(gates, cells, d_cell, cell.gates, recurrent_mask)
        operands = [loop_operand(weight.to(dtype).t(), rows) for weight in weights]
        d_hidden: Any = None  # d h_k from the steps after it
        for k in reversed(range(len(gates))):
            if (k + 1) % depth == 0:
                given = d_output[k // depth]
                d_hidden = given.clone() if d_hidden is None else d_hidden.add_(given)
            d_z = gradients.step(k, d_hidden)[:, more:]
            d_read = matmul(d_z.to(dtype), operands[k % depth]).to(d_z.dtype)
            # An RHN's step has left in d_hidden what goes through the sum.
            if cell.name == "rhn" and state_mask is not None:
                d_hidden.addcmul_(d_read, state_mask)
            elif cell.name == "rhn":
                d_hidden += d_read
            else:
                d_hidden = d_read if state_mask is None else d_read.mul_(state_mask)
        read = hiddens[:-1] if state_mask is None else hiddens[:-1] * state_mask
        by_depth = [
            (gradients.d_z[level::depth, :, more:].flatten(0, 1), read[level::depth].flatten(0, 1))
            for level in range(depth)
        ]
        d_weights = [
            matmul(of_a_size(z, dtype).t(), of_a_size(x, dtype).t()).to(gates.dtype)
            for z, x in by_depth
        ]
        d_biases = [z.sum(0) for z, _ in by_depth[1:]]
        d_cell_state = None if cell.name == "rhn" else gradients.d_cell
        d_inputs = gradients.d_z[::depth, :, : len(weights[0])]
        return None, None, None, d_inputs, d_hidden, d_cell_state, *d_weights, *d_biases


def recurrence(
    cell: Cell,
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    cell_state: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor] = (),
    state_mask: torch.Tensor | None = None,
    recurrent_mask: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> RecurrenceResult:
    """
    Args:
        cell: which recurrence.
        inputs: u = W x + b, (T, R, G D) with G = ``cell.matmul_parts``.
        hidden: h before the first step, (R, D).
        cell_state: c of an LSTM or a NAS cell before the first step, (R, D); None of an RHN.
        weights: W_l of the L micro-steps, each (G D, D).
        biases: b_l of the micro-steps after the first, each (G D,).
        state_mask: (R, D), multiplies what the products read of h; None: no dropout.
        recurrent_mask: (R, D), multiplies g; None: no dropout.
        dtype: of the products' factors and results; None: of ``inputs``.
    """
    masks = (state_mask, recurrent_mask)
    with autocast_off(inputs):
        output, last = _Recurrence.apply(
            cell, dtype or inputs.dtype, masks, inputs, hidden, cell_state, *weights, *biases
        )
    return RecurrenceResult(output, None if last is None else last.clone())
