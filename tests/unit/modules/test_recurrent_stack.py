"""The stack against a loop of plain cells, in float64."""

import math

import pytest
import torch

from fairseq_doc.modules import recurrent_stack
from fairseq_doc.modules.recurrent_stack import RecurrentStack
from fairseq_doc.ops.gated_cell import KINDS
from fairseq_doc.ops.recurrence import CELLS

from ..conftest import assert_close, drop_factors
from ..device import on_device
from ..ops.conftest import each_cell, mogrifier_reference, recurrence_reference

T, B, E, D = 5, 3, 4, 6
CAPPED = CELLS["lstm"]("capped")


def make_stack(cell=CAPPED, layers=2, output_dim=E, **settings):
    torch.manual_seed(0)
    depth = 3 if cell.name == "rhn" else 1
    stack = RecurrentStack(cell, E, D, output_dim, layers, depth, **settings)
    return on_device(stack.double())


def random_input():
    return torch.randn(T, B, E, generator=torch.Generator().manual_seed(0)).double()


def plain(stack, x, state, state_masks=None, recurrent_masks=None):
    """[h^1, ..., h^N, output] without elementwise dropout, by the operations' plain forms."""
    outputs, new_state = [], []
    for n, (layer, before) in enumerate(zip(stack.layers, state, strict=True)):
        first, *biases = list(layer.biases) or [0.0]
        hidden, *rest = (part[0] for part in before)
        masks = [masks and masks[n] for masks in (state_masks, recurrent_masks)]
        if layer.mogrifier is None:
            u = x @ layer.input_weight.t() + first
            cell = rest[0] if rest else None
            weights = list(layer.state_weights)
            x, last = recurrence_reference(layer.cell, u, hidden, cell, weights, biases, *masks)
        else:
            weights = layer.input_weight, *layer.state_weights, first
            rounds = layer.mogrifier.parameters_of_rounds
            kind = layer.cell.kind
            x, last = mogrifier_reference(x, hidden, *rest, *weights, rounds, kind, *masks)
        outputs.append(x)
        new_state.append((x[-1:],) if last is None else (x[-1:], last[None]))
    total = sum(outputs)
    return outputs + [
        total if stack.projection is None else total @ stack.projection.t()
    ], new_state


@pytest.fixture
def masks(monkeypatch):
    """The masks that the stack has drawn."""
    masks = []

    def keeping(*arguments):
        mask = dropout_mask(*arguments)
        masks.extend([] if mask is None else [mask])
        return mask

    dropout_mask = recurrent_stack.dropout_mask
    monkeypatch.setattr(recurrent_stack, "dropout_mask", keeping)
    return masks


@each_cell
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("output_dim", [E, D])
def test_it_is_the_sum_of_layers_that_read_one_another(cell, layers, output_dim):
    stack = make_stack(cell, layers, output_dim)
    x = random_input()
    outputs, undropped, state = stack(x, stack.zero_state(B, x))
    expected, last = plain(stack, x, stack.zero_state(B, x))
    assert_close([*outputs, undropped], [*expected, expected[-1]])
    assert_close(state, last)
    assert undropped.shape == (T, B, output_dim)
    assert (stack.projection is None) == (output_dim == D)


@pytest.mark.parametrize("gates", KINDS)
@pytest.mark.parametrize("rank", [None, 2])
def test_with_mogrifier_gates_and_dropped_states(gates, rank, masks):
    """Each layer has rounds of its own; they read the dropped state."""
    settings = {
        "mogrifier_rounds": 5,
        "mogrifier_rank": rank,
        "state_dropout": 0.5,
        "recurrent_dropout": 0.5,
    }
    stack, x = make_stack(CELLS["lstm"](gates), 3, **settings), random_input()
    state = [tuple(torch.randn(1, B, D).double() for _ in range(2)) for _ in range(3)]
    outputs, _, after = stack(x, state)
    assert_close([outputs, after], list(plain(stack, x, state, masks[::2], masks[1::2])))
    matrices = [gate.matrices for layer in stack.layers for gate in layer.mogrifier.rounds]
    assert len(matrices) == 15 and {len(m) for m in matrices} == {1 if rank is None else 2}


