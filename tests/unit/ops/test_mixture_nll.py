"""The chunked form against the truth in float64: a loop over probabilities, or a hand derivation."""

import itertools
import math

import pytest
import torch
from hypothesis import given

from fairseq_doc.ops import mixture_nll as module
from fairseq_doc.ops import reference
from fairseq_doc.ops.mixture_nll import mixture_log_probs, mixture_nll, tokens_per_chunk

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_nll,
    naive_probs,
    random_mixture,
    random_targets,
)

FORMS = {"plain": reference.mixture_nll, "chunked": mixture_nll}
NAMES = ("components", "log_weights", "weight", "bias")


def chunk_bytes(tokens, j, v):
    """The setting at which a chunk holds ``tokens`` tokens."""
    return 4 * j * v * tokens


def reduced(losses, target, ignore_index, reduction):
    if reduction == "none":
        return torch.stack([torch.zeros((), dtype=torch.float64), *losses])[1:]
    total = sum(losses, torch.zeros((), dtype=torch.float64))
    return total / max(1, int((target != ignore_index).sum())) if reduction == "mean" else total


def check_against_truth(form, reduction, mixture, target, ignore_index, size):
    """Values, and gradients under unequal upstream gradients."""
    settings = {"chunk_bytes": size} if form == "chunked" else {}
    inputs = leaves(mixture)
    loss = FORMS[form](*inputs, target, ignore_index, reduction, **settings)
    truth_inputs = leaves(mixture)
    truth = reduced(naive_nll(*truth_inputs, target, ignore_index), target, ignore_index, reduction)
    assert_close(loss, truth)

    upstream = torch.linspace(-1, 2, loss.numel(), dtype=torch.float64).view_as(loss) + 0.1
    inputs, truth_inputs = ([x for x in xs if x is not None] for xs in (inputs, truth_inputs))
    expected = [torch.zeros_like(x) for x in truth_inputs]
    if truth.requires_grad:
        expected = gradients((truth * upstream).sum(), truth_inputs)
    assert_close(list(gradients((loss * upstream).sum(), inputs)), list(expected))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@given(case=mixtures_with_targets())
def test_values_and_gradients_are_the_truth(form, reduction, case):
    check_against_truth(form, reduction, *case)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(
    "sizes, ignored",
    [
        pytest.param((7, 3, 4, 6), [], id="ragged last chunk"),
        pytest.param((7, 3, 4, 6), [0, 3, 6], id="ignored targets"),
        pytest.param((7, 3, 4, 6), range(7), id="no target left"),
        pytest.param((0, 3, 4, 6), [], id="no token"),
        pytest.param((7, 1, 4, 6), [2], id="one component"),
        pytest.param((7, 3, 4, 1), [2], id="one word"),
        pytest.param((1, 1, 1, 1), [], id="one of each"),
    ],
)
def test_edges(form, reduction, sizes, ignored):
    n, j, _, v = sizes
    target = random_targets(n, v, ignored=ignored)
    check_against_truth(form, reduction, random_mixture(*sizes), target, -100, chunk_bytes(3, j, v))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_gradients_are_those_of_finite_differences(reduction):
    inputs = leaves(random_mixture(4, 3, 2, 5))
    target = random_targets(4, 5, ignored=[1])
    assert torch.autograd.gradcheck(
        lambda *x: mixture_nll(*x, target, reduction=reduction, chunk_bytes=chunk_bytes(3, 3, 5)),
        inputs,
    )


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_gradients_go_only_to_inputs_that_ask(reduction):
    mixture, target = random_mixture(5, 3, 4, 6), random_targets(5, 6, ignored=[2])
    truth_inputs = leaves(mixture)
    truth = sum(naive_nll(*truth_inputs, target))
    expected = dict(zip(NAMES, gradients(truth, truth_inputs), strict=True))
    for asked in itertools.product([False, True], repeat=4):
        inputs = [x.clone().requires_grad_(ask) for x, ask in zip(mixture, asked, strict=True)]
        loss = mixture_nll(*inputs, target, reduction=reduction, chunk_bytes=chunk_bytes(2, 3, 6))
        assert_close(loss.sum(), truth)
        assert loss.requires_grad == any(asked)
        if not any(asked):
            continue
        loss.sum().backward()
        for name, x, ask in zip(NAMES, inputs, asked, strict=True):
            assert (x.grad is not None) == ask, name
            if ask:
                assert_close(x.grad, expected[name])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_no_gradient_is_formed_under_no_grad(reduction):
    mixture, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6)
    with torch.no_grad():
        loss = mixture_nll(*mixture, target, reduction=reduction)
    assert not loss.requires_grad
    assert_close(loss, mixture_nll(*mixture, target, reduction=reduction))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_backward_again_and_again(reduction):
    inputs, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6)
    loss = mixture_nll(*inputs, target, reduction=reduction).sum()
    loss.backward(retain_graph=True)
    once = [x.grad.clone() for x in inputs]
    loss.backward(retain_graph=True)
    for x in inputs:
        x.grad.mul_(0.5)  # as clipping does: it must not reach what the next pass gives
    loss.backward()
    assert_close([x.grad for x in inputs], [2 * g for g in once])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("factor", [0.0, 1.0, -3.0, 1e-30])
