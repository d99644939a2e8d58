"""A Mogrifier LSTM over a window (Melis, Kocisky and Blunsom, 2020), with its own backward.

Axes: T time, R rows, E width of the input, D width of the layer, k rank.

Before step t the input x = x_t and the state h = h_{t-1} gate each other in r rounds:

    round i odd:    x <- 2 sigmoid(Q_i h + b_i) x,      Q_i (E, D)
    round i even:   h <- 2 sigmoid(R_i x + b_i) h,      R_i (D, E)

    z_t = W_x x + W_h h + b         then the cell of ops/gated_cell.py, whose c is not gated

If the state has a dropout mask m, the rounds and W_h read m h. The matrix of a round may be a
product of two factors, (to, k) and (k, from). Since the first round reads h, W_x x is not known
before the step, unlike in ops/recurrence.py: each step takes one product, of [W_x W_h] and [x ; h].

With d x for dL/dx, [d x ; d h] starts from [W_x W_h]^T d z_t and is passed through the rounds from
the last to the first. If x' = 2 s x, s = sigmoid(q), q = Q_i h + b_i, then

    d q = 2 d x' x s (1 - s),      d h += Q_i^T d q,      d x = 2 d x' s

and likewise in even rounds. At the end d h is multiplied by m. 2 x s (1 - s) is computed for all
steps before the loop. After the loop each matrix's gradient is one product with the rows of all
steps: d Q_i = sum d q h^T; with Q_i = U V, d U = sum d q (V h)^T and d V = sum (U^T d q) h^T.
Only the products with W_x and W_h may be rounded to a narrower dtype.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_doc.ops.cell import Memory, through_sigmoid
from fairseq_doc.ops.gated_cell import LSTMCell
from fairseq_doc.ops.matmul import (
    LEAST_LINEAR,
    LEAST_STEPS,
    StepMatmul,
    autocast_off,
    backward_without_autocast,
    matrix_gradient,
)
from fairseq_doc.ops.recurrence import RecurrenceResult


class Round(NamedTuple):
    """One round: the matrix from the gate's source to what it gates, and the bias."""

    matrices: tuple[Tensor, ...]  # the matrix (to, from), or its factors (to, k) and (k, from)
    bias: Tensor  # (to,)


class _RoundSteps:
    """One round in every step, from the first to the last; ``results``: (T, R, to)."""

    def __init__(self, of_round: Round, results: Tensor, zeros: Tensor) -> None:
        time, rows = results.shape[:2]
        self.gates = of_round.bias.repeat(time, rows, 1)
        self.narrow = [results.new_empty(time, rows, len(x)) for x in of_round.matrices[1:]]
        self.results, self._zeros = results, zeros
        self._products = [StepMatmul(matrix, rows, steps=time) for matrix in of_round.matrices]
        self._gates, self._results = self.gates.unbind(0), results.unbind(0)
        self._narrow = [x.unbind(0) for x in self.narrow]

    def step(self, t: int, gated: Tensor, source: Tensor) -> Tensor:
        if self._narrow:
            source = self._products[1].of(source, out=self._narrow[0][t])
        gate = self._products[0].add(source, self._gates[t]).sigmoid_()
        # 2 s x in one kernel
        return torch.addcmul(self._zeros, gated, gate, value=2, out=self._results[t])


class _RoundGradients:
    """The gradients of a round, from the last step to the first, from the gates s, the products
    ``narrow`` with the second factor, what was ``gated``, and the ``source`` of the gates, each
    (T, R, width)."""

    def __init__(self, matrices, gates, narrow, gated, source, zeros):
        time, rows = gates.shape[:2]
        self._products = [StepMatmul(matrix.t(), rows, steps=time) for matrix in matrices]
        self._read = [*narrow, source]  # by each matrix
        d_product = through_sigmoid(gated, gates, torch.empty_like(gates)).mul_(2)
        self._d_products = [d_product, *map(torch.empty_like, narrow)]
        self._gates = gates.unbind(0)
        self._by_step = [x.unbind(0) for x in self._d_products]
        self._zeros = zeros

    def step(self, t: int, d_gated: Tensor, d_source: Tensor, out: Tensor | None = None) -> None:
        """Turn the result's gradient into d_gated, in place or in ``out``; add to d_source."""
        d = self._by_step[0][t].mul_(d_gated)
        if len(self._products) == 2:
            d = self._products[0].of(d, out=self._by_step[1][t])
        self._products[-1].add(d, d_source)
        out = d_gated if out is None else out
        torch.addcmul(self._zeros, d_gated, self._gates[t], value=2, out=out)

    def of_parameters(self) -> list[Tensor]:
        """The gradients of the matrices and the bias, after all steps."""
        pairs = zip(self._d_products, self._read, strict=True)
        of_bias = self._d_products[0].flatten(0, 1).sum(0)
        return [*(_over_steps(d, x, x.dtype) for d, x in pairs), of_bias]


