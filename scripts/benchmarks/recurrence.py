"""Forward and backward pass of a recurrent layer of Melis et al. (2018), compared with torch's LSTM and bare products.

Windows have 35 steps and 64 columns; the input is as wide as the layer, and the state has dropout. "products" are only the
matrix products of the layer, forward and backward, with the same kernels. Forms take turns in each of --repeats rounds,
and the fastest time counts.
"""

from functools import partial

import torch

from benchmarks.tools import LayerOptions, compare_layers
from fairseq_doc.modules.recurrent_stack import RecurrentLayer
from fairseq_doc.ops import recurrence
from fairseq_doc.ops.matmul import loop_operand, matmul

TIME, COLUMNS = 35, 64
# Widths of published and of smaller sizes.
WIDTHS = (1194, 723, 400)
CELLS = {
    "lstm, untied": ("lstm", "untied", 1),
    "lstm, capped": ("lstm", "capped", 1),
    "rhn, 5 micro-steps": ("rhn", "untied", 5),
    "nas": ("nas", "capped", 1),
}
Options = LayerOptions


def make_forms(name, gates, depth, width):
    """{form: a function that runs its forward and backward pass}."""
    cell = recurrence.CELLS[name](gates)
    layer = RecurrentLayer(cell, width, width, depth, rounds=0, rank=None)
    x = torch.randn(TIME, COLUMNS, width, requires_grad=True)
    zeros = torch.zeros(1, COLUMNS, width)
    state = (zeros,) if name == "rhn" else (zeros, zeros)
    mask = torch.bernoulli(torch.full((COLUMNS, width), 0.5)) * 2
    d_output = torch.randn(TIME, COLUMNS, width)
    plain = torch.nn.LSTM(width, width)
    rows = cell.matmul_parts * width

    def own():
        output = layer(x, state, (mask, None), torch.float32)[0]
        return torch.autograd.grad(output, [x, *layer.parameters()], d_output)

    def torchs():
        output = plain(x, (zeros, zeros))[0]
        return torch.autograd.grad(output, [x, *plain.parameters()], d_output)

    @torch.no_grad()
    def products():
        weight = layer.input_weight
        steps = x.flatten(0, 1)
        d_gates = torch.empty(TIME * COLUMNS, rows)
        matmul(steps, weight)
        matmul(d_gates, weight.t())
        matmul(d_gates.t(), steps.t())
        forward = [loop_operand(w, COLUMNS) for w in layer.state_weights]
        backward = [loop_operand(w.t(), COLUMNS) for w in layer.state_weights]
        for _ in range(TIME):
            for one, other in zip(forward, backward, strict=True):
                matmul(steps[:COLUMNS], one)
                matmul(d_gates[:COLUMNS], other)
        for _ in forward:
            matmul(d_gates.t(), steps.t())

    return {"own": own, "torch's LSTM": torchs, "products": products}


def run(settings):
    """{width and cell: {form: milliseconds}}."""
    rows = {
        f"{width}, {name}": partial(make_forms, *cell, width)
        for width in WIDTHS
        for name, cell in CELLS.items()
    }
    return compare_layers(settings, rows, [("own", "torch's LSTM"), ("own", "products")])