def test_upstream_gradient_scales(reduction, factor):
    inputs, target = leaves(random_mixture(5, 3, 4, 6)), random_targets(5, 6)
    once = gradients(mixture_nll(*inputs, target, reduction=reduction), inputs)
    scaled = gradients(factor * mixture_nll(*inputs, target, reduction=reduction), inputs)
    assert_close(scaled, tuple(factor * g for g in once), rtol=1e-12, atol=0)


def test_strided_component_vectors():
    """As the decoder gives them: slices of a wider packed tensor."""
    components, log_weights, weight, bias = random_mixture(5, 3, 4, 6)
    packed = torch.cat([components.flatten(1), log_weights], dim=1).requires_grad_()
    vectors, weights = packed.split([12, 3], dim=1)
    target = random_targets(5, 6)
    loss = mixture_nll(
        vectors.unflatten(1, (3, 4)), weights, weight.t().contiguous().t(), bias, target
    )
    inputs = leaves([components, log_weights, weight, bias])
    truth = sum(naive_nll(*inputs, target))
    (grad,) = gradients(loss, [packed])
    expected = gradients(truth, inputs)
    assert_close(loss, truth)
    assert_close(grad, torch.cat([expected[0].flatten(1), expected[1]], dim=1))


# Extreme weights and logits


@pytest.mark.parametrize("form", FORMS)
def test_component_of_weight_zero_changes_nothing(form):
    components, log_weights, weight, bias = random_mixture(4, 3, 5, 6)
    target = random_targets(4, 6)
    two = leaves([components[:, :2], log_weights[:, :2], weight, bias])
    log_weights[:, 2] = -torch.inf
    three = leaves([components, log_weights, weight, bias])
    loss, truth = FORMS[form](*three, target), sum(naive_nll(*two, target))
    grads, expected = gradients(loss, three), gradients(truth, two)
    assert_close(loss, truth)
    assert_close([grads[0][:, :2], grads[1][:, :2], *grads[2:]], list(expected))
    assert not grads[0][:, 2].any() and not grads[1][:, 2].any()


