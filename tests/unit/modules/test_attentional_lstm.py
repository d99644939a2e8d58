"""Dropout inside the decoder; its values and gradients are compared in tests/unit/models."""

import pytest
import torch

from fairseq_doc.modules.attentional_lstm import AttentionalLSTM, DecoderState

from ..conftest import assert_close, drop_factors
from ..device import on_device

T, B, S, E, D = 4, 2, 5, 3, 4
ROWS = 15 * B


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("score", ["general", "concat"])
def test_dropout_is_between_layers_alone(score, input_feeding):
    """With a mask a step. What is returned is what the next layer reads; the state is whole."""
    torch.manual_seed(0)
    module = on_device(AttentionalLSTM(E, D, 3, 0.25, score, input_feeding).double())
    padding_mask = torch.tensor([[False] * 5, [True, False, False, False, True]])
    embedded, memory = torch.randn(T, ROWS, E).double(), torch.randn(B, S, D).double()
    hidden, cell = torch.randn(2, 3, ROWS, D).double()
    state = DecoderState(torch.zeros_like(hidden[0]), hidden, cell)
    outputs, attentional, _, after = module(embedded, module.prepare(memory, padding_mask), state)
    assert (attentional != 0).all()
    assert not any(torch.equal(output[0] == 0, output[1] == 0) for output in outputs[:2])
    x = embedded[:1]
    if input_feeding:
        x = torch.cat([x.new_zeros(1, ROWS, D), x], dim=2)
    for n, (layer, output) in enumerate(zip(module.layers, outputs, strict=True)):
        undropped, _ = layer(x, (hidden[n : n + 1], cell[n : n + 1]))
        x, kept = output[:1], output[-1] != 0
        if n < 2:
            drop_factors(x, undropped, 0.25)
        else:
            assert_close(x, undropped)
        assert_close(output[-1][kept], after.hidden[n][kept] / (0.75 if n < 2 else 1.0))
