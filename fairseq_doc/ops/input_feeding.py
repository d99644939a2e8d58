"""The recurrence of a Luong decoder with input feeding (Luong et al., 2015, section 3.3).

Axes: T target time, B sentences, S source time, N LSTM layers, D width; R rows, k hypotheses of
each sentence side by side (R = k B; k = 1 in training), which share its memory.

    x^1_t = [a_{t-1} ; e_t],   x^{n+1}_t = m^n_t * h^n_t              m: dropout between layers
    h^n_t, c^n_t = LSTM^n(x^n_t, h^n_{t-1}, c^n_{t-1})
    p_t = softmax_s(keys_s . h^N_t)                       over source positions without padding
    a_t = tanh(W_q h^N_t + sum_s p_ts values_s)

With keys = memory W_a and values = memory W_m^T this is "general" attention, with
a_t = tanh([W_q W_m] [h^N_t ; context_t]). The caller computes both products, and the embeddings'
part of layer 1's gates, for all steps at once. Each layer's input and recurrent matrices are joined
side by side, so a step takes one product per layer. The backward of :func:`input_feeding` computes
each matrix's gradient in one product over all steps, where autograd would add up T products.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from fairseq_doc.ops.cell import Memory
from fairseq_doc.ops.gated_cell import LSTMCell, lstm_cell
from fairseq_doc.ops.matmul import (
    StepMatmul,
    add_matmul_,
    autocast_off,
    backward_without_autocast,
    dense_operand,
    loop_operand,
    matmul_dtype,
    matrix_gradient,
)
from fairseq_doc.ops.mixture import sum_dtype

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


N_SINGLE: Final = 8  # arguments that are one tensor


class InputFeedingArguments(NamedTuple):
    """The arguments of the recurrence. A joint weight has the columns for x^n (for a_{t-1} in layer
    1), then those for h^n_{t-1}. If its dtype is narrower, the other factor of its products is
    rounded to it."""

    gates: Tensor  # layer 1's, from the embeddings and its biases, (T, R, 4 D)
    keys: Tensor  # (B, S, D)
    values: Tensor  # (B, S, D)
    padding_mask: Tensor  # (B, S), true at padding of the source
    query_weight: Tensor  # W_q, (D, D)
    attentional: Tensor  # a_0, (R, D)
    hidden: Tensor  # h^n_0, (N, R, D)
    cell: Tensor  # c^n_0, (N, R, D)
    joint_weights: Sequence[Tensor]  # N times (4 D, 2 D)
    biases: Sequence[Tensor]  # of layers 2 to N, each (4 D,)
    dropout_masks: Sequence[Tensor | None]  # of layers 1 to N - 1, (T, R, D): 0 or 1 / (1 - p)

    def flatten(self) -> tuple[Tensor | None, ...]:
        """All tensors in a tuple, as ``torch.autograd.Function`` needs them."""
        return (*self[:N_SINGLE], *self.joint_weights, *self.biases, *self.dropout_masks)

    @classmethod
    def unflatten(cls, tensors: Sequence[Any], n_layers: int) -> "InputFeedingArguments":
        after_weights = N_SINGLE + n_layers
        after_biases = after_weights + n_layers - 1
        joint_weights, biases = tensors[N_SINGLE:after_weights], tensors[after_weights:after_biases]
        return cls._make([*tensors[:N_SINGLE], joint_weights, biases, tensors[after_biases:]])


class InputFeedingResult(NamedTuple):
    """The results of the recurrence."""

    outputs: list[Tensor]  # h^1 .. h^N before dropout, each (T, R, D)
    attentional: Tensor  # a_1 .. a_T, (T, R, D)
    weights: Tensor  # p, (T, R, S)
    cell: Tensor  # c^n_T, (N, R, D)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention by inner products: queries (B, Q, D), keys and values (B, S, D), mask (B, S), true
    at padding -> sums of the values (B, Q, D) and their weights (B, Q, S), zero at padding."""
    scores = torch.bmm(query, keys.transpose(1, 2))  # (B, Q, S)
    weights = masked_softmax(scores, padding_mask.unsqueeze(1))
    return torch.bmm(weights, values), weights


def masked_softmax(scores: Tensor, padding_mask: Tensor) -> Tensor:
    """Softmax over the last axis, exactly zero where masked; summed in float32 or wider."""
    scores = scores.masked_fill(padding_mask, -torch.inf)
    return torch.softmax(scores, dim=-1, dtype=sum_dtype(scores.dtype)).to(scores.dtype)


