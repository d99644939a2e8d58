import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.ops import mixture_chunks, reference
from fairseq_doc.ops.mixture_pruning import (
    pruned_log_weights,
    pruned_mixture_log_probs,
    pruned_mixture_nll,
)

from ..conftest import assert_close, mixtures_with_targets, random_mixture, random_targets


@given(st.integers(0, 7), st.integers(1, 6), st.floats(0, 0.99), st.integers(0, 99))
def test_light_components_are_left_out_and_the_rest_renormalised(n, j, threshold, seed):
    _, log_weights, _, _ = random_mixture(n, j, 2, 3, seed=seed, scale=2.0)
    found = pruned_log_weights(log_weights, threshold)
    for row, before in zip(found.exp().tolist(), log_weights.exp().tolist(), strict=True):
        stays = [p >= threshold or p == max(before) for p in before]
        total = sum(p for p, kept in zip(before, stays, strict=True) if kept)
        expected = [p / total if kept else 0.0 for p, kept in zip(before, stays, strict=True)]
        assert row == pytest.approx(expected, rel=1e-9)


@given(mixtures_with_targets(), st.floats(0, 0.9))
def test_the_pruned_mixture_is_the_definition_with_the_pruned_weights(drawn, threshold):
    (components, log_weights, weight, bias), target, ignore_index, _ = drawn
    log_weights = pruned_log_weights(log_weights, threshold)
    mixture = (components, log_weights, weight, bias)
    for reduction in ("none", "sum", "mean"):
        expected = reference.mixture_nll(*mixture, target, ignore_index, reduction)
        assert_close(pruned_mixture_nll(*mixture, target, ignore_index, reduction), expected)
    assert_close(pruned_mixture_log_probs(*mixture), reference.mixture_log_probs(*mixture))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_chunks_and_blocks_and_in_half_precision(monkeypatch, dtype):
    components, log_weights, weight, bias = random_mixture(40, 5, 6, 30, dtype=torch.float32)
    mixture = (components, pruned_log_weights(log_weights, 0.2), weight, bias)
    target = random_targets(40, 30)
    monkeypatch.setattr(mixture_chunks, "CPU_CHUNK_BYTES", (0, 4 * 5 * 30 * 3))
    monkeypatch.setattr(mixture_chunks, "CPU_BLOCK_BYTES", 4 * 30 * 2)
    bound = 1e-5 if dtype == torch.float32 else 0.1  # also where bfloat16 is not used
    expected = reference.mixture_nll(*mixture, target, reduction="none")
    found = pruned_mixture_nll(*mixture, target, reduction="none", precision=dtype)
    assert_close(found, expected, rtol=bound, atol=bound)
    expected = reference.mixture_log_probs(*mixture)
    found = pruned_mixture_log_probs(*mixture, precision=dtype)
    assert_close(found, expected, rtol=bound, atol=bound)
    assert_close(found.exp().sum(1), torch.ones(40), rtol=1e-4, atol=1e-4)


def test_words_of_almost_no_probability():
    """In log space, as without pruning."""
    components, log_weights, weight, bias = random_mixture(4, 3, 2, 5, dtype=torch.float32)
    bias[2] = -500.0
    mixture = (components, pruned_log_weights(log_weights, 0.3), weight, bias)
    assert_close(pruned_mixture_log_probs(*mixture), reference.mixture_log_probs(*mixture))
    assert torch.isfinite(pruned_mixture_log_probs(*mixture)).all()


def test_no_token():
    components, log_weights, weight, bias = random_mixture(0, 3, 2, 5)
    target = random_targets(0, 5)
    assert pruned_mixture_nll(components, log_weights, weight, bias, target).item() == 0
    assert pruned_mixture_log_probs(components, log_weights, weight, bias).shape == (0, 5)
