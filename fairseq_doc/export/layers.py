"""The layers and the mixture of a language model as nodes of an ONNX graph, in evaluation.

Axes: T time, B streams, D_0 width of the embedding, D_n width of layer n, D the largest D_n, J
components, d width of a component's vector, V vocabulary, M = T B positions, N layers.

A matrix is stored transposed, (inputs, outputs), as ``MatMul`` reads it. So the embedding and a tied
output matrix are the same (D_0, V) matrix, from which the embedding takes columns.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_doc.export.graph import Graph
from fairseq_doc.models.language_model import RecurrentDecoder
from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.modules.mixture import ACTIVATIONS, MixtureOutput
from fairseq_doc.modules.recurrent_stack import RecurrentStack
from fairseq_doc.ops.gated_cell import LSTMCell, n_gates


def layer_widths(decoder: RecurrentDecoder) -> list[int]:
    """D_1, ..., D_N."""
    zeros = decoder.lstm.zero_state(1, decoder.embedding)
    return [layer[0].size(2) for layer in zeros]


def add_layers(
    graph: Graph, decoder: RecurrentDecoder, tokens: str, before: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Add the embedding and the recurrent layers.

    ``tokens``: (B, T) words of the dictionary. ``before``: the state, h and c, each (N, B, D), where
    a narrower layer is padded by zeros, and c of an RHN is unused and returned unchanged.

    Returns [h^0, ..., h^N], each (T, B, D_n), for :class:`RecurrentStack` followed by their
    projected sum; and the state after the last step.
    """
    stack: Any = decoder.lstm
    by_time = graph("Transpose", tokens, perm=[1, 0])  # (T, B)
    columns = graph("Gather", graph.weight(decoder.embedding.t()), by_time, axis=1)
    x = graph("Transpose", columns, perm=[1, 2, 0])  # (D_0, T, B) -> (T, B, D_0)
    outputs, after = [x], []
    widths = layer_widths(decoder)
    for n, width in enumerate(widths):
        # each (1, B, D_n)
        state = [graph("Slice", part, [n, 0], [n + 1, width], [0, 2]) for part in before]
        x, *state = _layer(graph, stack, n, x, state)
        behind = [0, 0, 0, 0, 0, max(widths) - width]
        after.append([graph("Pad", part, behind) for part in state])  # each (1, B, D)
        outputs.append(x)
    if isinstance(stack, RecurrentStack):
        total = functools.reduce(functools.partial(graph, "Add"), outputs[1:])
        if stack.projection is not None:
            total = graph.linear(total, stack.projection)
        outputs.append(total)
    return outputs, [graph("Concat", *part, axis=0) for part in zip(*after, strict=True)]


def _layer(graph: Graph, stack: Any, n: int, x: str, state: list[str]) -> list[str]:
    """The output of layer n, (T, B, D_n), and its last h and c, each (1, B, D_n)."""
    layer = stack.layers[n]
    cell: Any
    mogrifier: Any
    if isinstance(stack, AWDLSTM):
        cell = LSTMCell("untied")
        mogrifier = stack.mogrifiers[n] if stack.mogrifiers else None
        input_weight, state_weights = layer.weight_ih_l0, [layer.weight_hh_l0]
        biases = [layer.bias_ih_l0 + layer.bias_hh_l0]
    else:
        cell, mogrifier = layer.cell, layer.mogrifier
        input_weight, state_weights, biases = layer.input_weight, layer.state_weights, layer.biases

    def step(body: Graph, before: Sequence[str], added: str) -> Sequence[str]:
        """See :mod:`fairseq_doc.ops.recurrence`; with a Mogrifier ``added`` is x."""
        state = list(before)
        if mogrifier is not None:
            added, state[0] = _mogrified(body, mogrifier.rounds, added, state[0])
            added = body.linear(added, input_weight, biases[0])
        for micro_step, weight in enumerate(state_weights):
            if micro_step:
                added = body.weight(biases[micro_step])
            product = body.linear(state[0], weight)
            if cell.name == "nas":
                state = _nas_cell(body, added, product, state[1])
            elif cell.name == "rhn":
                parts = body.several("Split", cell.parts, body("Add", product, added), axis=1)
                state = [_gated_sum(body, parts, state[0], cell.kind)]
            else:
                state = _lstm_cell(body, body("Add", product, added), state[1], cell.kind)
        return state

    if mogrifier is None and cell.name == "lstm" and cell.kind == "untied":
        return _lstm(graph, input_weight, state_weights[0], biases[0], x, state)
    inputs = x if mogrifier is not None else graph.linear(x, input_weight, *biases[:1])
    if cell.name == "rhn":
        return [*_scan(graph, inputs, state[:1], step), state[1]]
    return _scan(graph, inputs, state, step)


def _mogrified(graph: Graph, rounds: Any, x: str, hidden: str) -> tuple[str, str]:
    """x and h after the rounds, see :mod:`fairseq_doc.ops.mogrifier`."""
    for number, gate in enumerate(rounds):
        product = x if number % 2 else hidden
        for matrix in reversed(list(gate.matrices)):
            product = graph.linear(product, matrix)
        gated = graph("Sigmoid", graph("Add", product, graph.weight(gate.bias)))
        factor = graph("Mul", 2.0, gated)
        if number % 2:
            hidden = graph("Mul", factor, hidden)
        else:
            x = graph("Mul", factor, x)
    return x, hidden


def _scan(graph: Graph, sequence: str, state: Sequence[str], step: Any) -> list[str]:
    """The output of a layer, (T, B, D_n), and its last state, with parts (1, B, D_n)."""
    output, last = graph.scan(sequence, [graph("Squeeze", s, [0]) for s in state], step)
    return [output, *(graph("Unsqueeze", part, [0]) for part in last)]


