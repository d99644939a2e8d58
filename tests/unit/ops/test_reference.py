"""The plain form by hand, its errors, and log P of every word in both forms against the truth in
float64, a loop over probabilities. test_mixture_nll.py compares the losses with such a loop."""

import math
import re

import pytest
import torch
from conftest import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.ops import mixture_chunks, reference
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_log_probs import mixture_log_probs
from fairseq_doc.ops.mixture_nll import fused_mixture_nll

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_probs,
    random_mixture,
    random_targets,
)
from ..device import DEVICE

with_gradient = pytest.mark.parametrize("needs_gradient", [False, True])


def two_components(tokens):
    """Logits (0, log 3) and (0, -log 3): softmaxes (1/4, 3/4) and (3/4, 1/4); weights 0.2, 0.8."""
    components = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    log_weights = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    return Mixture(components.expand(tokens, 2, 1), log_weights.expand(tokens, 2), weight)


def test_by_hand():
    probs = reference.mixture_log_probs(two_components(1)).exp()
    assert_close(probs.tolist(), [[0.65, 0.35]])  # 0.2 / 4 + 0.8 * 3 / 4
    mixture, target = two_components(3), torch.tensor([0, -100, 1])
    losses = [-math.log(0.65), 0.0, -math.log(0.35)]
    assert_close(reference.mixture_nll(mixture, target, reduction="none").tolist(), losses)
    assert_close(reference.mixture_nll(mixture, target, reduction="sum").item(), sum(losses))
    assert_close(reference.mixture_nll(mixture, target, reduction="mean").item(), sum(losses) / 2)
    loss, nll = reference.smoothed_mixture_nll(two_components(1), torch.tensor([0]), 0.1)
    assert_close(loss.item(), -0.9 * math.log(0.65) - 0.1 * math.log(0.35))
    assert_close(nll.item(), -math.log(0.65))


@pytest.mark.parametrize(
    "name, shape",
    [
        ("components", (2, 3)),
        ("log_weights", (2, 4)),
        ("weight", (5, 7)),
        ("bias", (4,)),
        ("target", (3,)),
    ],
)
def test_shapes_that_are_not_of_one_mixture(name, shape):
    shapes = [(2, 3, 4), (2, 3), (5, 4), (5,), (2,)]
    tensors = dict(zip((*Mixture._fields, "target"), map(torch.empty, shapes), strict=True))
    *mixture, target = tensors.values()
    Mixture(*mixture).check(target)
    *mixture, target = {**tensors, name: torch.empty(shape)}.values()
    assert_refused(re.escape(str(shape)), Mixture(*mixture).check, target)


@given(case=mixtures_with_targets(), tokens_of_a_block=st.integers(1, 7))
def test_log_probs_are_the_truth(case, tokens_of_a_block):
    """With and without a gradient, which is checked too."""
    mixture, _, _, size = case
    exact, inputs = leaves(mixture), leaves(mixture)
    truth = naive_probs(*exact).log() + 0 * exact[0].sum()
    assert_close(reference.mixture_log_probs(Mixture(*mixture)), truth)
    with pytest.MonkeyPatch.context() as patch:
        block = 4 * mixture[1].size(1) * len(mixture[2]) * tokens_of_a_block
        patch.setattr(mixture_chunks, "CPU_BLOCK_BYTES", block)
        assert_close(mixture_log_probs(Mixture(*mixture), chunk_bytes=size), truth)
    log_probs = mixture_log_probs(Mixture(*inputs), chunk_bytes=size)
    assert_close(log_probs, truth)
    upstream = torch.linspace(-1, 2, truth.numel(), dtype=truth.dtype).view_as(truth)
    assert_close(
        *(gradients((x * upstream).sum(), y) for x, y in ((log_probs, inputs), (truth, exact)))
    )


@with_gradient
@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_log_probs_of_underflowing_probabilities(gap, needs_gradient):
    """Logits (0, -gap) and (0, -gap - 1): log P(1) = -gap + log(pi_1 + pi_2 / e), less than a
    float32 rounding from the exact value; the token after it, in the same chunk, is ordinary."""
    components = torch.tensor([[[-gap], [-gap - 1]], [[0.0], [0.0]]])
    log_weights = torch.tensor([[0.25, 0.75]] * 2).log()
    inputs = [components, log_weights, torch.tensor([[0.0], [1.0]]), torch.zeros(2)]
    log_probs = mixture_log_probs(Mixture(*(leaves(inputs) if needs_gradient else inputs)))
    tiny = -gap + math.log(0.25 + 0.75 / math.e)
    half = math.log(0.5)
    assert_close(log_probs.tolist(), [[0.0, tiny], [half, half]], rtol=1e-6, atol=1e-6)


@with_gradient
def test_log_probs_under_autocast(needs_gradient):
    """Only the products are in bfloat16: probabilities sum to one at float32's accuracy, and the
    target's is the one that the loss takes."""
    tensors = random_mixture(20, 5, 8, 200, dtype=torch.float32, scale=0.5)
    mixture = Mixture(*(leaves(tensors) if needs_gradient else tensors))
    target = random_targets(20, 200)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        log_probs = mixture_log_probs(mixture)
        losses = fused_mixture_nll(Mixture(*tensors), target, reduction="none")
    assert log_probs.dtype == torch.float32
    truth = naive_probs(*(x.double() for x in mixture)).log()
    assert_close(log_probs, truth, rtol=0.01, atol=0.02)
    assert_close(log_probs.exp().sum(1), torch.ones(20), rtol=0, atol=1e-5)
    assert_close(-log_probs.gather(1, target[:, None])[:, 0], losses, rtol=0, atol=1e-5)
