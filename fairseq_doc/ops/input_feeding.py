"""The recurrence of a Luong decoder with input feeding (Luong et al., 2015, section 3.3).

Axes: T target time, B sentences, S source time, N LSTM layers, D width; R rows, k hypotheses of each
sentence side by side (R = k B; k = 1 in training), so that a beam shares its sentence's memory.

    x^1_t = [a_{t-1} ; e_t],   x^{n+1}_t = m^n_t * h^n_t              m: dropout between layers
    h^n_t, c^n_t = LSTM^n(x^n_t, h^n_{t-1}, c^n_{t-1})
    p_t = softmax_s(keys_s . h^N_t)                                   over real source positions
    a_t = tanh(W_q h^N_t + sum_s p_ts values_s)

With keys = memory W_a and values = memory W_m^T this is "general" attention and
a_t = tanh([W_q W_m] [h^N_t ; context_t]): what does not depend on step t - 1, those two products and
the embeddings' part of layer 1's gates, is made for all steps at once by the caller. Each layer's
input and recurrent matrices stand side by side, so a step takes one product a layer.

:func:`input_feeding_reference` is the plain form, differentiated by autograd; :func:`input_feeding`
computes the same with its own backward, which leaves one product a layer and step in the loop, and
makes the gradient of each matrix in one product over all steps: autograd would add up T of them.
"""

import torch

from fairseq_doc.ops.matmul import (
    add_matmul_,
    autocast_off,
    dense_operand,
    matmul,
    matmul_dtype,
)
from fairseq_doc.ops.reference import sum_dtype


