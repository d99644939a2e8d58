"""Forward and backward of one recurrent layer of Melis et al. (2018), beside torch's LSTM and the bare products.

    python scripts/benchmark_recurrence.py [--json] [--threads 1] [--backend torch]

Windows of 35 steps, 64 columns, the input as wide as the layer, dropout of the state. "products" are the layer's
matrix products alone, forward and backward, by the same kernels. Forms take turns in each of --repeats rounds; a
form's time is its fastest. Nothing else should run on the machine.
"""

import json
from typing import Any

from benchmark_tools import fastest_in_turns, make_parser, print_machine

from fairseq_doc.cli.arguments import positive

TIME, COLUMNS = 35, 64
# Widths of the published sizes and of smaller ones.
WIDTHS = (1194, 723, 400)
CELLS = {
    "lstm, untied": ("lstm", "untied", 1),
    "lstm, capped": ("lstm", "capped", 1),
    "rhn, 5 micro-steps": ("rhn", "untied", 5),
    "nas": ("nas", "capped", 1),
}


def make_forms(name, gates, depth, width):
    """{form: a function that runs it forward and backward}."""
    import torch

    from fairseq_doc.modules.recurrent_stack import RecurrentLayer
    from fairseq_doc.ops.matmul import loop_operand, matmul
    from fairseq_doc.ops.recurrence import Cell

    cell = Cell(name, gates)
    layer = RecurrentLayer(cell, width, width, depth)
    x = torch.randn(TIME, COLUMNS, width, requires_grad=True)
    zeros = torch.zeros(1, COLUMNS, width)
    state = (zeros,) if name == "rhn" else (zeros, zeros)
    mask = torch.bernoulli(torch.full((COLUMNS, width), 0.5)) * 2
    d_output = torch.randn(TIME, COLUMNS, width)
    plain = torch.nn.LSTM(width, width)
    rows = cell.products * width

    def own():
        output = layer(x, state, mask, None, torch.float32)[0]
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


def main():
    """Measure every cell and width, and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=positive, default=7, help="default: 7")
    parser.add_argument("--threads", type=positive, help="default: torch's")
    args = parser.parse_args()
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    print_machine(to_stderr=args.json)
    found: dict[str, dict[str, Any]] = {}
    for width in WIDTHS:
        for name, cell in CELLS.items():
            seconds = fastest_in_turns(make_forms(*cell, width), args.repeats)
            row = {form: 1000 * taken for form, taken in seconds.items()}
            row["own / torch's LSTM"] = row["own"] / row["torch's LSTM"]
            row["own / products"] = row["own"] / row["products"]
            found[f"{width}, {name}"] = row
            if not args.json:
                line = "".join(f"  {form} {value:7.2f}" for form, value in row.items())
                print(f"{width:5} {name:18} {line}", flush=True)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
