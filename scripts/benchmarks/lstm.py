"""Forward and backward pass of one LSTM layer: torch's, and the package's own in both precisions.

Windows have 70 steps and 12 columns. Forms take turns in each of --repeats rounds, and the fastest time counts. The
package runs torch's layer in float32, and its own (ops/recurrence.py) in bfloat16 for wide layers.
"""

from functools import partial

import torch

from benchmarks.tools import LayerOptions, compare_layers
from fairseq_doc.ops.gated_cell import LSTMCell
from fairseq_doc.ops.matmul import linear
from fairseq_doc.ops.recurrence import recurrence

TIME, COLUMNS = 70, 12
SIZES = ((280, 960), (960, 960), (960, 620), (240, 240))  # widths of input and layer
Options = LayerOptions


def make_forms(below, width):
    """{form: a function that runs its forward and backward pass}."""
    layer = torch.nn.LSTM(below, width)
    input_weight, recurrent_weight, *biases = layer.parameters()
    x = torch.randn(TIME, COLUMNS, below, requires_grad=True)
    state = torch.zeros(1, COLUMNS, width), torch.zeros(1, COLUMNS, width)
    d_output = torch.randn(TIME, COLUMNS, width)
    inputs = [x, *layer.parameters()]

    def own(dtype):
        inputs = linear(x, input_weight, None, dtype) + (biases[0] + biases[1])
        hidden, cell = (part[0] for part in state)
        return recurrence(LSTMCell(), inputs, hidden, cell, [recurrent_weight], dtype=dtype).output

    def both_ways(forward):
        return lambda: torch.autograd.grad(forward(), inputs, d_output)

    return {
        "torch, float32": both_ways(lambda: layer(x, state)[0]),
        "own, float32": both_ways(lambda: own(torch.float32)),
        "own, bfloat16": both_ways(lambda: own(torch.bfloat16)),
    }


def run(settings):
    """{size: {form: milliseconds}}."""
    rows = {f"{below}, {width}": partial(make_forms, below, width) for below, width in SIZES}
    own = ("own, float32", "own, bfloat16")
    return compare_layers(settings, rows, [(form, "torch, float32") for form in own])