def _over_steps(d: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """As :func:`matrix_gradient`, but small products use torch's kernel."""
    d, x = d.flatten(0, 1), x.flatten(0, 1)
    if len(d) * d.size(1) * x.size(1) < LEAST_LINEAR:  # below it oneDNN's call takes longer
        return torch.mm(d.to(dtype).t(), x.to(dtype))
    return matrix_gradient(d, x, dtype)


class _Mogrifier(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, inputs, hidden, cell, input_weight, state_weight, bias, *of_rounds):
        counts, dtype, lstm, state_mask, recurrent_mask = options
        (time, rows, below), width = inputs.shape, hidden.size(1)
        new = inputs.new_empty
        hiddens, cells = new(time + 1, rows, width), new(time + 1, rows, width)
        gates = bias.repeat(time, rows, 1)
        hiddens[0], cells[0] = hidden, cell
        steps = lstm.steps(lstm, Memory(gates, cells, hiddens[1:], recurrent_mask))
        by_step = gates.unbind(0)
        both = new(time, rows, below + width)
        read = both.split([below, width], dim=2)  # by the cell: x and h after all rounds
        zeros = [torch.zeros_like(inputs[0]), torch.zeros_like(hidden)]
        parameters, rounds = iter(of_rounds), []
        for number, count in enumerate(counts):
            of_round, side = Round(tuple(islice(parameters, count)), next(parameters)), number % 2
            results = read[side]
            if number + 2 < len(counts):
                results = new(results.shape)
            rounds.append(_RoundSteps(of_round, results, zeros[side]))
        weights, operands = [input_weight, state_weight], list(read)
        if time >= LEAST_STEPS:  # a joint copy of the weights pays
            weights, operands = [torch.cat(weights, dim=1)], [both]
        products = [StepMatmul(weight, rows, dtype, time) for weight in weights]
        operands_by_step = list(zip(*(x.unbind(0) for x in operands), strict=True))
        hs = read[1].unbind(0)
        for t, x in enumerate(inputs.unbind(0)):
            if state_mask is not None:
                hidden = hidden * state_mask
            for number, one in enumerate(rounds):
                if number % 2:
                    hidden = one.step(t, hidden, x)
                else:
                    x = one.step(t, x, hidden)
            if len(rounds) < 2:
                hs[t].copy_(hidden)
            for product, operand in zip(products, operands_by_step[t], strict=True):
                product.add(operand, by_step[t])
            hidden = steps.step(t)
        ctx.options = options
        saved = [tensor for one in rounds for tensor in (one.gates, one.results, *one.narrow)]
        ctx.save_for_backward(
            inputs, hiddens, cells, gates, both, input_weight, state_weight, *of_rounds, *saved
        )
        return hiddens[1:], cells[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_output, d_cell):
        inputs, hiddens, cells, gates, both, input_weight, state_weight, *saved = ctx.saved_tensors
        counts, dtype, lstm, state_mask, recurrent_mask = ctx.options
        (time, rows, below), width = inputs.shape, hiddens.size(2)
        parameters, activations = iter(saved), iter(saved[sum(counts) + len(counts) :])
        zeros = [torch.zeros_like(inputs[0]), torch.zeros_like(hiddens[0])]
        before = hiddens[:-1] if state_mask is None else hiddens[:-1] * state_mask
        read = [inputs, before]  # by the next round: x and h of all steps
        rounds = []
        for number, count in enumerate(counts):
            matrices, side = list(islice(parameters, count)), number % 2
            next(parameters)  # the bias
            s, result, *narrow = islice(activations, count + 1)
            gated, source = read[side], read[1 - side]
            rounds.append(_RoundGradients(matrices, s, narrow, gated, source, zeros[side]))
            read[side] = result
        product = StepMatmul(torch.cat([input_weight, state_weight], 1).t(), rows, dtype, time)
        memory = Memory(gates, cells, hiddens[1:], recurrent_mask)
        gradients = lstm.gradients(lstm, memory, d_cell)
        d_inputs, d_hidden = torch.empty_like(inputs), torch.zeros_like(hiddens[0])
        by_step = zip(d_output.unbind(0), d_inputs.unbind(0), strict=True)
        for t, (given, d_input) in reversed(list(enumerate(by_step))):
            d_z = gradients.step(t, d_hidden.add_(given))
            d_x, d_hidden = product.of(d_z).split([below, width], dim=1)
            for number in reversed(range(1, len(rounds))):
                sides = (d_hidden, d_x) if number % 2 else (d_x, d_hidden)
                rounds[number].step(t, *sides)
            rounds[0].step(t, d_x, d_hidden, d_input)
            if state_mask is not None:
                d_hidden = d_hidden * state_mask
        d_joint = _over_steps(gradients.d_z, both, dtype).to(gates.dtype)
        d_weights = d_joint.split([below, width], dim=1)
        d_bias = gradients.d_z.flatten(0, 1).sum(0)
        of_rounds = [d for one in rounds for d in one.of_parameters()]
        return None, d_inputs, d_hidden, gradients.d_cell, *d_weights, d_bias, *of_rounds


def mogrifier(
    inputs: Tensor,  # x, (T, R, E)
    hidden: Tensor,  # h before the first step, (R, D)
    cell: Tensor,  # c, likewise
    input_weight: Tensor,  # W_x, (4 D, E), for the gates i, f, g, o; (3 D, E) without i if tied
    state_weight: Tensor,  # W_h, (4 D, D), likewise
    bias: Tensor,  # b, (4 D,), likewise
    rounds: Sequence[Round],  # one or more: the first gates x by h, the second h by x, and so on
    kind: str = "untied",  # of the gates, one of ``KINDS`` in ops/gated_cell.py
    state_mask: Tensor | None = None,  # m, (R, D); None: no dropout
    recurrent_mask: Tensor | None = None,  # multiplies g, likewise
    dtype: torch.dtype | None = None,  # of products with W_x and W_h; None: of x
) -> RecurrenceResult:
    """The output (T, R, D), not gated, and c after the last step."""
    counts = [len(one.matrices) for one in rounds]
    of_rounds = [tensor for one in rounds for tensor in (*one.matrices, one.bias)]
    tensors = [inputs, hidden, cell, input_weight, state_weight, bias, *of_rounds]
    options = counts, dtype or inputs.dtype, LSTMCell(kind), state_mask, recurrent_mask
    with autocast_off(inputs):
        output, last = _Mogrifier.apply(options, *tensors)
    return RecurrenceResult(output, last.clone())
