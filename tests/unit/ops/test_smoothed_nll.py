"""Cross entropy against smoothed labels: both forms against the truth in float64, written from the
probabilities, never in log space."""

import itertools
import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops import mixture_nll as module
from fairseq_doc.ops import reference
from fairseq_doc.ops.mixture_nll import mixture_nll, smoothed_mixture_nll

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_probs,
    random_mixture,
    random_targets,
)

FORMS = {"plain": reference.smoothed_mixture_nll, "chunked": smoothed_mixture_nll}
NAMES = ("components", "log_weights", "weight", "bias")


def truth(mixture, target, smoothing, ignore_index=-100):
    """(cross entropy, NLL): 1 - smoothing for the target, the rest in equal parts for the others."""
    loss = nll = mixture[0].sum() * 0
    v = len(mixture[2])
    for probs, y in zip(naive_probs(*mixture), target.tolist(), strict=True):
        if y != ignore_index:
            for word in range(v):
                label = 1 - smoothing if word == y else smoothing / (v - 1)
                loss = loss - label * probs[word].log()
            nll = nll - probs[y].log()
    return loss, nll


@st.composite
def cases(draw):
    mixture, target, ignore_index, chunk_bytes = draw(mixtures_with_targets(least_words=2))
    return mixture, target, draw(st.sampled_from([0.0, 0.1, 0.5, 0.99])), ignore_index, chunk_bytes


def check_against_truth(form, mixture, target, smoothing, ignore_index=-100, size=None):
    settings = {"chunk_bytes": size} if form == "chunked" else {}
    inputs, truth_inputs = leaves(mixture), leaves(mixture)
    loss, nll = FORMS[form](*inputs, target, smoothing, ignore_index, **settings)
    expected = truth(truth_inputs, target, smoothing, ignore_index)
    assert_close((loss, nll), expected)
    assert loss.shape == nll.shape == () and not nll.requires_grad
    inputs, truth_inputs = ([x for x in xs if x is not None] for xs in (inputs, truth_inputs))
    assert_close(gradients(3 * loss, inputs), gradients(3 * expected[0], truth_inputs))


@pytest.mark.parametrize("form", FORMS)
@given(case=cases())
def test_values_and_gradients_are_the_truth(form, case):
    check_against_truth(form, *case)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "sizes, ignored",
    [
        pytest.param((7, 3, 4, 6), [], id="ragged last chunk"),
        pytest.param((7, 3, 4, 6), [0, 3, 6], id="ignored targets"),
        pytest.param((7, 3, 4, 6), range(7), id="no target left"),
        pytest.param((0, 3, 4, 6), [], id="no token"),
        pytest.param((7, 1, 4, 6), [2], id="one component"),
        pytest.param((7, 3, 4, 2), [2], id="two words"),
        pytest.param((1, 1, 1, 2), [], id="as few as can be"),
    ],
)
def test_edges(form, sizes, ignored):
    n, j, _, v = sizes
    target = random_targets(n, v, ignored=ignored)
    check_against_truth(form, random_mixture(*sizes), target, 0.1, size=4 * j * v * 3)


@pytest.mark.parametrize("form", FORMS)
def test_by_hand(form):
    """Softmaxes (1/4, 3/4) and (3/4, 1/4) weighted .2 and .8: P = (.65, .35). With smoothing .1 and
    target 0 the labels are (.9, .1)."""
    components = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    log_weights = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    loss, nll = FORMS[form](components, log_weights, weight, None, torch.tensor([0]), 0.1)
    assert_close(loss.item(), -0.9 * math.log(0.65) - 0.1 * math.log(0.35))
    assert_close(nll.item(), -math.log(0.65))


@pytest.mark.parametrize("form", FORMS)
def test_without_smoothing_it_is_the_nll(form):
    inputs, target = leaves(random_mixture(7, 3, 4, 6)), random_targets(7, 6, ignored=[2])
    loss, nll = FORMS[form](*inputs, target, 0.0)
    expected = mixture_nll(*inputs, target)
    assert_close((loss, nll), (expected, expected))
    assert_close(gradients(loss, inputs), gradients(expected, inputs))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_of_one_component_it_is_fairseqs(form, smoothing):
    components, _, weight, bias = random_mixture(7, 1, 4, 6)
    inputs = leaves([components, weight, bias])
    target = random_targets(7, 6)
    target[[1, 4]] = 5  # ignored
    log_probs = (inputs[0][:, 0] @ inputs[1].t() + inputs[2]).log_softmax(1)
    expected = label_smoothed_nll_loss(log_probs, target, smoothing, ignore_index=5)
    found = FORMS[form](inputs[0], components.new_zeros(7, 1), *inputs[1:], target, smoothing, 5)
    assert_close(found, expected)
    assert_close(gradients(found[0], inputs), gradients(expected[0], inputs))


