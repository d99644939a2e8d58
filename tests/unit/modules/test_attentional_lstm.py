"""Dropout inside the decoder; its values and gradients are compared in tests/unit/models."""

import pytest
import torch

from fairseq_doc.modules.attentional_lstm import AttentionalLSTM

from ..conftest import assert_close

T, B, S, E, D = 4, 2, 5, 3, 4
PADDING = torch.tensor([[False] * 5, [True, False, False, False, True]])
everywhere = pytest.mark.parametrize("input_feeding", [True, False])


def decoder(score="general", input_feeding=True, layers=2, dropout=0.0):
    torch.manual_seed(0)
    module = AttentionalLSTM(E, D, layers, dropout, score, input_feeding).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    return module


def inputs(k=1, layers=2):
    """e (T, k B, E), the memory (B, S, D), h and c (N, k B, D)."""
    rng = torch.Generator().manual_seed(0)
    shapes = ((T, k * B, E), (B, S, D), (layers, k * B, D), (layers, k * B, D))
    return [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in shapes]


def run(module, embedded, memory, hidden, cell):
    return module(embedded, module.prepare(memory, PADDING), module.start(hidden, cell))


@everywhere
@pytest.mark.parametrize("score", ["general", "concat"])
def test_dropout_is_between_layers_alone(score, input_feeding):
    """Of the outputs of layers 1 and 2 of three, as returned; what is handed on is not dropped."""
    module = decoder(score, input_feeding, layers=3, dropout=0.25).train()
    embedded, memory, hidden, cell = inputs(layers=3)
    embedded = embedded.repeat(10, 3, 1)
    state = (hidden.repeat(1, 3, 1), cell.repeat(1, 3, 1))
    outputs, attentional, _, after = run(module, embedded, memory, *state)
    for n, output in enumerate(outputs[:2]):
        dropped = (output == 0).double().mean()
        assert 0.1 < dropped < 0.4
        assert not torch.equal(output[0] == 0, output[1] == 0)  # a mask a step
        kept = output[-1] != 0
        assert_close(output[-1][kept], after.hidden[n][kept] / 0.75)
    assert (outputs[2] != 0).all() and (attentional != 0).all()
    assert_close(outputs[2][-1], after.hidden[2])


@everywhere
def test_dropped_outputs_are_the_next_layers_inputs(input_feeding):
    """The first step's mask is found in the output and applied by hand."""
    module = decoder(input_feeding=input_feeding, layers=2, dropout=0.5).train()
    x = inputs()
    embedded, memory, hidden, cell = x
    torch.manual_seed(3)
    outputs, *_ = run(module, embedded[:1], memory, hidden, cell)
    first, second = module.layers
    read = embedded[:1]
    if input_feeding:
        read = torch.cat([read.new_zeros(1, B, D), read], dim=2)
    undropped, _ = first(read, (hidden[:1], cell[:1]))
    mask = (outputs[0] != 0).double() * 2
    assert 0 < (mask == 0).sum() < mask.numel()
    assert_close(outputs[0], undropped * mask)
    assert_close(outputs[1], second(undropped * mask, (hidden[1:], cell[1:]))[0])
