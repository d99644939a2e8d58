import pytest
import torch
from torch import nn

from fairseq_doc.modules import lstm
from fairseq_doc.modules.lstm import MogrifierGate, _in_one_buffer, run_lstm
from fairseq_doc.ops import matmul

from ..conftest import assert_close, gradients
from ..device import on_device

T, B = 5, 3


def layer_and_inputs():
    torch.manual_seed(0)
    state = tuple(torch.randn(1, B, 6, dtype=torch.float64) for _ in range(2))
    return on_device(nn.LSTM(4, 6).double()), torch.randn(T, B, 4, dtype=torch.float64), state


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
def test_with_another_weight_it_is_the_layer_that_has_it(name):
    layer, x, state = layer_and_inputs()
    own = dict(layer.named_parameters())
    other = (3 * own[name]).detach().requires_grad_()
    output, after = run_lstm(layer, x, state, torch.float32, **{name: other})
    before = {key: weight.clone() for key, weight in own.items()}
    rest = [weight for key, weight in own.items() if key != name]
    found = gradients(output.square().sum(), [other, *rest])
    assert all(torch.equal(own[key], weight) for key, weight in before.items())

    with torch.no_grad():
        own[name].mul_(3)
    expected, expected_after = layer(x, state)
    assert_close((output, after), (expected, expected_after))
    assert_close(found, gradients(expected.square().sum(), [own[name], *rest]))


def float32_case():
    layer, x, state = layer_and_inputs()
    return layer.float(), x.float(), tuple(part.float() for part in state)


@pytest.mark.cpu_only("LSTM layers with bfloat16 products")
@pytest.mark.parametrize("replaced", [False, True])
def test_in_bfloat16_it_is_the_layer_up_to_rounding(bfloat16_layers, replaced):
    layer, x, state = float32_case()
    other = {"weight_hh_l0": (0.5 * layer.weight_hh_l0).detach()} if replaced else {}
    found, exact = (
        run_lstm(layer, x, state, precision, **other)
        for precision in (torch.bfloat16, torch.float32)
    )
    for ours, expected in zip([found[0], *found[1]], [exact[0], *exact[1]], strict=True):
        assert ours.dtype == torch.float32 and not torch.equal(ours, expected)
        assert (ours - expected).norm() < 0.02 * expected.norm()
    zeros = (torch.zeros(1, B, 6),) * 2
    assert_close(
        run_lstm(layer, x, None, torch.bfloat16), run_lstm(layer, x, zeros, torch.bfloat16)
    )


@pytest.mark.cpu_only("LSTM layers with bfloat16 products")
@pytest.mark.parametrize("why", ["small", "evaluation", "autocast", "float64", "processor"])
def test_layers_that_stay_torchs(monkeypatch, bfloat16_layers, why):
    if why == "small":
        monkeypatch.setattr(lstm, "LEAST_WEIGHTS", 10_000)
    if why == "processor":
        monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: False)
    layer, x, state = layer_and_inputs() if why == "float64" else float32_case()
    layer.train(why != "evaluation")
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
        found = run_lstm(layer, x, state, torch.bfloat16)
        assert_close(found, layer(x, state), rtol=0, atol=0)


def test_one_buffer_holds_the_same_weights_in_order():
    weights = dict(nn.LSTM(4, 6).named_parameters())
    parts = _in_one_buffer(weights)
    assert_close(parts, {name: weight.detach() for name, weight in weights.items()})
    assert len({part.untyped_storage().data_ptr() for part in parts.values()}) == 1
    offsets = [part.storage_offset() for part in parts.values()]
    assert offsets == [0, 24 * 4, 24 * 4 + 24 * 6, 24 * 4 + 24 * 6 + 24]


@pytest.mark.parametrize("rank", [None, 20])
def test_initial_values_of_a_mogrifiers_gate(rank):
    """Of a full matrix the variance 1 / 400; its factors' are cut at two deviations after that."""
    torch.manual_seed(0)
    gate = MogrifierGate(300, 400, rank)
    assert gate.bias.shape == (300,) and not gate.bias.any()
    matrices = [m.detach().double() for m in gate.matrices]
    product = matrices[0] if rank is None else matrices[0] @ matrices[1]
    assert product.shape == (300, 400)
    truncated = 0.7737  # variance of a normal number within two deviations
    variance = 1.3 * truncated / 400 if rank is None else truncated**2 / 400
    assert product.var().item() == pytest.approx(variance, rel=0.05)
    deviation = (1.3 / 400) ** 0.5 if rank is None else (400 * 20) ** -0.25
    assert all(1.95 * deviation < m.abs().max() <= 2 * deviation for m in matrices)