def test_gradients_are_those_of_finite_differences():
    inputs, target = leaves(random_mixture(4, 3, 2, 5)), random_targets(4, 5, ignored=[1])
    assert torch.autograd.gradcheck(
        lambda *x: smoothed_mixture_nll(*x, target, 0.2, chunk_bytes=4 * 3 * 5 * 3)[0], inputs
    )


def test_gradients_go_only_to_inputs_that_ask():
    mixture, target = random_mixture(5, 3, 4, 6), random_targets(5, 6, ignored=[2])
    truth_inputs = leaves(mixture)
    expected_loss, _ = truth(truth_inputs, target, 0.1)
    expected = dict(zip(NAMES, gradients(expected_loss, truth_inputs), strict=True))
    for asked in itertools.product([False, True], repeat=4):
        inputs = [x.clone().requires_grad_(ask) for x, ask in zip(mixture, asked, strict=True)]
        loss, nll = smoothed_mixture_nll(*inputs, target, 0.1, chunk_bytes=4 * 3 * 6 * 2)
        assert_close(loss, expected_loss)
        assert loss.requires_grad == any(asked) and not nll.requires_grad
        if any(asked):
            loss.backward()
        for name, x, ask in zip(NAMES, inputs, asked, strict=True):
            assert (x.grad is not None) == ask, name
            if ask:
                assert_close(x.grad, expected[name])


@pytest.mark.parametrize("factor", [0.0, 1.0, -3.0, 1e-30])
def test_upstream_gradient_scales_and_backward_runs_again(factor):
    inputs, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6)
    once = gradients(smoothed_mixture_nll(*inputs, target, 0.1)[0], inputs)
    loss = factor * smoothed_mixture_nll(*inputs, target, 0.1)[0]
    for _ in range(2):
        scaled = torch.autograd.grad(loss, inputs, retain_graph=True)
        assert_close(scaled, tuple(factor * g for g in once), rtol=1e-12, atol=0)


def test_no_gradient_is_formed_under_no_grad():
    inputs, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6, ignored=[1])
    with torch.no_grad():
        found = smoothed_mixture_nll(*inputs, target, 0.1)
    assert not found[0].requires_grad
    assert_close(found, smoothed_mixture_nll(*inputs, target, 0.1))


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("ignored", [[], [0, 4]])
def test_chunk_size_does_not_change_the_result(tokens, ignored):
    inputs, target = leaves(random_mixture(7, 2, 4, 6)), random_targets(7, 6, ignored=ignored)
    whole, parts = (
        smoothed_mixture_nll(*inputs, target, 0.1, chunk_bytes=size)
        for size in (None, 4 * 2 * 6 * tokens)
    )
    assert_close(parts, whole)
    assert_close(gradients(parts[0], inputs), gradients(whole[0], inputs))


@pytest.mark.parametrize("function", [mixture_nll, smoothed_mixture_nll])
def test_ignored_targets_take_no_place_in_a_chunk(monkeypatch, function):
    """Of eight targets five are left: chunks of three and two."""
    rows = []

    def recorded(left, right, bias=None):
        rows.append(len(left))
        return real(left, right, bias)

    real = module.matmul
    monkeypatch.setattr(module, "matmul", recorded)
    target = random_targets(8, 6, ignored=[0, 1, 5])
    settings = {"smoothing": 0.1} if function is smoothed_mixture_nll else {}
    with torch.no_grad():
        function(*random_mixture(8, 2, 4, 6), target, chunk_bytes=4 * 2 * 6 * 3, **settings)
    assert rows == [3 * 2, 2 * 2]


@pytest.mark.parametrize("form", FORMS)
def test_what_an_ignored_token_holds_does_not_matter(form):
    components, *others = random_mixture(5, 3, 4, 6)
    target = random_targets(5, 6, ignored=[1, 3])
    expected = FORMS[form](components, *others, target, 0.1)
    components[[1, 3]] = torch.nan
    inputs = leaves([components, *others])
    found = FORMS[form](*inputs, target, 0.1)
    assert_close(found, expected)
    grads = gradients(found[0], inputs)
    assert all(torch.isfinite(g).all() for g in grads)
    assert not grads[0][[1, 3]].any() and not grads[1][[1, 3]].any()


# Extreme logits, accuracy and 16 bits