def _lstm(
    graph: Graph, input_weight: Any, state_weight: Any, bias: Any, x: str, state: Sequence[str]
) -> list[str]:
    """ONNX's LSTM, with untied gates."""

    def iofc(parts: torch.Tensor) -> torch.Tensor:
        """Rows of the gates i, f, g, o in ONNX's order i, o, f, g, with an axis of directions."""
        i, f, g, o = parts.chunk(4)
        return torch.cat([i, o, f, g]).unsqueeze(0)

    weights = [graph.weight(iofc(matrix)) for matrix in (input_weight, state_weight)]
    biases = torch.cat([iofc(bias), torch.zeros_like(iofc(bias))], dim=1)  # (1, 8 D_n)
    lengths, width = "", len(bias) // 4  # all sequences have the same length
    inputs = (x, *weights, graph.weight(biases), lengths, *state)
    output, *after = graph.several("LSTM", 3, *inputs, hidden_size=width)
    return [graph("Squeeze", output, [1]), *after]


def _lstm_cell(graph: Graph, z: str, cell: str, kind: str) -> list[str]:
    """h and c, each (B, D_n), from the gates before their activations; the output gate is last."""
    *parts, o = graph.several("Split", n_gates(kind) + 1, z, axis=1)
    new = _gated_sum(graph, parts, cell, kind)
    return [graph("Mul", graph("Sigmoid", o), graph("Tanh", new)), new]


def _gated_sum(graph: Graph, parts: Sequence[str], before: str, kind: str) -> str:
    """As :func:`fairseq_doc.ops.gated_cell.gated_sum`; ``parts``: z of i, f, g or of f, g."""
    *i, f, g = parts
    f, g = graph("Sigmoid", f), graph("Tanh", g)
    room = graph("Sub", 1.0, f)
    if kind == "tied":
        gate = room
    else:
        gate = graph("Sigmoid", i[0])
        if kind == "capped":
            gate = graph("Min", room, gate)
    return graph("Add", graph("Mul", f, before), graph("Mul", gate, g))


def _nas_cell(graph: Graph, a: str, b: str, cell: str) -> list[str]:
    """See :func:`fairseq_doc.ops.nas_cell.nas_cell`."""
    of_a, of_b = (graph.several("Split", 8, x, axis=1) for x in (a, b))
    sums = [graph("Add", p, q) for p, q in zip(of_a, of_b, strict=True)]
    kinds = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Tanh", "Sigmoid", "Tanh", "Sigmoid")
    sums[3] = graph("Mul", of_a[3], of_b[3])
    g = [graph(kind, x) for kind, x in zip(kinds, sums, strict=True)]

    def tanh_of(operator: str, p: str, q: str) -> str:
        return graph("Tanh", graph(operator, p, q))

    p0 = tanh_of("Add", tanh_of("Mul", g[0], g[1]), cell)
    new = graph("Mul", p0, tanh_of("Add", g[2], g[3]))
    q = tanh_of("Add", tanh_of("Mul", g[4], g[5]), graph("Sigmoid", graph("Add", g[6], g[7])))
    return [tanh_of("Mul", new, q), new]


def add_log_probs(
    graph: Graph, output: MixtureOutput, layer_outputs: Sequence[str], target: str | None = None
) -> str:
    """log P = logsumexp_j(log pi_j + log softmax(W k_j + b)), see :mod:`fairseq_doc.ops.reference`.

    ``layer_outputs``: h^0, ..., h^N of M positions, each (M, D_n). Returns log P of ``target``,
    (M,), or of all words, (M, V).
    """
    count, n_words = output.n_components, len(output.bias)
    vectors = _component_vectors(graph, output, layer_outputs)
    logits = graph.linear(vectors, output.weight, output.bias)  # (M J, V)
    log_softmax = graph("LogSoftmax", logits, axis=1)
    scores = graph("Reshape", log_softmax, [-1, count, n_words])  # (M, J, V)
    if target is not None:
        index = graph("Unsqueeze", target, [1, 2])  # (M, 1, 1)
        index = graph("Expand", index, [1, count, 1])
        scores = graph("GatherElements", scores, index, axis=2)  # (M, J, 1)
    if count == 1:
        scores = graph("Squeeze", scores, [1])
    else:
        assert output.mixture_weights is not None
        weights = graph.linear(
            layer_outputs[-1], output.mixture_weights.weight, output.mixture_weights.bias
        )
        log_weights = graph("Unsqueeze", graph("LogSoftmax", weights, axis=1), [2])  # (M, J, 1)
        scores = _logsumexp(graph, graph("Add", scores, log_weights))
    return scores if target is None else graph("Squeeze", scores, [1])


def _component_vectors(graph: Graph, output: MixtureOutput, layer_outputs: Sequence[str]) -> str:
    """The component vectors (M J, d), see :class:`MixtureOutput`."""
    if not output.projections:
        return layer_outputs[-1]
    vectors = []
    projection: Any
    for n, projection in output.projections.items():
        k = graph.linear(layer_outputs[int(n)], projection.weight, projection.bias)  # (M, i_n d)
        vectors.append(graph("Tanh", k) if output.activation is ACTIVATIONS["tanh"] else k)
    joined = graph("Concat", *vectors, axis=1)  # (M, J d)
    return graph("Reshape", joined, [-1, output.dim])


def _logsumexp(graph: Graph, x: str) -> str:
    """(M, J, ...) -> (M, ...). onnxruntime's ``ReduceLogSumExp`` is several times slower."""
    top = graph("ReduceMax", x, axes=[1], keepdims=1)
    powers = graph("Exp", graph("Sub", x, top))
    total = graph("Log", graph("ReduceSum", powers, [1], keepdims=0))
    return graph("Add", total, graph("Squeeze", top, [1]))
