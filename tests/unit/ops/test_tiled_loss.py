"""Tiles of rows and words give the loss and gradients of chunks, and of the definition."""

import pytest
import torch

from fairseq_doc.ops import matmul, mixture_chunks, reference, tiled_loss
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_nll import fused_mixture_nll, fused_smoothed_mixture_nll

from ..conftest import assert_close, gradients, leaves, random_mixture, random_targets
from .conftest import loss_and_gradients

N, J, D, V = 11, 3, 4, 23
ALWAYS, NEVER = 0, 2**60

pytestmark = pytest.mark.cpu_only("tiles of rows and words")


@pytest.fixture(params=[(1, 1), (5, 4), (7, 23), (100, 9)], ids=str)
def tiles(request, monkeypatch):
    """(rows, words) of a tile."""
    rows, words = request.param
    monkeypatch.setattr(tiled_loss, "TILE_ROWS", rows)
    monkeypatch.setattr(tiled_loss, "TILE_BYTES", 8 * rows * words)


@pytest.fixture
def count_runs(monkeypatch):
    """Results of the loss computed in tiles; None among them: refused."""
    results, run = [], tiled_loss.TiledLoss.run
    monkeypatch.setattr(
        tiled_loss.TiledLoss, "run", lambda self: results.append(run(self)) or results[-1]
    )
    return results


@pytest.fixture
def run(monkeypatch):
    """The loss and its gradients, in tiles of matrices from so many bytes on."""

    def run(bytes_, mixture, target, form=fused_mixture_nll, **settings):
        monkeypatch.setattr(mixture_chunks, "TILED_BYTES", bytes_)
        return loss_and_gradients(form, mixture, target, **settings)

    return run


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("ignored", [[], [2, 5], range(N)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_tiles_give_the_definition(run, tiles, count_runs, reduction, ignored, with_bias):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V, ignored=list(ignored))
    if not with_bias:
        mixture[3] = None
    found = run(ALWAYS, mixture, target, reduction=reduction)
    assert_close(found, run(ALWAYS, mixture, target, reference.mixture_nll, reduction=reduction))
    assert count_runs and None not in count_runs


@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("sampling", [0.2, 1.5])
def test_sampled_gradients_have_the_same_draw(run, tiles, reduction, sampling):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V, ignored=[4])
    settings = {"reduction": reduction, "gradient_sampling": sampling}
    found, expected = (run(bytes_, mixture, target, **settings) for bytes_ in (ALWAYS, NEVER))
    assert_close(found, expected)
    assert torch.equal(found[1][0] == 0, expected[1][0] == 0)


@pytest.mark.parametrize("sampling", [0.0, 0.2])
def test_bfloat16(run, monkeypatch, tiles, sampling):
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)
    mixture = random_mixture(N, J, D, V, dtype=torch.float32)
    target = random_targets(N, V, ignored=[4])
    settings = {"gradient_sampling": sampling}
    loss, found = run(ALWAYS, mixture, target, precision=torch.bfloat16, **settings)
    truth_loss, truth = run(NEVER, mixture, target, **settings)
    assert loss.dtype == torch.float32
    assert_close(loss, truth_loss, rtol=1e-2)
    for x, y in zip(found, truth, strict=True):
        assert 0 < (x - y).norm() / y.norm() < 0.02


@pytest.mark.parametrize("shift", [100.0, -100.0])
@pytest.mark.parametrize("sampling", [0.0, 0.2])
def test_far_logits_are_left_to_chunks(run, tiles, count_runs, shift, sampling):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V)
    shifted = [*mixture[:3], mixture[3] + shift]
    found = run(ALWAYS, shifted, target, gradient_sampling=sampling)
    assert count_runs == [None]
    assert_close(found, run(NEVER, mixture, target, gradient_sampling=sampling))


@pytest.mark.parametrize("asking", [[], [0], [1], [2], [3]])
def test_gradients_go_only_to_inputs_that_require_them(monkeypatch, tiles, asking):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V, ignored=[0])
    monkeypatch.setattr(mixture_chunks, "TILED_BYTES", ALWAYS)
    inputs = [x.clone().requires_grad_(n in asking) for n, x in enumerate(mixture)]
    exact = leaves(mixture)
    loss = fused_mixture_nll(Mixture(*inputs), target)
    truth = reference.mixture_nll(Mixture(*exact), target)
    assert_close(loss, truth)
    for number in asking:
        assert_close(gradients(loss, [inputs[number]])[0], gradients(truth, exact)[number])


def test_smoothed_labels_and_a_given_size_of_chunks_take_none(run, count_runs):
    mixture, target = random_mixture(N, J, D, V), random_targets(N, V)
    run(ALWAYS, mixture, target, chunk_bytes=1000)
    fused_smoothed_mixture_nll(Mixture(*leaves(mixture)), target, 0.1)
    assert not count_runs
