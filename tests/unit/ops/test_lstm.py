import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairseq_doc.ops import matmul
from fairseq_doc.ops.lstm import lstm
from fairseq_doc.ops.lstm_cell import lstm_cell

from ..conftest import assert_close, gradients, leaves


def case(t, b, k, d, seed=0, dtype=torch.float64, scale=1.0):
    """x, h, c, W_x, W_h, b."""
    rng = torch.Generator().manual_seed(seed)
    shapes = ((t, b, k), (1, b, d), (1, b, d), (4 * d, k), (4 * d, d), (4 * d,))
    return [
        scale * torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)
        for shape in shapes
    ]


def plain(x, h, c, input_weight, recurrent_weight, bias, factors=None):
    """A loop over steps; with ``factors`` the products' factors are rounded to that dtype, as
    autocast does."""

    def product(left, weight):
        if factors is None:
            return left @ weight.t()
        return (left.to(factors) @ weight.to(factors).t()).to(left.dtype)

    h, c, outputs = h[0], c[0], []
    for x_t in x:
        gates = product(x_t, input_weight) + product(h, recurrent_weight) + bias
        h, c = lstm_cell(gates, c)
        outputs.append(h)
    return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))


def own(x, h, c, *weights, factors=None):
    return lstm(x, (h, c), *weights, factors or x.dtype)


def weighted(result):
    """A scalar on which every number of the output and of both states has another influence."""
    output, (h, c) = result
    total = 0.0
    for x in (output, h, c):
        total = total + (x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)).sum()
    return total


@given(
    t=st.integers(1, 5), b=st.integers(1, 3), k=st.integers(1, 4), d=st.integers(1, 4),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_values_and_gradients_are_the_plain_forms(t, b, k, d, seed):
    inputs = leaves(case(t, b, k, d, seed)), leaves(case(t, b, k, d, seed))
    results = [form(*x) for form, x in zip((own, plain), inputs, strict=True)]
    assert_close(results[0], results[1])
    found, expected = (
        gradients(weighted(result), x) for result, x in zip(results, inputs, strict=True)
    )
    assert_close(found, expected)


def test_it_is_torchs_layer():
    layer = nn.LSTM(4, 5).double()
    x, h, c = case(6, 3, 4, 5)[:3]
    w = dict(layer.named_parameters())
    bias = w["bias_ih_l0"] + w["bias_hh_l0"]
    assert_close(own(x, h, c, w["weight_ih_l0"], w["weight_hh_l0"], bias), layer(x, (h, c)))


def test_gradients_are_those_of_finite_differences():
    def outputs(*inputs):
        output, state = own(*inputs)
        return (output, *state)

    assert torch.autograd.gradcheck(outputs, leaves(case(3, 2, 2, 3)))


@pytest.mark.parametrize("number", range(6))
def test_an_input_without_a_gradient(number):
    tensors = case(3, 2, 4, 3)
    inputs, exact = leaves(tensors), leaves(tensors)
    inputs[number] = tensors[number]
    asking = [n for n in range(6) if n != number]
    found = gradients(weighted(own(*inputs)), [inputs[n] for n in asking])
    assert_close(found, gradients(weighted(plain(*exact)), [exact[n] for n in asking]))


@pytest.mark.parametrize("backend", matmul.BACKENDS)
@pytest.mark.parametrize("factors", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(3))
def test_error_is_no_worse_than_the_plain_forms(monkeypatch, backend, factors, seed):
    """Against float64, in the Euclidean norm, with the same rounding of factors."""
    monkeypatch.setattr(matmul, "backend", backend)
    tensors = case(12, 4, 20, 24, seed, torch.float32, scale=0.3)
    exact = leaves(x.double() for x in tensors)
    truth = plain(*exact)
    truth = [truth[0], *truth[1], *gradients(weighted(truth), exact)]
    errors = {}
    for form in (own, plain):
        inputs = leaves(tensors)
        result = form(*inputs, factors=factors)
        found = [result[0], *result[1], *gradients(weighted(result), inputs)]
        assert {x.dtype for x in found} == {torch.float32}
        errors[form] = [
            ((x - y).norm() / y.norm()).item() for x, y in zip(found, truth, strict=True)
        ]
    floor = torch.finfo(factors).eps
    for ours, plains in zip(errors[own], errors[plain], strict=True):
        assert ours <= 1.5 * plains + 0.2 * floor, errors
        assert ours < 8 * floor


@pytest.mark.parametrize("backend", matmul.BACKENDS)
def test_under_autocast_it_keeps_its_own_dtypes(monkeypatch, backend):
    """Forward and backward."""
    monkeypatch.setattr(matmul, "backend", backend)
    tensors, found = case(3, 2, 4, 3, dtype=torch.float32), []
    for enabled in (False, True):
        inputs = leaves(tensors)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            result = own(*inputs)
            found.append([result[0], *result[1], *gradients(weighted(result), inputs)])
    assert_close(*found, rtol=0, atol=0)
