import pytest
import torch

from fairseq_doc.modules import lstm
from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.modules.mogrifier import MogrifierGate
from fairseq_doc.ops import matmul
from fairseq_doc.ops.mogrifier import Round, mogrifier_reference

from ..conftest import assert_close
from ..device import on_device

T, B = 5, 3


def network(rounds, rank=2, **rates):
    torch.manual_seed(0)
    stack = AWDLSTM([4, 6, 5], mogrifier_rounds=rounds, mogrifier_rank=rank, **rates).double()
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            if name.startswith("mogrifiers") and name.endswith("bias"):
                parameter.normal_()
    return on_device(stack)


def random_inputs(stack):
    x = torch.randn(T, B, 4, dtype=torch.float64)
    state = [tuple(torch.randn_like(part) for part in layer) for layer in stack.zero_state(B, x)]
    return x, state


@pytest.mark.parametrize("rank", [None, 2])
def test_each_layer_is_the_gated_recurrence_with_its_own_gates(rank):
    stack = network(4, rank, hidden_dropout=0.5, output_dropout=0.5, weight_drop=0.5).eval()
    x, state = random_inputs(stack)
    outputs, undropped, after = stack(x, state)
    for n, layer in enumerate(stack.layers):
        w = dict(layer.named_parameters())
        bias = w["bias_ih_l0"] + w["bias_hh_l0"]
        rounds = [Round(tuple(g.matrices), g.bias) for g in stack.mogrifiers[n].rounds]
        assert len(rounds) == 4 and {len(r.matrices) for r in rounds} == {1 if rank is None else 2}
        weights = w["weight_ih_l0"], w["weight_hh_l0"], bias
        h, c = (part[0] for part in state[n])
        x, c = mogrifier_reference(x, h, c, *weights, rounds)
        assert_close(outputs[n], x)
        assert_close(after[n], (x[-1:], c[None]))
    assert undropped is outputs[-1]


@pytest.mark.parametrize("rank", [None, 20])
def test_initial_values(rank):
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


@pytest.mark.cpu_only("LSTM layers with bfloat16 products")
@pytest.mark.parametrize("why", ["", "evaluation", "small", "processor"])
def test_bfloat16_products_are_those_of_large_layers_in_training(monkeypatch, why):
    monkeypatch.setattr(lstm, "LEAST_WEIGHTS", 10_000 if why == "small" else 0)
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: why != "processor")
    exact, narrow = (
        network(3, precision=precision).float().train(why != "evaluation")
        for precision in (torch.float32, torch.bfloat16)
    )
    x, state = random_inputs(exact)
    x, state = x.float(), [tuple(part.float() for part in layer) for layer in state]
    expected, found = (stack(x, state)[1] for stack in (exact, narrow))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected) == bool(why)
    assert (found - expected).norm() < 0.02 * expected.norm()