@pytest.mark.parametrize("gap", [30, 88, 95, 300])
def test_no_gradient_is_denormal(gap):
    """Products of such numbers would take a CPU thirty times as long."""
    components, _, weight, bias = random_mixture(4, 3, 5, 6)
    log_weights = torch.tensor([[0.0, -gap, -gap]], dtype=weight.dtype).expand(4, 3)
    target = random_targets(4, 6)
    mixture = [components, log_weights, weight, bias]
    single = leaves([x.float() for x in mixture])
    found = gradients(mixture_nll(*single, target), single)
    exact = leaves(mixture)
    expected = gradients(sum(naive_nll(*exact, target)), exact)
    for gradient, truth in zip(found, expected, strict=True):
        assert gradient[gradient != 0].abs().min() > torch.finfo(torch.float32).tiny
        torch.testing.assert_close(gradient.double(), truth, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_logits_of_ten_thousand(form, dtype):
    """Logits (1e4, 0, 0) and (-1e4, 0, 0), weights 1/2: softmaxes (1, 0, 0) and (0, 1/2, 1/2).
    Targets 0 and 1 cost log 2 and log 4; for target 0 the posterior is (1, 0) and nothing is to
    learn, for target 1 it is (0, 1) and the second logits' gradient is (0, -1/2, 1/2)."""
    components = torch.tensor([[[1.0, 0, 0], [-1.0, 0, 0]]] * 2, dtype=dtype)
    log_weights = torch.full((2, 2), math.log(0.5), dtype=dtype)
    weight = 1e4 * torch.eye(3, dtype=dtype)
    inputs = leaves([components, log_weights, weight, torch.zeros(3, dtype=dtype)])
    target = torch.tensor([0, 1])
    losses = FORMS[form](*inputs, target, reduction="none")
    assert_close(losses.tolist(), [math.log(2), math.log(4)], rtol=1e-6, atol=0)

    d_k, d_pi, d_w, d_b = (g.double() for g in gradients(losses.sum(), inputs))
    tolerance = {"rtol": 1e-6, "atol": 1e-6}
    assert_close(d_k.tolist(), [[[0.0] * 3] * 2, [[0.0] * 3, [0.0, -5e3, 5e3]]], **tolerance)
    assert_close(d_pi.tolist(), [[-1.0, 0.0], [0.0, -1.0]], **tolerance)
    assert_close(d_w.tolist(), [[0.0] * 3, [0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]], **tolerance)
    assert_close(d_b.tolist(), [0.0, -0.5, 0.5], **tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_target_ten_thousand_below_the_largest_logit(form):
    """Logits (1e4, 0): -log P(1) = 1e4, its gradient (1, -1)."""
    inputs = leaves([torch.ones(1, 1, 1), torch.zeros(1, 1), torch.tensor([[1e4], [0]])])
    loss = FORMS[form](*inputs, None, torch.tensor([1]))
    d_k, d_pi, d_w = gradients(loss, inputs)
    assert loss == 1e4
    assert (d_k.item(), d_pi.item(), d_w.flatten().tolist()) == (1e4, -1.0, [1.0, -1.0])


# Accuracy


def relative_errors(form, mixture, target, **settings):
    """Of the loss of each token and of each gradient, in the Euclidean norm."""
    inputs, truth_inputs = leaves(mixture), leaves(x.double() for x in mixture)
    losses = form(*inputs, target, reduction="none", **settings)
    truth = torch.stack(naive_nll(*truth_inputs, target))
    results = [losses, *gradients(form(*inputs, target, **settings), inputs)]
    expected = [truth, *gradients(truth.sum(), truth_inputs)]
    errors = [((x - y).norm() / y.norm()).item() for x, y in zip(results, expected, strict=True)]
    return results, dict(zip(("loss", *NAMES), errors, strict=True))


@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_float32_error_is_no_worse_than_the_plain_forms(seed, scale):
    mixture = random_mixture(60, 4, 20, 300, seed=seed, dtype=torch.float32, scale=scale)
    target = random_targets(60, 300, seed, ignored=[3])
    _, plain = relative_errors(reference.mixture_nll, mixture, target)
    _, chunked = relative_errors(mixture_nll, mixture, target, chunk_bytes=chunk_bytes(7, 4, 300))
    for name in plain:
        assert chunked[name] < 1e-5
        assert chunked[name] <= 2 * plain[name], (name, chunked[name], plain[name])


def test_bfloat16_inputs():
    """Against the truth of the same rounded inputs: what is left is the products' rounding."""
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.bfloat16, scale=0.5)
    results, errors = relative_errors(
        mixture_nll,
        mixture,
        random_targets(40, 100, ignored=[3]),
        chunk_bytes=chunk_bytes(7, 4, 100),
    )
    assert [x.dtype for x in results] == [torch.float32] + [torch.bfloat16] * 4
    assert max(errors.values()) < 0.01, errors


def test_bfloat16_matrix_with_float32_vectors_and_weights():
    """As a model in 16 bits gives them, its log weights being float32."""
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.float32, scale=0.5)
    mixture[2:] = [x.bfloat16() for x in mixture[2:]]
    target = random_targets(40, 100, ignored=[3])
    results, errors = relative_errors(mixture_nll, mixture, target)
    assert [x.dtype for x in results] == [torch.float32] * 3 + [torch.bfloat16] * 2
    assert max(errors.values()) < 0.01, errors
    losses = -mixture_log_probs(*mixture).gather(1, target.clamp(min=0)[:, None])[:, 0]
    assert_close(losses.where(target >= 0, 0), results[0].detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_bfloat16_autocast(reduction):
    """Products in bfloat16, everything between them, the result too, in float32; the backward
    pass, which torch advises to run outside, takes the same products there."""
    mixture = random_mixture(40, 4, 20, 100, dtype=torch.float32, scale=0.5)
    target = random_targets(40, 100, ignored=[3])
    inputs, truth_inputs = leaves(mixture), leaves(x.double() for x in mixture)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, outside = (
            mixture_nll(*inputs, target, reduction=reduction, chunk_bytes=chunk_bytes(7, 4, 100))
            for _ in range(2)
        )
        grads = gradients(inside.sum(), inputs)
    truth = reduced(naive_nll(*truth_inputs, target), target, -100, reduction)
    expected = gradients(truth.sum(), truth_inputs)
    assert inside.dtype == torch.float32
    assert_close(inside, truth, rtol=0.01, atol=0.02)
    for name, x, y in zip(NAMES, grads, expected, strict=True):
        assert x.dtype == torch.float32
        assert (x - y).norm() < 0.01 * y.norm(), name
    assert_close(gradients(outside.sum(), inputs), grads, rtol=0, atol=0)


@pytest.mark.parametrize("given, used", [("float32", "bfloat16"), ("float64", "float64")])
def test_products_are_taken_in_autocasts_dtype_unless_wider_is_given(monkeypatch, given, used):
    seen = set()

    def recorded(left, right, bias=None):
        seen.update(x.dtype for x in (left, right))
        return real(left, right, bias)

    real = module.matmul
    monkeypatch.setattr(module, "matmul", recorded)
    inputs = leaves(random_mixture(5, 3, 4, 6, dtype=getattr(torch, given)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixture_nll(*inputs, random_targets(5, 6)).backward()
        with torch.no_grad():
            mixture_log_probs(*inputs)
    assert seen == {getattr(torch, used)}


# Chunks


@pytest.mark.parametrize(
    "j, v, size, tokens", [(20, 10_000, 24 * 2**20, 31), (1, 1, 11, 2), (2, 3, 24, 1), (9, 9, 1, 1)]
)
def test_tokens_per_chunk(j, v, size, tokens):
    """The largest number whose float32 logits fit, and at least one."""
    assert tokens_per_chunk(j, v, size) == tokens
    assert tokens * 4 * j * v <= size or tokens == 1
    assert (tokens + 1) * 4 * j * v > size


@pytest.mark.parametrize("function", [mixture_nll, mixture_log_probs])
def test_no_product_holds_more_than_one_chunk(monkeypatch, function):
    rows = []

    def recorded(left, right, bias=None):
        rows.append(len(left))
        return real(left, right, bias)

    real = module.matmul
    monkeypatch.setattr(module, "matmul", recorded)
    monkeypatch.setattr(module, "CPU_CHUNK_BYTES", [chunk_bytes(3, 2, 6)] * 2)
    mixture = random_mixture(8, 2, 4, 6)
    function(*mixture, *([random_targets(8, 6)] if function is mixture_nll else []))
    assert rows == [3 * 2, 3 * 2, 2 * 2]


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 8, 100])
def test_chunk_size_does_not_change_the_result(tokens):
    inputs, target = leaves(random_mixture(7, 2, 4, 6)), random_targets(7, 6)
    size = chunk_bytes(tokens, 2, 6)
    whole, parts = (mixture_nll(*inputs, target, chunk_bytes=b) for b in (None, size))
    assert_close(parts, whole)
    assert_close(gradients(parts, inputs), gradients(whole, inputs))


# All words' log probabilities


@pytest.mark.parametrize(
    "tokens, chunk, most, even",
    [
        (128, 125, 200, 128),
        (640, 125, 200, 128),
        (128, 125, 125, 64),  # as large as may be already
        (640, 125, 125, 107),
        (1, 125, 200, 1),
        (190, 125, 200, 95),
        (250, 125, 125, 125),
        (0, 5, 5, 1),
    ],
)
def test_chunks_are_even(tokens, chunk, most, even):
    assert module._even_chunk(tokens, chunk, most) == even


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_blocks_of_a_chunk_do_not_change_the_log_probs(monkeypatch, tokens):
    mixture = random_mixture(7, 3, 4, 6)
    monkeypatch.setattr(module, "CPU_BLOCK_BYTES", chunk_bytes(tokens, 3, 6))
    assert_close(mixture_log_probs(*mixture), naive_probs(*mixture).log())


@pytest.mark.parametrize("asks", [False, True])
@given(case=mixtures_with_targets())
def test_log_probs_are_the_truth(asks, case):
    mixture, _, _, size = case
    inputs = leaves(mixture) if asks else mixture
    log_probs = mixture_log_probs(*inputs, chunk_bytes=size)
    assert log_probs.requires_grad == asks
    assert_close(log_probs, naive_probs(*mixture).log())


def test_log_probs_gradients_are_the_truth():
    inputs = leaves(random_mixture(5, 3, 4, 6))
    upstream = torch.linspace(-1, 2, 30, dtype=torch.float64).view(5, 6)
    log_probs = mixture_log_probs(*inputs, chunk_bytes=chunk_bytes(2, 3, 6))
    truth = naive_probs(*inputs).log()
    grads = [gradients((x * upstream).sum(), inputs) for x in (log_probs, truth)]
    assert_close(*grads)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_log_probs_of_underflowing_probabilities(gap, asks):
    """Logits (0, -gap) and (0, -gap - 1): log P(1) = -gap + log(pi_1 + pi_2 / e), less than a
    float32 rounding from the exact value; the token after it, in the same chunk, is ordinary."""
    components = torch.tensor([[[-gap], [-gap - 1]], [[0.0], [0.0]]])
    log_weights = torch.tensor([[0.25, 0.75]] * 2).log()
    inputs = [components, log_weights, torch.tensor([[0.0], [1.0]]), torch.zeros(2)]
    log_probs = mixture_log_probs(*(leaves(inputs) if asks else inputs))
    tiny = -gap + math.log(0.25 + 0.75 / math.e)
    half = math.log(0.5)
    assert_close(log_probs.tolist(), [[0.0, tiny], [half, half]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [mixture_log_probs, reference.mixture_log_probs])
def test_probabilities_sum_to_one(function):
    mixture = random_mixture(20, 5, 8, 200, dtype=torch.float32)
    assert_close(function(*mixture).exp().sum(1), torch.ones(20), rtol=0, atol=2e-6)


@pytest.mark.parametrize("asks", [False, True])
def test_log_probs_under_autocast(asks):
    """Only the products are in bfloat16: probabilities sum to one at float32's accuracy, and the
    target's is the one that the loss takes."""
    mixture = random_mixture(20, 5, 8, 200, dtype=torch.float32, scale=0.5)
    inputs = leaves(mixture) if asks else mixture
    target = random_targets(20, 200)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_probs = mixture_log_probs(*inputs)
        losses = mixture_nll(*mixture, target, reduction="none")
    assert log_probs.dtype == torch.float32
    truth = naive_probs(*(x.double() for x in mixture)).log()
    assert_close(log_probs, truth, rtol=0.01, atol=0.02)
    assert_close(log_probs.exp().sum(1), torch.ones(20), rtol=0, atol=1e-5)
    assert_close(-log_probs.gather(1, target[:, None])[:, 0], losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize("function", [mixture_log_probs, reference.mixture_log_probs])
def test_one_component_is_a_softmax(function):
    components, _, weight, bias = random_mixture(5, 1, 4, 6)
    expected = (components[:, 0] @ weight.t() + bias).softmax(1)
    assert_close(function(components, torch.zeros(5, 1), weight, bias).exp(), expected)


@pytest.mark.parametrize("function", [mixture_nll, mixture_log_probs])
def test_shapes_are_checked(function):
    components, log_weights, weight, bias = random_mixture(5, 3, 4, 6)
    target = [random_targets(5, 6)] if function is mixture_nll else []
    with pytest.raises(ValueError, match="output matrix"):
        function(components, log_weights, weight[:, 1:], bias, *target)
