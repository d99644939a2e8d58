"""log P of every word against the truth in float64, a loop over probabilities."""

import math

import pytest
import torch
from hypothesis import given

from fairseq_doc.ops import mixture_chunks, reference
from fairseq_doc.ops.mixture_log_probs import mixture_log_probs
from fairseq_doc.ops.mixture_nll import mixture_nll

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_probs,
    random_mixture,
    random_targets,
)


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_blocks_of_a_chunk_do_not_change_the_log_probs(monkeypatch, tokens):
    mixture = random_mixture(7, 3, 4, 6)
    monkeypatch.setattr(mixture_chunks, "CPU_BLOCK_BYTES", 4 * 3 * 6 * tokens)
    assert_close(mixture_log_probs(*mixture), naive_probs(*mixture).log())


@pytest.mark.parametrize("needs_gradient", [False, True])
@given(case=mixtures_with_targets())
def test_log_probs_are_the_truth(needs_gradient, case):
    mixture, _, _, size = case
    inputs = leaves(mixture) if needs_gradient else mixture
    log_probs = mixture_log_probs(*inputs, chunk_bytes=size)
    assert log_probs.requires_grad == needs_gradient
    assert_close(log_probs, naive_probs(*mixture).log())


def test_log_probs_gradients_are_the_truth():
    inputs = leaves(random_mixture(5, 3, 4, 6))
    upstream = torch.linspace(-1, 2, 30, dtype=torch.float64).view(5, 6)
    log_probs = mixture_log_probs(*inputs, chunk_bytes=4 * 3 * 6 * 2)
    truth = naive_probs(*inputs).log()
    grads = [gradients((x * upstream).sum(), inputs) for x in (log_probs, truth)]
    assert_close(*grads)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_log_probs_of_underflowing_probabilities(gap, needs_gradient):
    """Logits (0, -gap) and (0, -gap - 1): log P(1) = -gap + log(pi_1 + pi_2 / e), less than a
    float32 rounding from the exact value; the token after it, in the same chunk, is ordinary."""
    components = torch.tensor([[[-gap], [-gap - 1]], [[0.0], [0.0]]])
    log_weights = torch.tensor([[0.25, 0.75]] * 2).log()
    inputs = [components, log_weights, torch.tensor([[0.0], [1.0]]), torch.zeros(2)]
    log_probs = mixture_log_probs(*(leaves(inputs) if needs_gradient else inputs))
    tiny = -gap + math.log(0.25 + 0.75 / math.e)
    half = math.log(0.5)
    assert_close(log_probs.tolist(), [[0.0, tiny], [half, half]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [mixture_log_probs, reference.mixture_log_probs])
def test_probabilities_sum_to_one(function):
    mixture = random_mixture(20, 5, 8, 200, dtype=torch.float32)
    assert_close(function(*mixture).exp().sum(1), torch.ones(20), rtol=0, atol=2e-6)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_log_probs_under_autocast(needs_gradient):
    """Only the products are in bfloat16: probabilities sum to one at float32's accuracy, and the
    target's is the one that the loss takes."""
    mixture = random_mixture(20, 5, 8, 200, dtype=torch.float32, scale=0.5)
    inputs = leaves(mixture) if needs_gradient else mixture
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


def test_shapes_are_checked():
    components, log_weights, weight, bias = random_mixture(5, 3, 4, 6)
    with pytest.raises(ValueError, match="output matrix"):
        mixture_log_probs(components, log_weights, weight[:, 1:], bias)