def lstm_cell(gates, cell):
    """One step of an LSTM: gates (B, 4 D) before their activations, in torch's order input,
    forget, cell, output; cell (B, D). Returns h and c, (B, D)."""
    i, f, g, o = gates.chunk(4, dim=1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def attend(query, keys, values, blocked):
    """Attention by inner products.

    Args:
        query: (B, Q, D), Q queries of each sentence.
        keys: (B, S, D).
        values: (B, S, D).
        blocked: (B, S), true at padding, which gets no weight.

    Returns:
        The weighted sums of the values (B, Q, D) and the weights (B, Q, S).
    """
    scores = torch.bmm(query, keys.transpose(1, 2))  # (B, Q, S)
    weights = masked_softmax(scores, blocked.unsqueeze(1))
    return torch.bmm(weights, values), weights


def masked_softmax(scores, blocked):
    """softmax over the last axis, exactly zero where ``blocked``; summed in float32 or wider."""
    scores = scores.masked_fill(blocked, -torch.inf)
    return torch.softmax(scores, dim=-1, dtype=sum_dtype(scores.dtype)).to(scores.dtype)


def input_feeding_reference(
    gates,
    keys,
    values,
    blocked,
    query_weight,
    attentional,
    hidden,
    cell,
    joint_weights,
    biases,
    masks,
    attend=attend,
):
    """The recurrence in its plain form.

    Args:
        gates: layer 1's gates from the embeddings and its biases, (T, R, 4 D).
        keys: (B, S, D).
        values: (B, S, D).
        blocked: (B, S), true at padding of the source.
        query_weight: W_q, (D, D).
        attentional: a_0, (R, D).
        hidden: h^n_0, (N, R, D).
        cell: c^n_0, (N, R, D).
        joint_weights: N matrices (4 D, 2 D): columns for x^n (for a_{t-1} in layer 1), then for
            h^n_{t-1}.
        biases: N - 1 vectors (4 D,), of layers 2 to N.
        masks: N - 1 dropout masks (T, R, D), zero or 1 / (1 - p), of the outputs of layers 1 to
            N - 1; or None each.
        attend: another attention of the same signature.

    Returns:
        outputs: h^1 .. h^N before dropout, each (T, R, D).
        attentional: a_1 .. a_T, (T, R, D).
        weights: p, (T, R, S).
        cell: c^n_T, (N, R, D).
    """
    hidden, cell = list(hidden), list(cell)
    rows, width = attentional.shape
    steps = []
    for t in range(len(gates)):
        x = attentional
        for n, weight in enumerate(joint_weights):
            z = torch.cat([x, hidden[n]], dim=1) @ weight.t()  # (R, 4 D)
            z = z + (gates[t] if n == 0 else biases[n - 1])
            hidden[n], cell[n] = lstm_cell(z, cell[n])
            x = hidden[n]
            if n < len(masks) and masks[n] is not None:
                x = x * masks[n][t]
        context, weights = attend(x.view(len(keys), -1, width), keys, values, blocked)
        attentional = torch.tanh(x @ query_weight.t() + context.view(rows, width))
        steps.append((torch.stack(hidden), attentional, weights.view(rows, -1)))
    outputs, attentional, weights = map(torch.stack, zip(*steps, strict=True))
    return list(outputs.unbind(1)), attentional, weights, torch.stack(cell)


class _InputFeeding(torch.autograd.Function):
    """Derivation, with d x for dL/dx and z for the gates before their activations:

        d a_t     = given + (layer 1's dx of step t + 1)
        d u_t     = d a_t (1 - a_t^2)                     u: the tanh's argument
        d p_t     = values . d u_t,   d s_t = p_t (d p_t - sum_s p_ts d p_ts)
        d h^N_t   = given + W_q^T d u_t + sum_s d s_ts keys_s + (recurrent part of step t + 1)
        d c       = d h o (1 - tanh(c)^2) + d c_{t+1} f_{t+1}
        d z       = (d c g i(1 - i),  d c c_{t-1} f(1 - f),  d c i (1 - g^2),  d h tanh(c) o(1 - o))
        [dx ; dh_{t-1}] = joint^T d z

    The factors of d c and d h in d z do not depend on later steps: all are made before the loop.
    After it, with Z and X the rows of all steps, d joint = Z^T X, d W_q = U^T H, and for each
    sentence d keys = sum_t d s_t h^N_t^T, d values = sum_t p_t d u_t^T.
    """

    @staticmethod
    def forward(
        ctx, gates, keys, values, blocked, query_weight, attentional, hidden, cell, n_layers, *rest
    ):
        joints, biases, masks = _split(rest, n_layers)
        query_weight = dense_operand(query_weight)  # half of the columns of a wider matrix
        (time, rows), (sentences, places, width) = gates.shape[:2], keys.shape
        new = gates.new_empty
        # Row t holds x^n_t and h^n_{t-1}; of layer 1, a_{t-1}: outputs are written where the next
        # step, and the gradients of the matrices, read them.
        inputs = [new(time + 1, rows, 2 * width) for _ in joints]
        cells = [new(time + 1, rows, width) for _ in joints]
        active = [new(time, rows, 4 * width) for _ in joints]  # i, f, g, o
        weights = new(time, rows, places)
        inputs[0][0, :, :width] = attentional
        for n in range(n_layers):
            inputs[n][0, :, width:] = hidden[n]
            cells[n][0] = cell[n]
        keys_by_width, blocked = keys.transpose(1, 2), blocked.unsqueeze(1)
        for t in range(time):
            for n, joint in enumerate(joints):
                z = active[n][t]
                z.copy_(gates[t] if n == 0 else biases[n - 1])
                add_matmul_(z, inputs[n][t], joint)
                z[:, : 2 * width].sigmoid_()
                z[:, 2 * width : 3 * width].tanh_()
                z[:, 3 * width :].sigmoid_()
                i, f, g, o = z.chunk(4, dim=1)
                c = torch.mul(f, cells[n][t], out=cells[n][t + 1]).addcmul_(i, g)
                h = torch.mul(o, torch.tanh(c), out=inputs[n][t + 1, :, width:])
                if n + 1 < n_layers:
                    x = inputs[n + 1][t, :, :width]
                    if masks[n] is None:
                        x.copy_(h)
                    else:
                        torch.mul(h, masks[n][t], out=x)
            scores = torch.bmm(h.view(sentences, -1, width), keys_by_width)  # (B, k, S)
            p = masked_softmax(scores, blocked)
            weights[t] = p.view(rows, places)
            context = torch.bmm(p, values).view(rows, width)
            add_matmul_(context, h, query_weight)
            torch.tanh(context, out=inputs[0][t + 1, :, :width])
        ctx.n_layers = n_layers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            keys, values, query_weight, weights, *inputs, *cells, *active, *joints, *masks
        )
        ctx.mark_non_differentiable(weights)
        outputs = [x[1:, :, width:] for x in inputs]
        return inputs[0][1:, :, :width], weights, torch.stack([c[-1] for c in cells]), *outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_attentional, _, d_cell, *d_outputs):
        n_layers = ctx.n_layers
        keys, values, query_weight, weights, *saved = ctx.saved_tensors
        inputs, cells, active, joints = (saved[k * n_layers : (k + 1) * n_layers] for k in range(4))
        masks = saved[4 * n_layers :]
        (time, rows, places), (sentences, _, width) = weights.shape, keys.shape
        attentional, top = inputs[0][1:, :, :width], inputs[-1][1:, :, width:]
        slope = 1 - attentional.square()
        parts = [_factors(*of_layer) for of_layer in zip(active, cells, strict=True)]
        d_u, d_scores = keys.new_empty(time, rows, width), torch.empty_like(weights)
        # What comes from step t + 1.
        d_fed, d_hidden = 0.0, [0.0] * n_layers
        d_cell = list(keys.new_zeros(n_layers, rows, width) if d_cell is None else d_cell)
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
                factors, h_in_cell, forget = (part[t] for part in parts[n])
                d_c = torch.addcmul(d_cell[n], d_h, h_in_cell)
                factors[:, : 3 * width].view(rows, 3, width).mul_(d_c.unsqueeze(1))
                factors[:, 3 * width :].mul_(d_h)  # now d z
                d_cell[n] = d_c * forget
                d_h, d_hidden[n] = matmul(factors, joints[n].t()).split(width, dim=1)
                if n > 0 and masks[n - 1] is not None:
                    d_h = d_h * masks[n - 1][t]
            d_fed = d_h
        d_z = [factors.flatten(0, 1) for factors, _, _ in parts]  # (T R, 4 D)
        d_u, by_sentence = d_u.flatten(0, 1), (time, sentences, -1, width)
        return (
            d_z[0].view(time, rows, 4 * width),
            _sum_over_time(d_scores.view(time, sentences, -1, places), top.reshape(by_sentence)),
            _sum_over_time(weights.view(time, sentences, -1, places), d_u.view(by_sentence)),
            None,
            matmul(d_u.t(), top.flatten(0, 1).t()),
            d_fed,
            torch.stack(d_hidden),
            torch.stack(d_cell),
            None,
            *(matmul(z.t(), x[:-1].flatten(0, 1).t()) for z, x in zip(d_z, inputs, strict=True)),
            *(z.sum(0) for z in d_z[1:]),
            *[None] * len(masks),
        )


