"""Both forms of the loss against the truth in float64: a loop over probabilities, never in log
space, or a derivation by hand."""

import itertools
import math

import pytest
import torch
from conftest import assert_refused
from hypothesis import assume, given
from hypothesis import strategies as st

from fairseq_doc.ops import matmul, mixture_chunks, reference
from fairseq_doc.ops import mixture_nll as chunked
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_log_probs import mixture_log_probs

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_nll,
    random_mixture,
    random_targets,
    relative_errors,
)
from ..device import DEVICE

FORMS = {"plain": reference, "chunked": chunked}
SMOOTHING = 0.1
forms = pytest.mark.parametrize("form", FORMS)
kinds = pytest.mark.parametrize("kind", ["none", "sum", "mean", "smoothed"])


def chunk_bytes(tokens, j, v):
    """The setting with which a chunk holds ``tokens`` tokens."""
    return 4 * j * v * tokens


def loss_of(form, kind, mixture, target, ignore_index=-100, **settings):
    """One reduction of the NLL, or the cross entropy against smoothed labels."""
    if kind == "smoothed":
        return smoothed_of(form, mixture, target, SMOOTHING, ignore_index, **settings)[0]
    return FORMS[form].mixture_nll(Mixture(*mixture), target, ignore_index, kind, **settings)


def smoothed_of(form, mixture, *arguments, **settings):
    return FORMS[form].smoothed_mixture_nll(Mixture(*mixture), *arguments, **settings)


def truth_of(kind, mixture, target, ignore_index=-100, smoothing=SMOOTHING):
    zero = mixture[0].sum() * 0
    smoothing = smoothing if kind == "smoothed" else 0.0
    losses = naive_nll(*mixture, target, ignore_index, smoothing)
    if kind == "none":
        return torch.stack([zero, *losses])[1:]
    total = sum(losses, zero)
    return total / max(1, int((target != ignore_index).sum())) if kind == "mean" else total


@forms
@kinds
@given(case=mixtures_with_targets(), smoothing=st.sampled_from([0.0, 0.1, 0.5, 0.99]))
def test_values_and_gradients_are_the_truth(form, kind, case, smoothing):
    """Of no token, of no target left and of one word too; under unequal upstream gradients."""
    mixture, target, ignore_index, size = case
    assume(kind != "smoothed" or len(mixture[2]) > 1)  # there are other words
    settings = {"chunk_bytes": size} if form == "chunked" else {}
    inputs, exact = leaves(mixture), leaves(mixture)
    if kind == "smoothed":
        loss, nll = smoothed_of(form, inputs, target, smoothing, ignore_index, **settings)
        assert_close(nll, truth_of("sum", mixture, target, ignore_index))
        assert loss.shape == nll.shape == () and not nll.requires_grad
    else:
        loss = loss_of(form, kind, inputs, target, ignore_index, **settings)
    truth = truth_of(kind, exact, target, ignore_index, smoothing)
    assert_close(loss, truth)
    upstream = torch.linspace(-1, 2, loss.numel(), dtype=torch.float64).view_as(loss) + 0.1
    expected = gradients((truth * upstream).sum(), exact)
    assert_close(gradients((loss * upstream).sum(), inputs), expected)


@pytest.mark.parametrize("unlikely", [False, True])
@pytest.mark.parametrize("ignored", [[], [0, 3, 6]])
def test_smoothed_labels_take_chunks_in_blocks(ignored, unlikely, monkeypatch):
    """Chunks of five tokens in blocks of two; a word of about e^-620 needs one block in log space."""
    monkeypatch.setattr(mixture_chunks, "CPU_BLOCK_BYTES", 2 * chunk_bytes(2, 3, 6))
    mixture, target = random_mixture(7, 3, 4, 6), random_targets(7, 6, ignored=ignored)
    if unlikely:
        components, _, weight, _ = mixture
        components[2] = components[2, 0]
        logits = weight @ components[2, 0]
        components[2] *= 620 / (logits.max() - logits.min())
    inputs, exact = leaves(mixture), leaves(mixture)
    loss, _ = smoothed_of("chunked", inputs, target, SMOOTHING, chunk_bytes=chunk_bytes(5, 3, 6))
    truth, _ = smoothed_of("plain", exact, target, SMOOTHING)
    assert_close(loss, truth)
    assert_close(gradients(loss, inputs), gradients(truth, exact))