@pytest.mark.parametrize(
    "cell, name",
    [
        *((cell, "state") for cell in (CAPPED, CELLS["rhn"]("untied"), CELLS["nas"]())),
        *((cell, "recurrent") for cell in (CELLS["lstm"]("tied"), CELLS["rhn"]("capped"))),
    ],
)
def test_dropped_states_and_g_have_one_mask_a_stream_and_window(cell, name, masks):
    """Shared over the steps, and by all micro-steps; the carried state is whole."""
    stack, x = make_stack(cell, **{f"{name}_dropout": 0.5}), random_input()
    outputs, _, state = stack(x, stack.zero_state(B, x))
    assert [mask.shape for mask in masks] == [(B, D)] * 2
    assert set(torch.cat(masks).unique().tolist()) == {0.0, 2.0}
    expected = plain(stack, x, stack.zero_state(B, x), **{f"{name}_masks": masks})
    assert_close([outputs, state], list(expected))
    again, _, _ = stack(x, stack.zero_state(B, x))
    assert not torch.equal(again[-1], outputs[-1])
    assert not torch.equal(masks[0], masks[2])


def test_elementwise_dropouts():
    """Intra-layer: the inputs of layers from the second on, not the sum. Output: the sum, and its
    projection. Layers that the mixture reads are dropped as the sum is."""
    torch.manual_seed(1)
    x = torch.randn(40, 50, E).double()
    stack = make_stack(output_dim=D, output_dropout=0.25, read=[1])
    outputs, undropped, _ = stack(x, stack.zero_state(50, x))
    expected, _ = plain(stack, x, stack.zero_state(50, x))
    assert_close(undropped, expected[-1])
    for n in (0, -1):
        share = (drop_factors(outputs[n], expected[n], 0.25) == 0).double().mean()
        assert abs(share - 0.25) < 0.01
    assert_close(outputs[1], expected[1])

    stack, read = make_stack(intra_layer_dropout=0.5, output_dropout=0.5), []
    stack.layers[1].register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    outputs, undropped, _ = stack(x, stack.zero_state(50, x))
    expected, _ = plain(stack, x, stack.zero_state(50, x))
    assert_close(outputs[0], expected[0])
    factors = drop_factors(read[0], outputs[0], 0.5)
    assert abs(factors.mean() - 1) < 0.03 and not torch.equal(factors[0], factors[1])
    sums = (outputs[0] + outputs[1]) @ stack.projection.t()
    assert not torch.allclose(undropped, sums)  # dropped before the projection too
    assert abs((outputs[-1] == 0).double().mean() - 0.5) < 0.03


@pytest.mark.parametrize("gates", KINDS)
def test_initial_values(gates):
    """Truncated normal: 1 / sqrt(fan in), each source apart; an LSTM's forget gate has the mean 1."""
    torch.manual_seed(0)
    width, below = 400, 100
    stack = on_device(RecurrentStack(CELLS["lstm"](gates), below, width, below, layers=2))
    for n, layer in enumerate(stack.layers):
        assert within(layer.input_weight, 1 / math.sqrt(width if n else below))
        assert within(layer.state_weights[0], 1 / math.sqrt(width))
        (bias,) = layer.biases
        forget = 0 if gates == "tied" else 1
        for gate, part in enumerate(bias.split(width)):
            assert within(part - float(gate == forget), 1 / math.sqrt(width), tolerance=0.15)
    identity = stack.projection @ stack.projection.t()
    assert_close(identity, torch.eye(below), rtol=0, atol=1e-5)


def within(values, deviation, tolerance=0.03):
    """A normal distribution of 1.3 times the variance, cut at two of its deviations, has this one."""
    spread = values.std().item() / (1.003 * deviation)
    return values.abs().max() <= 2.2805 * deviation and abs(spread - 1) < tolerance


@pytest.mark.parametrize(
    "cell, biases",
    [
        (CELLS["rhn"]("untied"), [[0, 1, 0]] * 3),
        (CELLS["rhn"]("tied"), [[1, 0]] * 3),
        (CELLS["nas"](), []),
    ],
)
def test_initial_biases(cell, biases):
    """1 for the carry gate, else 0."""
    for layer in make_stack(cell).layers:
        found = [bias.view(-1, D) for bias in layer.biases]
        assert [bias.tolist() for bias in found] == [[[x] * D for x in bias] for bias in biases]
