"""Forward and backward pass of the layers of AWD-LSTM with Mogrifier gates, compared with plain layers.

The Mogrifier has five rounds. Windows have 70 steps and 12 columns, with DropConnect and dropout between layers. The plain
layers are torch's; in bfloat16, layers with a million weights are the package's own. Forms take turns in each of --repeats
rounds, and the fastest time counts.
"""

from functools import partial

import torch

from benchmarks.tools import LayerOptions, compare_layers
from fairseq_doc.modules.awd_lstm import AWDLSTM

TIME, COLUMNS, ROUNDS = 70, 12, 5
# Widths of lstm_doc_lm_small and of lstm_doc_lm, the embedding first, and two layers as in Melis et al. (2020): 24M
# parameters with an embedding of 10,000 words.
SIZES = {
    "small": ((100, 240, 240, 160), 21),
    "lstm_doc_lm": ((280, 960, 960, 620), 84),
    "24M, two layers": ((910, 910, 910), 84),
}
Options = LayerOptions


def make_forms(widths, rank):
    """{form: a function that runs its forward and backward pass}."""
    x = torch.randn(TIME, COLUMNS, widths[0], requires_grad=True)
    d_output = torch.randn(TIME, COLUMNS, widths[-1])

    def form(rounds, precision=torch.float32):
        rank_of_rounds = rank if rounds else None
        stack = AWDLSTM(widths, 0.5, 0.2, 0.2, precision, rounds, rank_of_rounds)
        state, inputs = stack.zero_state(COLUMNS, x), [x, *stack.parameters()]

        def both_ways():
            _, undropped, _ = stack(x, state)
            torch.autograd.grad(undropped, inputs, d_output)

        return both_ways

    return {
        "plain": form(0),
        "gated": form(ROUNDS),
        "plain, bfloat16": form(0, torch.bfloat16),
        "gated, bfloat16": form(ROUNDS, torch.bfloat16),
    }


def run(settings):
    """{widths: {form: milliseconds}}."""
    rows = {
        f"{name}, rank {rank}": partial(make_forms, widths, rank)
        for name, (widths, rank) in SIZES.items()
    }
    ratios = [("gated", "plain"), ("gated, bfloat16", "plain, bfloat16")]
    return compare_layers(settings, rows, ratios)