def _sum_over_time(by_place, by_width):
    """sum over t and k of (T, B, k, S) times (T, B, k, D): (B, S, D)."""
    by_place = by_place.permute(1, 3, 0, 2).flatten(2)  # (B, S, T k)
    return torch.bmm(by_place, by_width.permute(1, 0, 2, 3).flatten(1, 2))


def _split(rest, n_layers):
    return rest[:n_layers], rest[n_layers : 2 * n_layers - 1], rest[2 * n_layers - 1 :]


def _factors(active, cells):
    """What d c (i, f, g) and d h (o) are multiplied by in d z (T, R, 4 D), what d h is in d c
    (T, R, D), and the forget gates (T, R, D)."""
    i, f, g, o = active.chunk(4, dim=2)
    tanh_c = torch.tanh(cells[1:])
    factors = torch.cat(
        [g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g.square()), tanh_c * o * (1 - o)],
        dim=2,
    )
    return factors, o * (1 - tanh_c.square()), f


def input_feeding(
    gates,
    keys,
    values,
    blocked,
    query_weight,
    attentional,
    hidden,
    cell,
    joint_weights,
    biases,
    masks,
):
    """The recurrence with its own backward; arguments and result as
    :func:`input_feeding_reference`. No gradient flows through the attention weights returned. Under
    autocast all of it is in autocast's dtype."""
    dtype = matmul_dtype(gates)
    with autocast_off(gates):
        attentional, weights, cell, *outputs = _InputFeeding.apply(
            gates.to(dtype),
            keys.to(dtype),
            values.to(dtype),
            blocked,
            query_weight.to(dtype),
            attentional.to(dtype),
            hidden.to(dtype),
            cell.to(dtype),
            len(joint_weights),
            *(weight.to(dtype) for weight in joint_weights),
            *(bias.to(dtype) for bias in biases),
            *(mask if mask is None else mask.to(dtype) for mask in masks),
        )
    return outputs, attentional, weights, cell
