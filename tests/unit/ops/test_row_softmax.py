"""Softmaxes of rows of logits against torch's in float64."""

import pytest
import torch

from fairseq_doc.ops import mixture_chunks, reference, row_softmax
from fairseq_doc.ops.matmul import BACKENDS
from fairseq_doc.ops.mixture_nll import fused_mixture_nll
from fairseq_doc.ops.row_softmax import are_moderate, exp_, softmax_

from ..conftest import assert_close, random_mixture, random_targets
from .conftest import loss_and_gradients

R, V = 7, 13
SHIFTS = [0.0, 30.0, -30.0, 200.0, -200.0]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
# of numbers near one, from a rounding at the end
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(params=[1, 3, 100])
def rows_of_a_block(request, monkeypatch):
    monkeypatch.setattr(mixture_chunks, "CPU_BLOCK_BYTES", 4 * V * request.param)


def logits_and_targets(dtype, shift=0.0):
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(R, V, generator=rng, dtype=torch.float64) + shift
    return logits.to(dtype), torch.randint(V, (R, 1), generator=rng)


def minus_one(softmax, target):
    return softmax.scatter_add(1, target, torch.full(target.shape, -1.0, dtype=softmax.dtype))


only_exp = pytest.mark.cpu_only("exp without the maximum")


@only_exp
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [0.0, 30.0, -30.0])
@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("library", BACKENDS)
def test_exp_divided_by_its_sum_is_the_softmax(
    rows_of_a_block, monkeypatch, dtype, shift, write, library
):
    monkeypatch.setattr(row_softmax, "backend", lambda: library)
    logits, target = logits_and_targets(dtype, shift)
    rows, exact = logits.clone(), logits.double()
    sums, log_softmax = exp_(rows, target, write)
    assert are_moderate(sums) and sums.dtype != torch.bfloat16
    of_rounding = 2**-8 if write and dtype == torch.bfloat16 else 1e-5
    assert_close(sums.double(), exact.exp().sum(1, keepdim=True), rtol=of_rounding)
    wanted = exact.log_softmax(1).gather(1, target)
    assert_close(log_softmax.double(), wanted, rtol=1e-4, atol=1e-4)
    if write:
        found = rows.double() / sums.double()
        wanted = minus_one(exact.softmax(1), target)
        assert_close(found, wanted, rtol=0, atol=TOLERANCE[dtype])
        # The target's entry is not rounded: its error would be most of the row's.
        assert_close(found.gather(1, target), wanted.gather(1, target), rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(rows, logits)


@only_exp
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("logit", [200.0, -200.0, torch.inf, torch.nan])
def test_a_row_out_of_range_is_noticed(dtype, logit):
    logits, target = logits_and_targets(dtype)
    logits[2] = logit
    assert not are_moderate(exp_(logits, target, write=False)[0])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("subtract", [False, True])
def test_softmax(rows_of_a_block, dtype, shift, subtract):
    logits, target = logits_and_targets(dtype, shift)
    rows, exact = logits.clone(), logits.double()
    log_softmax = softmax_(rows, target, subtract)
    wanted = exact.softmax(1)
    wanted = minus_one(wanted, target) if subtract else wanted
    assert_close(rows.double(), wanted, rtol=0, atol=TOLERANCE[dtype])
    exact_log_softmax = exact.log_softmax(1).gather(1, target)
    assert_close(log_softmax.double(), exact_log_softmax, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sampling", [0.0, 0.5])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_mixture_of_logits_far_from_zero(reduction, shift, sampling):
    """A number added to all logits changes nothing, whether exp(l) can be computed or not, and
    whether it can be for all chunks or for the first ones only."""
    mixture, target = random_mixture(9, 3, 4, V), random_targets(9, V)
    mixture[0][5:, :, 0] = 1.0  # the components of the last tokens
    mixture[2][:, 0] += shift
    inputs, settings = (mixture, target), {"reduction": reduction}
    loss, exact = loss_and_gradients(reference.mixture_nll, *inputs, **settings)
    settings |= {"chunk_bytes": 4 * 3 * V * 2, "gradient_sampling": sampling}
    found_loss, found = loss_and_gradients(fused_mixture_nll, *inputs, **settings)
    assert_close(found_loss, loss)
    if sampling:  # against the same draw, by softmaxes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fairseq_doc.ops.chunked_loss.are_moderate", lambda sums: False)
            exact = loss_and_gradients(fused_mixture_nll, *inputs, **settings)[1]
    assert_close(found, exact)
