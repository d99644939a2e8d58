"""One LSTM layer over all steps of a window, with its own backward and its products' dtype.

Axes: T time, B columns, K width of the input, D of the layer.

    z_t = W_x x_t + b + W_h h_{t-1}        then the cell, see ops/lstm_cell.py

W_x x_t + b is one product for all steps, so a step has one product. Going back a step has one too,
d h_{t-1} = W_h^T d z_t, and after the loop the matrices' gradients are one product each: with Z, X and
H the rows of all steps, d W_x = Z^T X, d W_h = Z^T H, d x = Z W_x. States, gates and gradients have the
input's dtype; the factors and the results of the products may be rounded to a narrower one.
"""

from typing import Any

import torch

from fairseq_doc.ops.lstm_cell import CellGradients, CellSteps
from fairseq_doc.ops.matmul import autocast_off, backward_without_autocast, loop_operand, matmul


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, hidden, cell, input_weight, recurrent_weight, bias, dtype):
        (time, columns, _), width = x.shape, hidden.size(1)
        inputs, input_weight = x.flatten(0, 1).to(dtype), input_weight.to(dtype)
        recurrent_weight = recurrent_weight.to(dtype)
        gates = matmul(inputs, input_weight).to(x.dtype).add_(bias).view(time, columns, 4 * width)
        hiddens, cells = (x.new_empty(time + 1, columns, width) for _ in range(2))
        hiddens[0], cells[0] = hidden, cell
        step_weight = loop_operand(recurrent_weight, columns)
        steps = CellSteps(gates, cells, hiddens[1:])
        for t, z in enumerate(gates.unbind(0)):
            z += matmul(hidden.to(dtype), step_weight)
            hidden = steps.step(t)
        ctx.save_for_backward(inputs, input_weight, recurrent_weight, gates, hiddens, cells)
        return hiddens[1:], cells[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_output, d_cell):
        inputs, input_weight, recurrent_weight, gates, hiddens, cells = ctx.saved_tensors
        dtype, needed = inputs.dtype, ctx.needs_input_grad
        time, columns, width = d_output.shape
        gradients = CellGradients(gates, cells, d_cell)
        step_weight = loop_operand(recurrent_weight.t(), columns)
        d_hidden: Any = 0.0  # d h_t from step t + 1
        for t in reversed(range(time)):
            d_z = gradients.step(t, d_output[t] + d_hidden)
            d_hidden = matmul(d_z.to(dtype), step_weight)
        d_z = gradients.d_z.flatten(0, 1)  # (T B, 4 D)
        d_bias = d_z.sum(0)
        d_z = d_z.to(dtype)
        before = hiddens[:-1].flatten(0, 1).to(dtype)
        d_x = matmul(d_z, input_weight.t()) if needed[0] else None
        return (
            None if d_x is None else d_x.to(gates.dtype).view(time, columns, -1),
            d_hidden.to(gates.dtype),
            gradients.d_cell,
            matmul(d_z.t(), inputs.t()).to(gates.dtype),
            matmul(d_z.t(), before.t()).to(gates.dtype),
            d_bias,
            None,
        )


def lstm(
    x: torch.Tensor,
    state: tuple[torch.Tensor, torch.Tensor],
    input_weight: torch.Tensor,
    recurrent_weight: torch.Tensor,
    bias: torch.Tensor,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """
    Args:
        x: (T, B, K).
        state: (h, c) before the first step, each (1, B, D).
        input_weight: W_x, (4 D, K), the gates in torch's order.
        recurrent_weight: W_h, (4 D, D).
        bias: (4 D,); torch's modules have two, which only occur as a sum.
        dtype: of the products' factors and results.

    Returns:
        The output (T, B, D) and the state after it.
    """
    hidden, cell = (part[0] for part in state)
    with autocast_off(x):
        output, cell = _LSTM.apply(x, hidden, cell, input_weight, recurrent_weight, bias, dtype)
    # Copies: views would keep the states of all steps in memory.
    return output, (output[-1:].clone(), cell.unsqueeze(0).clone())
