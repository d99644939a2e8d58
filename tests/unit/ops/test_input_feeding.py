"""The recurrence with its own backward against the plain form, which autograd differentiates.
test_attentional_lstm.py compares both with a loop over nn.LSTMCell."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairseq_doc.ops.input_feeding import (
    InputFeedingArguments,
    attend,
    input_feeding,
    input_feeding_reference,
    masked_softmax,
)

from ..conftest import assert_close, gradients

FORMS = {"plain": input_feeding_reference, "own": input_feeding}


class Case:
    """Random arguments: ``inputs`` by name, in float64, the lists as ``joint_weights0`` ..."""

    def __init__(self, t=3, b=2, k=1, s=4, layers=2, width=3, dropped=False, seed=0, scale=1.0):
        rng = torch.Generator().manual_seed(seed)

        def numbers(*shape):
            return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)

        rows, self.layers = k * b, layers
        self.inputs = {
            "gates": numbers(t, rows, 4 * width),
            "keys": numbers(b, s, width),
            "values": numbers(b, s, width),
            "query_weight": numbers(width, width),
            "attentional": numbers(rows, width),
            "hidden": numbers(layers, rows, width),
            "cell": numbers(layers, rows, width),
            **{f"joint_weights{n}": numbers(4 * width, 2 * width) for n in range(layers)},
            **{f"biases{n}": numbers(4 * width) for n in range(layers - 1)},
        }
        length = torch.randint(1, s + 1, (b, 1), generator=rng)
        self.padding_mask = torch.arange(s) >= length  # (B, S)
        self.masks = [None] * (layers - 1)
        if dropped:
            keep = [torch.rand(t, rows, width, generator=rng) for _ in self.masks]
            self.masks = [x.gt(0.4).double() / 0.6 for x in keep]

    def to(self, dtype):
        self.inputs = {name: x.to(dtype) for name, x in self.inputs.items()}
        self.masks = [x if x is None else x.to(dtype) for x in self.masks]
        return self

    def run(self, form, inputs=None):
        """[h^1 .. h^N, a, p, c]."""
        tensors = dict(self.inputs if inputs is None else inputs)
        lists = {
            kind: [tensors.pop(name) for name in list(tensors) if name.startswith(kind)]
            for kind in ("joint_weights", "biases")
        }
        outputs, *others = FORMS[form](
            InputFeedingArguments(
                padding_mask=self.padding_mask, dropout_masks=self.masks, **tensors, **lists
            )
        )
        return [*outputs, *others]

    def asking(self, asked=None):
        """Copies of the inputs; those in ``asked``, or all, ask for gradients."""
        chosen = self.inputs if asked is None else asked
        return {name: x.clone().requires_grad_(name in chosen) for name, x in self.inputs.items()}


def weighted(results, used=None):
    """A scalar on which all results, or those numbered in ``used``, have unequal influence; the
    attention weights, through which no gradient flows, are left out."""
    total = 0.0
    for n, x in enumerate(results):
        if n != len(results) - 2 and (used is None or n in used):
            shift = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
            total = total + (x * shift).sum() + 0.5 * x.square().sum()
    return total


def results(case, form, used=None):
    """What it gives, and the gradients of those numbered in ``used``, or of all."""
    inputs = case.asking()
    found = case.run(form, inputs)
    wide = [x.float() if x.dtype.itemsize == 2 else x for x in found]
    return [*found, *gradients(weighted(wide, used), list(inputs.values()))]


def check_equal(case, used=None):
    assert_close(results(case, "own", used), results(case, "plain", used), rtol=1e-9, atol=1e-11)


@hypothesis_settings(max_examples=20)
@given(
    t=st.integers(1, 4), b=st.integers(1, 3), k=st.integers(1, 3), s=st.integers(1, 5),
    layers=st.integers(1, 3), width=st.integers(1, 4), dropped=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_values_and_gradients_are_the_plain_forms(**settings):
    check_equal(Case(**settings))


def test_gradients_go_only_to_inputs_that_ask():
    case = Case(dropped=True)
    whole = case.asking()
    loss = weighted(case.run("plain", whole))
    expected = dict(zip(whole, gradients(loss, list(whole.values())), strict=True))
    names = list(case.inputs)
    for asked in [[], *([name] for name in names), *itertools.combinations(names, len(names) - 1)]:
        inputs = case.asking(asked)
        loss = weighted(case.run("own", inputs))
        assert loss.requires_grad == bool(asked)
        if asked:
            loss.backward()
        for name, x in inputs.items():
            assert (x.grad is not None) == (name in asked), name
            if name in asked:
                assert_close(x.grad, expected[name])


@pytest.mark.parametrize("used", [[0], [1], [2], [4], [0, 2], [1, 4], [0, 1, 2, 4]])
def test_gradients_where_only_some_results_are_used(used):
    """0 and 1: h^1 and h^2; 2: a; 4: the last c."""
    check_equal(Case(dropped=True), used)


def test_no_gradient_flows_through_the_weights_and_none_under_no_grad():
    case = Case()
    *outputs, a, weights, cell = case.run("own", case.asking())
    assert not weights.requires_grad
    assert all(x.requires_grad for x in (*outputs, a, cell))
    with torch.no_grad():
        assert not any(x.requires_grad for x in case.run("own", case.asking()))


def test_backward_again_and_again():
    case = Case(k=2, dropped=True)
    inputs = case.asking()
    loss = weighted(case.run("own", inputs))
    loss.backward(retain_graph=True)
    once = {name: x.grad.clone() for name, x in inputs.items()}
    for x in inputs.values():
        x.grad.mul_(0.5)  # as clipping does: it must not reach what the next pass gives
    loss.backward()
    assert_close(
        {name: x.grad for name, x in inputs.items()}, {n: 1.5 * g for n, g in once.items()}
    )


def test_a_results_gradient_is_not_changed_in_place():
    """What autograd hands to the backward pass belongs to others too."""
    case = Case()
    inputs = case.asking()
    *outputs, a, _, cell = case.run("own", inputs)
    given = [torch.ones_like(x) for x in (*outputs, a, cell)]
    torch.autograd.backward((*outputs, a, cell), given)
    assert all(torch.equal(x, torch.ones_like(x)) for x in given)


@pytest.mark.parametrize("form", FORMS)
def test_padding_has_no_weight_and_no_influence(form):
    case = Case(t=3, b=3, k=2, s=5)
    mask = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0]]).bool()
    case.padding_mask, inputs = mask, case.asking()
    results = case.run(form, inputs)
    by_sentence = results[-2].view(3, 3, 2, 5)
    spread = mask[None, :, None].expand(3, 3, 2, 5)
    assert (by_sentence[spread] == 0).all() and (by_sentence[~spread] > 0).all()
    assert_close(by_sentence.sum(-1), torch.ones(3, 3, 2))
    grads = dict(zip(inputs, gradients(weighted(results), list(inputs.values())), strict=True))
    for name in ("keys", "values"):
        assert (grads[name][mask] == 0).all() and (grads[name][~mask] != 0).all()
        inputs[name] = inputs[name].detach().masked_fill(mask.unsqueeze(2), 1e4)
    assert_close(case.run(form, inputs), results, rtol=0, atol=0)


def test_attend_by_hand():
    """Scores (0, log 3) and one of padding: weights 1/4 and 3/4 of the values 4 and 8."""
    query = torch.tensor([[[1.0, 0.0]]])
    keys = torch.tensor([[[0.0, 9.0], [torch.tensor(3.0).log(), 9.0], [50.0, 50.0]]])
    values = torch.tensor([[[4.0, 0.0], [8.0, 4.0], [1e3, 1e3]]])
    sums, weights = attend(query, keys, values, torch.tensor([[False, False, True]]))
    assert_close(weights.tolist(), [[[0.25, 0.75, 0.0]]], rtol=1e-6)
    assert_close(sums.tolist(), [[[7.0, 3.0]]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_softmax_of_large_scores(dtype):
    scores = torch.tensor([[3e4, 3e4, -3e4, 3e4]], dtype=dtype)
    weights = masked_softmax(scores, torch.tensor([[False, False, False, True]]))
    assert weights.dtype == dtype
    assert weights.tolist() == [[0.5, 0.5, 0.0, 0.0]]


SIZES = {"t": 4, "b": 2, "k": 2, "s": 5, "width": 8, "dropped": True, "scale": 0.4}


def rounded_case_and_truth(dtype, **settings):
    """A case in ``dtype``, and the results and gradients of the same numbers in float64."""
    case = Case(**settings).to(dtype)
    return case, results(Case(**settings).to(dtype).to(torch.float64), "plain")


def relative_errors(found, truth):
    """In the Euclidean norm."""
    errors = ((x.double() - y).norm() / y.norm() for x, y in zip(found, truth, strict=True))
    return torch.stack(list(errors))


def test_float32_error_is_no_worse_than_the_plain_forms():
    """A result's rounding is chance, so the sum over cases is compared, for each."""
    errors = {form: 0.0 for form in FORMS}
    for seed in range(6):
        settings = {**SIZES, "t": 12, "b": 4, "k": 1, "s": 9, "width": 24, "seed": seed}
        case, truth = rounded_case_and_truth(torch.float32, **settings)
        for form in FORMS:
            errors[form] += relative_errors(results(case, form), truth)
    assert errors["own"].max() < 8e-5
    assert (errors["own"] <= 1.5 * errors["plain"]).all(), errors


@pytest.mark.parametrize(
    "given, used, tolerance",
    [("float16", "float16", 0.01), ("bfloat16", "bfloat16", 0.06), ("float32", "bfloat16", 0.06)],
)
def test_sixteen_bits(given, used, tolerance):
    """Autocast computes everything in its dtype; gradients have the inputs'."""
    given, used = getattr(torch, given), getattr(torch, used)
    case, truth = rounded_case_and_truth(given, **SIZES)
    with torch.autocast("cpu", used, enabled=given != used):
        found = results(case, "own")
    n_results = len(found) - len(case.inputs)
    assert {x.dtype for x in found[:n_results]} == {used}
    assert {x.dtype for x in found[n_results:]} == {given}
    assert relative_errors(found, truth).max() < tolerance