def input_feeding_reference(
    arguments: InputFeedingArguments, attend: Attend = attend
) -> InputFeedingResult:
    """The recurrence in its plain form; ``attend`` may be a different attention."""
    attentional = arguments.attentional
    hidden, cell = list(arguments.hidden), list(arguments.cell)
    masks = arguments.dropout_masks
    rows, width = attentional.shape
    steps = []
    for t in range(len(arguments.gates)):
        x = attentional
        for n, weight in enumerate(arguments.joint_weights):
            joint = torch.cat([x, hidden[n]], dim=1).to(weight.dtype)
            z = (joint @ weight.t()).to(x.dtype)  # (R, 4 D)
            z = z + (arguments.gates[t] if n == 0 else arguments.biases[n - 1])
            hidden[n], cell[n] = lstm_cell(z, cell[n])
            x = hidden[n]
            mask = masks[n] if n < len(masks) else None
            if mask is not None:
                x = x * mask[t]
        query = x.view(len(arguments.keys), -1, width)  # (B, k, D)
        context, weights = attend(query, arguments.keys, arguments.values, arguments.padding_mask)
        attentional = torch.tanh(x @ arguments.query_weight.t() + context.view(rows, width))
        steps.append((torch.stack(hidden), attentional, weights.view(rows, -1)))
    outputs, attentional, weights = (torch.stack(parts) for parts in zip(*steps, strict=True))
    return InputFeedingResult(list(outputs.unbind(1)), attentional, weights, torch.stack(cell))


def _new_activations(arguments):
    """Memory that the forward pass writes and the backward pass reads, with a tensor per layer:
    ``inputs`` (T + 1, R, 2 D), row t: x^n_t (a_{t-1} in layer 1), h^n_{t-1}; ``cells``
    (T + 1, R, D), row t: c^n_{t-1}; ``gates`` (T, R, 4 D): i, f, g, o after their activations. Only
    the first step's are filled in: a step writes its outputs where the next one reads them."""
    (time, rows, _), width = arguments.gates.shape, arguments.attentional.size(1)
    shapes = (time + 1, rows, 2 * width), (time + 1, rows, width), (time, rows, 4 * width)
    layers = range(len(arguments.joint_weights))
    inputs, cells, gates = ([arguments.gates.new_empty(x) for _ in layers] for x in shapes)
    inputs[0][0, :, :width] = arguments.attentional
    for n in layers:
        inputs[n][0, :, width:] = arguments.hidden[n]
        cells[n][0] = arguments.cell[n]
    return inputs, cells, gates


def _memories(inputs, cells, gates):
    width = cells[0].size(2)
    return [Memory(z, c, x[1:, :, width:]) for x, c, z in zip(inputs, cells, gates, strict=True)]