@pytest.mark.parametrize("kind", ["none", "sum", "smoothed"])
def test_gradients_go_only_to_inputs_that_require_them(kind):
    mixture, target = random_mixture(5, 3, 4, 6), random_targets(5, 6, ignored=[2])
    exact = leaves(mixture)
    truth = truth_of(kind, exact, target).sum()
    expected = gradients(truth, exact)
    for required in itertools.product([False, True], repeat=4):
        inputs = [x.clone().requires_grad_(r) for x, r in zip(mixture, required, strict=True)]
        loss = loss_of("chunked", kind, inputs, target, chunk_bytes=chunk_bytes(2, 3, 6)).sum()
        assert_close(loss, truth)
        assert loss.requires_grad == any(required)
        if loss.requires_grad:
            loss.backward()
        for x, gradient in zip(inputs, expected, strict=True):
            if x.requires_grad:
                assert_close(x.grad, gradient)


@kinds
def test_a_second_backward_gives_the_same(kind):
    inputs, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6)
    loss = loss_of("chunked", kind, inputs, target).sum()
    loss.backward(retain_graph=True)
    once = [x.grad.clone() for x in inputs]
    for x in inputs:
        x.grad.mul_(0.5)  # as clipping does: it must not change what the next pass gives
    loss.backward()
    assert_close([x.grad for x in inputs], [1.5 * g for g in once])


@forms
@pytest.mark.parametrize("kind", ["sum", "smoothed"])
def test_values_of_an_ignored_token_do_not_matter(form, kind):
    components, *others = random_mixture(5, 3, 4, 6)
    target = random_targets(5, 6, ignored=[1, 3])
    expected = loss_of(form, kind, [components, *others], target)
    components[[1, 3]] = torch.nan if kind == "smoothed" or form == "chunked" else 1e3
    inputs = leaves([components, *others])
    found = loss_of(form, kind, inputs, target)
    assert_close(found, expected)
    grads = gradients(found, inputs)
    assert all(torch.isfinite(g).all() for g in grads)
    assert not grads[0][[1, 3]].any() and not grads[1][[1, 3]].any()


# Extreme weights and logits


@pytest.mark.cpu_only("denormal numbers, which it computes slowly")
@pytest.mark.parametrize("gap", [30, 88, 95, 300])
def test_no_gradient_is_denormal(gap):
    """A CPU computes thirty times more slowly with such numbers."""
    components, _, weight, bias = random_mixture(4, 3, 5, 6)
    log_weights = torch.tensor([[0.0, -gap, -gap]], dtype=weight.dtype).expand(4, 3)
    target = random_targets(4, 6)
    mixture = [components, log_weights, weight, bias]
    single, exact = leaves(x.float() for x in mixture), leaves(mixture)
    found = gradients(loss_of("chunked", "sum", single, target), single)
    expected = gradients(truth_of("sum", exact, target), exact)
    for gradient, truth in zip(found, expected, strict=True):
        assert gradient[gradient != 0].abs().min() > torch.finfo(torch.float32).tiny
        torch.testing.assert_close(gradient.double(), truth, rtol=1e-4, atol=1e-6)


@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_ten_thousand(form, dtype):
    """Logits (1e4, 0, 0) and (-1e4, 0, 0), weights 1/2: softmaxes (1, 0, 0) and (0, 1/2, 1/2).
    Targets 0 and 1 cost log 2 and log 4; for target 0 the posterior is (1, 0) and nothing is to
    learn, for target 1 it is (0, 1) and the second logits' gradient is (0, -1/2, 1/2)."""
    components = torch.tensor([[[1.0, 0, 0], [-1.0, 0, 0]]] * 2, dtype=dtype)
    log_weights = torch.full((2, 2), math.log(0.5), dtype=dtype)
    weight = 1e4 * torch.eye(3, dtype=dtype)
    inputs = leaves([components, log_weights, weight, torch.zeros(3, dtype=dtype)])
    losses = loss_of(form, "none", inputs, torch.tensor([0, 1]))
    assert_close(losses.tolist(), [math.log(2), math.log(4)], rtol=1e-6, atol=0)

    found = [g.double().tolist() for g in gradients(losses.sum(), inputs)]
    d_k = [[[0.0] * 3] * 2, [[0.0] * 3, [0.0, -5e3, 5e3]]]
    d_w = [[0.0] * 3, [0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]
    expected = [d_k, [[-1.0, 0.0], [0.0, -1.0]], d_w, [0.0, -0.5, 0.5]]
    assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_a_word_whose_probability_is_too_small_for_float32(gap):
    """Words 300 .. 302 lie ``gap`` or more below the others in both components: their probability,
    e^-200 say, is no float32, yet they are 3 in 300 labels. The other chunk is ordinary. The error
    that remains is the rounding of logits as large as the gap, which the gradients consist of."""
    mixture = random_mixture(6, 2, 8, 303, dtype=torch.float32, scale=0.5)
    mixture[0][:3, :, 0] = gap
    mixture[0][3:, :, 0] = 0.0
    mixture[2][:, 0] = 0.0
    mixture[2][300:, 0] = torch.tensor([-1.0, -1.0, -1.5])
    target = torch.tensor([5, 300, 302, 5, 300, 302])
    settings = {"chunk_bytes": chunk_bytes(3, 2, 303)}
    _, errors = results_and_errors("chunked", "smoothed", mixture, target, **settings)
    assert errors[0] < 1e-6 and errors.max() < 1e-6 + 1e-7 * gap


# Accuracy


def results_and_errors(form, kind, mixture, target, **settings):
    """The loss and gradients, and their errors."""
    inputs, exact = leaves(mixture), leaves(x.double() for x in mixture)
    found = loss_of(form, kind, inputs, target, **settings)
    expected = loss_of("plain", kind, exact, target)  # in float64, checked above
    found = [found, *gradients(found.sum(), inputs)]
    return found, relative_errors(found, [expected, *gradients(expected.sum(), exact)])


@pytest.mark.parametrize("kind", ["none", "sum", "smoothed"])
@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("precision", matmul.PRECISIONS.values(), ids=str)
def test_error_is_no_worse_than_the_plain_forms(monkeypatch, precision, kind, seed, scale):
    """Against float64. The plain form has its products in bfloat16 by autocast."""
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda device: True)
    mixture = random_mixture(60, 4, 20, 300, seed=seed, dtype=torch.float32, scale=scale)
    target = random_targets(60, 300, seed, ignored=[3])
    narrow = precision == torch.bfloat16
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=narrow):
        _, plain = results_and_errors("plain", kind, mixture, target)
    settings = {"precision": precision, "chunk_bytes": chunk_bytes(7, 4, 300)}
    found, ours = results_and_errors("chunked", kind, mixture, target, **settings)
    assert {x.dtype for x in found} == {torch.float32}
    assert (1e-7 if narrow else 0) < ours.min() and ours.max() < (0.02 if narrow else 1e-5)
    assert (ours <= (1.25 * plain + 1e-4 if narrow else 2 * plain + 2e-7)).all(), (ours, plain)


