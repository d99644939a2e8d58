"""A recurrence over all steps of a window, with its own backward.

Axes: T time, R rows, D width, L micro-steps in a step (an LSTM has one), S = T L, G parts of z, M
parts of a product (``ops/cell.py``). Micro-step k = t L + l reads the state h before it and gives
the next one:

    z_k = W_l (m h) + (u_t if l = 0, else b_l)        then the cell, see ops/gated_cell.py

The caller computes u_t = W x_t + b in one product for all steps. m is the dropout mask of the
state, the same for all steps: it changes what the product reads, not the state. In the backward
pass, d (m h) = W_l^T d z_k; after the loop, the gradient of each matrix is one product with the
rows of all steps, d W_l = Z^T (m H). The products may be rounded to a narrower dtype than u's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_doc.ops.cell import Cell, Memory
from fairseq_doc.ops.gated_cell import HighwayCell, LSTMCell
from fairseq_doc.ops.matmul import (
    StepMatmul,
    autocast_off,
    backward_without_autocast,
    matrix_gradient,
)
from fairseq_doc.ops.nas_cell import NASCell

CELLS: dict[str, type[Cell]] = {cell.name: cell for cell in (LSTMCell, HighwayCell, NASCell)}


class RecurrenceResult(NamedTuple):
    """The result of a recurrence."""

    output: Tensor  # h after every step, (T, R, D)
    cell: Tensor | None  # c after the last step, (R, D); None for an RHN

    def state(self) -> tuple[Tensor, ...]:
        """h and c after the last step, each (1, R, D); an RHN has only h. They are copies, since
        views would keep the states of all steps in memory."""
        hidden = self.output[-1:].clone()
        return (hidden,) if self.cell is None else (hidden, self.cell.unsqueeze(0))


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cell, dtype, masks, inputs, hidden, cell_state, *matrices):
        (time, rows, _), width, depth = inputs.shape, hidden.size(1), (len(matrices) + 1) // 2
        weights, biases = matrices[:depth], matrices[depth:]
        state_mask, recurrent_mask = masks
        gates = inputs.new_empty(time * depth, rows, cell.parts * width)  # (S, R, G D)
        hiddens = inputs.new_empty(len(gates) + 1, rows, width)
        states = torch.empty_like(hiddens) if cell.has_cell_state else hiddens
        hiddens[0], states[0] = hidden, cell_state if cell.has_cell_state else hidden
        steps = cell.steps(cell, Memory(gates, states, hiddens[1:], recurrent_mask))
        products = [StepMatmul(weight, rows, dtype) for weight in weights]
        for t, u in enumerate(inputs.unbind(0)):
            for level, (product, added) in enumerate(zip(products, [u, *biases], strict=True)):
                read = hidden if state_mask is None else hidden * state_mask
                if level and dtype == u.dtype:  # a product can add b_l, a vector, but not u_t
                    z, added = product.of(read, added), None
                else:
                    z = product.of(read)
                hidden = steps.step(t * depth + level, z, added)
        ctx.cell, ctx.dtype = cell, dtype
        ctx.save_for_backward(gates, hiddens, states, state_mask, recurrent_mask, *weights)
        return hiddens[depth::depth], states[-1] if cell.has_cell_state else None

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_output, d_cell):
        gates, hiddens, states, state_mask, recurrent_mask, *weights = ctx.saved_tensors
        cell, dtype, depth = ctx.cell, ctx.dtype, len(weights)
        rows, skipped = gates.size(1), gates.size(2) - len(weights[0])
        memory = Memory(gates, states, hiddens[1:], recurrent_mask)
        gradients = cell.gradients(cell, memory, d_cell)
        products = [StepMatmul(weight.t(), rows, dtype) for weight in weights]
        d_hidden: Any = None  # d h_k from the steps after it
        for k in reversed(range(len(gates))):
            if (k + 1) % depth == 0:
                given = d_output[k // depth]
                d_hidden = given.clone() if d_hidden is None else d_hidden.add_(given)
            d_read = products[k % depth].of(gradients.step(k, d_hidden)[:, skipped:])
            if cell.has_cell_state:
                d_hidden = d_read if state_mask is None else d_read.mul_(state_mask)
            elif state_mask is None:
                d_hidden += d_read
            else:
                d_hidden.addcmul_(d_read, state_mask)
        read = hiddens[:-1] if state_mask is None else hiddens[:-1] * state_mask
        by_level = [
            gradients.d_z[level::depth, :, skipped:].flatten(0, 1) for level in range(depth)
        ]
        d_weights = [
            matrix_gradient(d_z, read[level::depth], dtype).to(gates.dtype)
            for level, d_z in enumerate(by_level)
        ]
        d_biases = [d_z.sum(0) for d_z in by_level[1:]]
        d_inputs = gradients.d_z[::depth, :, : len(weights[0])]
        return None, None, None, d_inputs, d_hidden, gradients.d_cell, *d_weights, *d_biases


def recurrence(
    cell: Cell,
    inputs: Tensor,  # u = W x + b, (T, R, M D), in the order of z (``Cell.input_order``)
    hidden: Tensor,  # h before the first step, (R, D)
    cell_state: Tensor | None,  # c, likewise; None for an RHN
    weights: Sequence[Tensor],  # W_l of the L micro-steps, each (M D, D), in the order of z
    biases: Sequence[Tensor] = (),  # b_l of the micro-steps after the first, each (M D,)
    state_mask: Tensor | None = None,  # m, (R, D); None: no dropout
    recurrent_mask: Tensor | None = None,  # multiplies g, likewise
    dtype: torch.dtype | None = None,  # of the products' factors and results; None: of u
) -> RecurrenceResult:
    """The state h after every step, and c after the last one."""
    masks = (state_mask, recurrent_mask)
    with autocast_off(inputs):
        output, last = _Recurrence.apply(
            cell, dtype or inputs.dtype, masks, inputs, hidden, cell_state, *weights, *biases
        )
    return RecurrenceResult(output, None if last is None else last.clone())
