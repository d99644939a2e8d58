"""The recurrence with its own backward against the plain form, which autograd differentiates.
The tests of lstm_luong_doc compare both with the model by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairseq_doc.ops.input_feeding import (
    InputFeedingArguments,
    input_feeding,
    input_feeding_reference,
    masked_softmax,
)

from ..conftest import assert_close, leaves, relative_errors
from ..device import DEVICE
from . import conftest


class Case(conftest.Case):
    """T steps of k rows of each of B sentences of up to S words."""

    def __init__(self, t=3, b=2, k=1, s=4, layers=2, width=3, dropped=False, **settings):
        rows, self.layers = k * b, layers
        shapes = [
            (t, rows, 4 * width), (b, s, width), (b, s, width), (width, width), (rows, width),
            (layers, rows, width), (layers, rows, width),
            *[(4 * width, 2 * width)] * layers, *[(4 * width,)] * (layers - 1),
        ]  # fmt: skip
        super().__init__(shapes, **settings)
        self.padding_mask = torch.arange(s) >= torch.randint(1, s + 1, (b, 1), generator=self.rng)
        kept = [torch.rand(t, rows, width, generator=self.rng) > 0.4 for _ in range(layers - 1)]
        self.masks = [x / 0.6 if dropped else None for x in kept]

    def arguments(self, tensors):
        gates, keys, values, *rest = tensors
        matrices, biases = rest[4 : 4 + self.layers], rest[4 + self.layers :]
        masks = [x if x is None else x.to(gates.dtype) for x in self.masks]
        memory = keys, values, self.padding_mask
        return InputFeedingArguments(gates, *memory, *rest[:4], matrices, biases, masks)

    def run(self, form, tensors):
        """[h^1 .. h^N, a, c, p], p without the gradient that the plain form has."""
        found = form(self.arguments(tensors))
        return [*found.outputs, found.attentional, found.cell, found.weights.detach()]


@hypothesis_settings(max_examples=20)
@given(
    t=st.integers(1, 4), b=st.integers(1, 3), k=st.integers(1, 3), s=st.integers(1, 5),
    layers=st.integers(1, 3), width=st.integers(1, 4), dropped=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_values_and_gradients_are_the_plain_forms(**settings):
    Case(**settings).check(input_feeding, input_feeding_reference)


def test_gradients_of_some_inputs_and_of_some_results():
    """The results used are 0 and 1: h^1 and h^2; 2: a; 3: the last c."""
    case = Case(dropped=True)
    case.check_partial_gradients(input_feeding, input_feeding_reference)
    for number in range(len(case.tensors)):
        case.check(input_feeding, input_feeding_reference, asking=[number])
    for used in ([0], [1], [2], [3], [0, 2], [1, 3]):
        case.check(input_feeding, input_feeding_reference, used=used)


def test_backward_again_and_again():
    """No gradient flows through the weights; none that autograd hands over is changed."""
    case = Case(k=2, dropped=True)
    inputs = leaves(case.tensors)
    assert not input_feeding(case.arguments(inputs)).weights.requires_grad
    results = case.run(input_feeding, inputs)[:-1]
    given = [torch.ones_like(x) for x in results]
    torch.autograd.backward(results, given, retain_graph=True)
    assert all((x == 1).all() for x in given)
    once = [x.grad.clone() for x in inputs]
    torch.autograd.backward(results, given)
    assert_close([x.grad for x in inputs], [2 * g for g in once])


@pytest.mark.parametrize("form", [input_feeding_reference, input_feeding])
def test_padding_has_no_weight_and_no_influence(form):
    case = Case(t=3, b=3, k=2, s=5)
    case.padding_mask = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0]]).bool()
    results = case.results(form)
    weights = results[4].view(3, 3, 2, 5)  # (T, B, k, S)
    spread = case.padding_mask[None, :, None].expand_as(weights)
    assert (weights[spread] == 0).all() and (weights[~spread] > 0).all()
    assert_close(weights.sum(-1), torch.ones(3, 3, 2))
    for n in (1, 2):  # keys and values
        of_memory = results[5 + n]
        assert (of_memory[case.padding_mask] == 0).all()
        assert (of_memory[~case.padding_mask] != 0).all()
        case.tensors[n] = case.tensors[n].masked_fill(case.padding_mask.unsqueeze(2), 1e4)
    assert_close(case.run(form, case.tensors), results[:5], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_softmax_of_large_scores(dtype):
    scores = torch.tensor([[3e4, 3e4, -3e4, 3e4]], dtype=dtype)
    weights = masked_softmax(scores, torch.tensor([[False, False, False, True]]))
    assert weights.dtype == dtype
    assert weights.tolist() == [[0.5, 0.5, 0.0, 0.0]]


SIZES = {"k": 2, "s": 5, "dropped": True, "scale": 0.4}


def test_float32_error_is_no_worse_than_the_plain_forms():
    """A result's rounding is chance, so the sum over cases is compared, for each."""
    own = plain = 0.0
    for seed in range(6):
        sizes = {**SIZES, "t": 12, "b": 4, "k": 1, "s": 9, "width": 24}
        case = Case(**sizes, seed=seed, dtype=torch.float32)
        truth = case.exact().results(input_feeding_reference)
        own += relative_errors(case.results(input_feeding), truth)
        plain += relative_errors(case.results(input_feeding_reference), truth)
    assert own.max() < 8e-5 and (own <= 1.5 * plain).all(), (own, plain)


@pytest.mark.parametrize(
    "given, used, tolerance",
    [("float16", "float16", 0.01), ("bfloat16", "bfloat16", 0.06), ("float32", "bfloat16", 0.06)],
)
def test_sixteen_bits(given, used, tolerance):
    """Autocast computes everything in its dtype; gradients have the inputs'."""
    given, used = getattr(torch, given), getattr(torch, used)
    case = Case(t=4, width=8, **SIZES, dtype=given)
    truth = case.exact().results(input_feeding_reference)
    with torch.autocast(DEVICE.type, used, enabled=given != used):
        found = case.results(input_feeding)
    assert {x.dtype for x in found[:5]} == {used} and {x.dtype for x in found[5:]} == {given}
    assert relative_errors(found, truth).max() < tolerance