@kinds
@pytest.mark.parametrize("dtypes", ["all in bfloat16", "matrix and bias in bfloat16", "autocast"])
def test_bfloat16(kind, dtypes):
    """Against the same rounded inputs in float64: the error is the products' rounding. A model in
    16 bits gives its log weights in float32. Under autocast the products are in bfloat16,
    everything between them and the result in float32; the backward pass outside takes the same
    products."""
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.float32, scale=0.5)
    if dtypes != "autocast":
        rounded = slice(0, 4) if dtypes.startswith("all") else slice(2, 4)
        mixture[rounded] = [x.bfloat16() for x in mixture[rounded]]
    target, size = random_targets(40, 100, ignored=[3]), chunk_bytes(7, 4, 100)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=dtypes == "autocast"):
        found, errors = results_and_errors("chunked", kind, mixture, target, chunk_bytes=size)
        inputs = leaves(mixture)
        outside = loss_of("chunked", kind, inputs, target, chunk_bytes=size)
    assert [x.dtype for x in found] == [torch.float32, *(x.dtype for x in mixture)]
    assert errors.max() < 0.01, errors
    assert_close(gradients(outside.sum(), inputs), tuple(found[1:]), rtol=0, atol=0)


# Chunks


@pytest.mark.cpu_only("sizes of chunks")
@pytest.mark.parametrize("kind", ["sum", "smoothed", "log_probs"])
@pytest.mark.parametrize("ignored, tokens", [([], [3, 3, 2]), ([0, 1, 5], [3, 2])])
def test_a_product_holds_one_chunk(monkeypatch, kind, ignored, tokens):
    monkeypatch.setattr(mixture_chunks, "CPU_CHUNK_BYTES", [chunk_bytes(3, 2, 6)] * 2)
    rows, real, mixture = [], matmul.matmul, random_mixture(8, 2, 4, 6)
    for name in ("chunked_loss", "mixture_log_probs"):
        recorded = lambda left, *rest: rows.append(len(left)) or real(left, *rest)  # noqa: E731
        monkeypatch.setattr(f"fairseq_doc.ops.{name}.matmul", recorded)
    if kind == "log_probs":
        mixture_log_probs(Mixture(*mixture))
        tokens = [3, 3, 2]
    else:
        loss_of("chunked", kind, mixture, random_targets(8, 6, ignored=ignored))
    assert rows == [2 * n for n in tokens]


def test_settings_that_cannot_be():
    given = Mixture(*random_mixture(2, 2, 3, 5)), random_targets(2, 5)
    assert_refused("smoothing must be", chunked.smoothed_mixture_nll, *given, 1.0)
    assert_refused("gradient_sampling must be", chunked.mixture_nll, *given, gradient_sampling=-0.1)
    for form in FORMS.values():
        assert_refused("reduction must be none, sum", form.mixture_nll, *given, reduction="average")
