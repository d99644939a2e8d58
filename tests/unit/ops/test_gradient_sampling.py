"""Sampled gradients of the mixture's NLL: unbiased, with the variance of their derivation, and the
same draw whatever the chunks are."""

import pytest
import torch

from fairseq_doc.ops import gradient_sampling as module
from fairseq_doc.ops import mixture_nll as operation
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_nll import fused_mixture_nll

from ..conftest import assert_close, random_mixture, random_targets
from .conftest import loss_and_gradients

N, J, D, V = 4, 5, 3, 7
COPIES, CALLS = 100, 40  # of the tokens in a call, each with a draw of its own

pytestmark = pytest.mark.cpu_only("sampled gradients")

TARGET = random_targets(N, V)


def mixture_of(gap):
    """log pi of all components but the first lie ``gap`` below it, if given."""
    components, log_weights, weight, bias = random_mixture(N, J, D, V)
    if gap is not None:
        log_weights = torch.tensor([0.0, *[-gap] * (J - 1)]).double().repeat(N, 1)
    return components, log_weights, weight, bias


def sampled(mixture, tau, seed=0, target=TARGET, **settings):
    settings["gradient_sampling"] = tau
    return loss_and_gradients(fused_mixture_nll, mixture, target, seed, **settings)


def repeated(mixture):
    components, log_weights, weight, bias = mixture
    return components.repeat(COPIES, 1, 1), log_weights.repeat(COPIES, 1), weight, bias


@pytest.mark.parametrize("gap", [None, 0, 50, 720])
@pytest.mark.parametrize("tau", [0.05, 0.5, 1, 3])
def test_the_mean_over_draws_is_the_exact_gradient(gap, tau):
    mixture = mixture_of(gap)
    calls, spread = [], 0.0
    for seed in range(CALLS):
        found = sampled(repeated(mixture), tau, seed, target=TARGET.repeat(COPIES))[1]
        of_tokens = [x.view(COPIES, N, J, -1).mean(0) for x in found[:2]]
        calls.append([*of_tokens, *(x / COPIES for x in found[2:])])
    for *draws, truth in zip(*calls, sampled(mixture, 0)[1], strict=True):
        draws = torch.stack(draws)
        error = draws.std(0) / CALLS**0.5
        assert ((draws.mean(0) - truth.view_as(error)).abs() <= 5 * error + 1e-12).all()
        spread += error.sum()
    assert spread > 0 or gap is not None or tau < 0.5


@pytest.mark.parametrize("tau", [0.1, 0.4, 2])
def test_a_row_is_dropped_or_has_the_factor_of_the_derivation(tau):
    """So its variance is r (tau - r)."""
    mixture = random_mixture(N, J, D, V)
    exact, d_log_weights, *_ = sampled(mixture, 0)[1]
    r = -d_log_weights  # (N, J)
    exact = exact / r.unsqueeze(2)  # (N, J, d): e W
    kept = torch.zeros(N, J)
    for seed in range(CALLS):
        found = sampled(repeated(mixture), tau, seed, target=TARGET.repeat(COPIES))[1][0]
        factor = found.view(COPIES, N, J, D) / exact
        taken = factor[..., :1] != 0
        f = torch.where(taken, r.clamp(min=tau).unsqueeze(2), 0.0)
        assert_close(factor, f.expand_as(factor))
        kept += taken.sum(0).squeeze(2)
    share, draws = (r / tau).clamp(max=1), CALLS * COPIES
    error = (share * (1 - share) / draws).sqrt()
    assert ((kept / draws - share).abs() <= 4.5 * error).all()


def test_nothing_is_drawn_without_sampling_or_without_a_gradient():
    mixture = random_mixture(N, J, D, V)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    sampled(mixture, 0)
    fused_mixture_nll(Mixture(*mixture), TARGET, gradient_sampling=0.5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("ignored", [[], [1], [0, 1, 2, 3]])
def test_the_loss_and_the_gradient_of_the_weights_are_exact(reduction, ignored):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V, ignored=ignored)
    loss, exact = sampled(mixture, 0, reduction=reduction, target=target)
    found_loss, found = sampled(mixture, 0.3, reduction=reduction, target=target)
    assert torch.equal(found_loss, loss) and torch.equal(found[1], exact[1])
    assert not found[0][ignored].any()


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("ignored", [[], [2, 5]])
def test_the_draw_does_not_depend_on_the_chunks(reduction, ignored, monkeypatch):
    """Nor on how many rows are multiplied at once, or how their number is rounded up."""
    n, j, v = 23, 4, 11
    mixture, target = random_mixture(n, j, D, v), random_targets(n, v, ignored=ignored)
    _, expected = sampled(mixture, 0.5, reduction=reduction, target=target)
    for multiple in (1, 3, 64):
        monkeypatch.setattr(module, "padded_size", lambda rows, m=multiple: -(-rows // m) * m)
        for rows in (1, 5, 40, 1000):
            settings = {"reduction": reduction, "chunk_bytes": 4 * v * rows}
            _, found = sampled(mixture, 0.5, target=target, **settings)
            assert torch.equal(found[0] == 0, expected[0] == 0)
            assert_close(found, expected)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_lower_precisions_make_the_same_draw(precision):
    """A posterior near a threshold of its draw may fall on its other side; here none does."""
    mixture = random_mixture(40, J, 16, 50)
    target = random_targets(40, 50)
    _, truth = sampled(mixture, 0.2, target=target)
    _, found = sampled([x.float() for x in mixture], 0.2, target=target, precision=precision)
    for x, y in zip(found, truth, strict=True):
        assert x.dtype == torch.float32
        assert (x - y).norm() <= (0.02 if precision == torch.bfloat16 else 1e-5) * y.norm()


def test_elsewhere_than_on_a_cpu_gradients_are_exact(monkeypatch, caplog):
    mixture = random_mixture(N, J, D, V)
    module._warn_of_exact_gradients.cache_clear()
    for place in (module, operation):
        monkeypatch.setattr(place, "is_on_cpu", lambda tensor: False)
    for _ in range(2):
        assert_close(sampled(mixture, 0.5), sampled(mixture, 0))
    assert caplog.text.count("gradients are exact") == 1