class _InputFeeding(torch.autograd.Function):
    """Derivation, with d x for dL/dx and z for the gates before their activations:

        d a_t     = given + (layer 1's dx of step t + 1)
        d u_t     = d a_t (1 - a_t^2)                     u: the tanh's argument
        d p_t     = values . d u_t,   d s_t = p_t (d p_t - sum_s p_ts d p_ts)
        d h^N_t   = given + W_q^T d u_t + sum_s d s_ts keys_s + (recurrent part of step t + 1)
        [dx ; dh_{t-1}] = joint^T d z                      d z from d h: see ops/gated_cell.py

    After the loop, with Z and X the rows of all steps, d joint = Z^T X, d W_q = U^T H, and for each
    sentence d keys = sum_t d s_t h^N_t^T, d values = sum_t p_t d u_t^T.
    """

    @staticmethod
    def forward(ctx, n_layers, *tensors):
        arguments = InputFeedingArguments.unflatten(tensors, n_layers)
        gates, keys, values, padding_mask, *_ = arguments
        query_weight = dense_operand(arguments.query_weight)  # half the columns of a wider matrix
        (time, rows), (sentences, places, width) = gates.shape[:2], keys.shape
        inputs, cells, activated = saved = _new_activations(arguments)
        weights, lstm = gates.new_empty(time, rows, places), LSTMCell()
        layers = [lstm.steps(lstm, memory) for memory in _memories(*saved)]
        keys_by_width = keys.transpose(1, 2)  # (B, D, S)
        padding_mask = padding_mask.unsqueeze(1)
        operands, dtype = arguments.joint_weights, arguments.joint_weights[0].dtype
        if time > 1:
            operands = [loop_operand(joint_weight, rows) for joint_weight in operands]
        for t in range(time):
            for n, operand in enumerate(operands):
                z = activated[n][t].copy_(gates[t] if n == 0 else arguments.biases[n - 1])
                add_matmul_(z, inputs[n][t].to(dtype), operand)
                h = layers[n].step(t)
                if n + 1 < n_layers:
                    mask, read = arguments.dropout_masks[n], inputs[n + 1][t, :, :width]
                    if mask is None:
                        read.copy_(h)
                    else:
                        torch.mul(h, mask[t], out=read)
            scores = torch.bmm(h.view(sentences, -1, width), keys_by_width)  # (B, k, S)
            p = masked_softmax(scores, padding_mask)
            weights[t] = p.view(rows, places)
            context = torch.bmm(p, values).view(rows, width)
            add_matmul_(context, h, query_weight)
            torch.tanh(context, out=inputs[0][t + 1, :, :width])
        ctx.n_layers = n_layers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            keys, values, query_weight, weights, *inputs, *cells, *activated,
            *arguments.joint_weights, *arguments.dropout_masks,
        )  # fmt: skip
        ctx.mark_non_differentiable(weights)
        outputs = [x[1:, :, width:] for x in inputs]
        return inputs[0][1:, :, :width], weights, torch.stack([c[-1] for c in cells]), *outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_attentional, _, d_cell, *d_outputs):
        n_layers = ctx.n_layers
        keys, values, query_weight, weights, *rest = ctx.saved_tensors
        inputs, cells, gates, joints = (rest[k * n_layers : (k + 1) * n_layers] for k in range(4))
        masks, lstm = rest[4 * n_layers :], LSTMCell()
        (time, rows, places), (sentences, _, width) = weights.shape, keys.shape
        attentional, top = inputs[0][1:, :, :width], inputs[-1][1:, :, width:]
        slope = 1 - attentional.square()
        if d_cell is None:
            d_cell = keys.new_zeros(n_layers, rows, width)
        memories = zip(_memories(inputs, cells, gates), d_cell, strict=True)
        layers = [lstm.gradients(lstm, memory, d_last) for memory, d_last in memories]
        products, dtype = [StepMatmul(joint.t(), rows) for joint in joints], joints[0].dtype
        d_hidden: list[Any] = [0.0] * n_layers  # the recurrent part of d h^n_t, from step t + 1
        d_u, d_scores = keys.new_empty(time, rows, width), torch.empty_like(weights)
        d_fed: Any = 0.0  # d a_t from step t + 1
        for t in reversed(range(time)):
            if d_attentional is not None:
                d_fed = d_attentional[t] + d_fed
            torch.mul(slope[t], d_fed, out=d_u[t])
            p, d_context = weights[t], d_u[t].view(sentences, -1, width)
            d_p = torch.bmm(d_context, values.transpose(1, 2)).view(rows, places)
            d_s = torch.mul(p, d_p - (p * d_p).sum(1, keepdim=True), out=d_scores[t])
            d_h = torch.bmm(d_s.view(sentences, -1, places), keys).view(rows, width)
            add_matmul_(d_h, d_u[t], query_weight.t())
            for n in reversed(range(n_layers)):
                d_h = d_h + d_hidden[n]
                if d_outputs[n] is not None:
                    d_h += d_outputs[n][t]
                d_joint = products[n].of(layers[n].step(t, d_h))
                d_h, d_hidden[n] = d_joint.split(width, dim=1)
                if n > 0 and masks[n - 1] is not None:
                    d_h = d_h * masks[n - 1][t]
            d_fed = d_h
        d_zs = [layer.d_z.flatten(0, 1) for layer in layers]  # (T R, 4 D)
        d_joints = [matrix_gradient(z, x[:-1], dtype) for z, x in zip(d_zs, inputs, strict=True)]
        d_arguments = InputFeedingArguments(
            gates=d_zs[0].view(time, rows, 4 * width),
            keys=_sum_over_time(d_scores, top, sentences),
            values=_sum_over_time(weights, d_u, sentences),
            padding_mask=None,  # type: ignore[arg-type]  # it has no gradient
            query_weight=matrix_gradient(d_u, top, d_u.dtype),
            attentional=d_fed,
            hidden=torch.stack(d_hidden),
            cell=torch.stack([layer.d_cell for layer in layers]),
            joint_weights=d_joints,
            biases=[z.sum(0) for z in d_zs[1:]],
            dropout_masks=[None] * len(masks),
        )
        return None, *d_arguments.flatten()


def _sum_over_time(by_place: Tensor, by_width: Tensor, sentences: int) -> Tensor:
    """The sum over t and k of (T, R, S) times (T, R, D): (B, S, D)."""
    by_place, by_width = (x.unflatten(1, (sentences, -1)) for x in (by_place, by_width))
    by_place = by_place.permute(1, 3, 0, 2).flatten(2)  # (B, S, T k)
    return torch.bmm(by_place, by_width.permute(1, 0, 2, 3).flatten(1, 2))


def input_feeding(arguments: InputFeedingArguments) -> InputFeedingResult:
    """The recurrence with its own backward. It equals :func:`input_feeding_reference`, except that
    no gradient flows through the returned attention weights. Under autocast everything is in
    autocast's dtype."""
    n_layers, tensors = len(arguments.joint_weights), arguments.flatten()
    if torch.is_autocast_enabled(arguments.gates.device.type):
        dtype = matmul_dtype(arguments.gates)
        tensors = tuple(x if x is None or x.dtype == torch.bool else x.to(dtype) for x in tensors)
    with autocast_off(arguments.gates):
        attentional, weights, cell, *outputs = _InputFeeding.apply(n_layers, *tensors)
    return InputFeedingResult(outputs, attentional, weights, cell)