def relative_errors(form, mixture, target, smoothing=0.1, **settings):
    """Of the loss and of each gradient, in the Euclidean norm."""
    inputs, exact = leaves(mixture), leaves(x.double() for x in mixture)
    loss, nll = form(*inputs, target, smoothing, **settings)
    expected, exact_nll = reference.smoothed_mixture_nll(*exact, target, smoothing)
    assert_close(nll, exact_nll, rtol=0.01)
    found, right = [loss, *gradients(loss, inputs)], [expected, *gradients(expected, exact)]
    errors = [((x - y).norm() / y.norm()).item() for x, y in zip(found, right, strict=True)]
    return found, dict(zip(("loss", *NAMES), errors, strict=True))


@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_a_word_whose_probability_is_too_small_for_float32(gap):
    """Words 300 .. 302 lie ``gap`` or more below the others in both components: their probability,
    e^-200 say, is no float32, yet they are 3 in 300 labels. The other chunk is ordinary. What is left
    is the rounding of logits as large as the gap, of which gradients are made."""
    mixture = random_mixture(6, 2, 8, 303, dtype=torch.float32, scale=0.5)
    mixture[0][:3, :, 0] = gap
    mixture[0][3:, :, 0] = 0.0
    mixture[2][:, 0] = 0.0
    mixture[2][300:, 0] = torch.tensor([-1.0, -1.0, -1.5])
    target = torch.tensor([5, 300, 302, 5, 300, 302])
    _, errors = relative_errors(smoothed_mixture_nll, mixture, target, chunk_bytes=4 * 2 * 303 * 3)
    assert errors["loss"] < 1e-6 and max(errors.values()) < 1e-6 + 1e-7 * gap, errors


@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_float32_error_is_no_worse_than_the_plain_forms(seed, scale):
    mixture = random_mixture(60, 4, 20, 300, seed=seed, dtype=torch.float32, scale=scale)
    target = random_targets(60, 300, seed, ignored=[3])
    _, plain = relative_errors(reference.smoothed_mixture_nll, mixture, target)
    _, chunked = relative_errors(smoothed_mixture_nll, mixture, target, chunk_bytes=4 * 4 * 300 * 7)
    for name in plain:
        assert chunked[name] < 1e-5
        assert chunked[name] <= 2 * plain[name] + 2e-7, (name, chunked[name], plain[name])


@pytest.mark.parametrize(
    "dtypes", [("bfloat16",) * 4, ("float32", "float32", "bfloat16", "bfloat16")]
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16(dtypes, smoothing):
    """All inputs, or the matrix and bias alone, as a model in 16 bits gives them."""
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.float32, scale=0.5)
    mixture = [x.to(getattr(torch, dtype)) for x, dtype in zip(mixture, dtypes, strict=True)]
    target = random_targets(40, 100, ignored=[3])
    settings = {"chunk_bytes": 4 * 4 * 100 * 7}
    found, errors = relative_errors(smoothed_mixture_nll, mixture, target, smoothing, **settings)
    assert [x.dtype for x in found] == [torch.float32, *(x.dtype for x in mixture)]
    assert max(errors.values()) < 0.01, errors


def test_bfloat16_of_an_underflowing_word():
    """Word 3 has logit -200, without rounding, in every component."""
    mixture = random_mixture(6, 2, 8, 40, dtype=torch.float32, scale=0.5)
    mixture[0][..., 0], mixture[2][:, 0], mixture[2][3], mixture[3][3] = 200.0, 0.0, 0.0, 0.0
    mixture[2][3, 0] = -1.0
    mixture = [x.bfloat16() for x in mixture]
    _, errors = relative_errors(smoothed_mixture_nll, mixture, random_targets(6, 40))
    assert max(errors.values()) < 0.01, errors


def test_bfloat16_autocast():
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.float32, scale=0.5)
    target = random_targets(40, 100, ignored=[3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, errors = relative_errors(
            smoothed_mixture_nll, mixture, target, chunk_bytes=4 * 4 * 100 * 7
        )
    assert {x.dtype for x in found} == {torch.float32}
    assert max(errors.values()) < 0.01, errors


# Errors


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0, math.nan])
def test_smoothing_outside_its_range(form, smoothing):
    with pytest.raises(FairseqDocError, match=r"--label-smoothing must be in \[0, 1\); got"):
        FORMS[form](*random_mixture(2, 1, 2, 3), random_targets(2, 3), smoothing)


@pytest.mark.parametrize("form", FORMS)
def test_shapes_are_checked(form):
    mixture = random_mixture(5, 3, 4, 6)
    with pytest.raises(FairseqDocError, match="targets"):
        FORMS[form](*mixture, random_targets(4, 6), 0.1)
    mixture[2] = mixture[2][:, 1:]
    with pytest.raises(FairseqDocError, match="output matrix"):
        FORMS[form](*mixture, random_targets(5, 6), 0.1)
