import math

import pytest
import torch

from fairseq_doc.modules.dropout import (
    dropout_mask,
    embedded_dropout,
    keep_mask,
    locked_dropout,
    weight_dropout,
)

from ..conftest import assert_close, drop_factors
from ..device import DEVICE


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def within_five_deviations(kept, n, probability):
    return abs(kept - n * probability) < 5 * math.sqrt(n * probability * (1 - probability))


@pytest.mark.parametrize("p", [0.1, 0.225, 0.4, 0.5, 0.65, 0.99])
def test_keep_mask_keeps_with_its_probability_and_scales_by_its_inverse(p):
    n = 2**20
    mask, scale = keep_mask((2**10, 2**10), p, DEVICE)
    assert abs(1 / scale - (1 - p)) <= 2**-17  # p rounded to a 65,536th
    assert within_five_deviations(mask.sum().item(), n, 1 / scale)


@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_entries_of_one_draw_are_independent(distance):
    mask, scale = keep_mask((2**20,), 0.3, DEVICE)
    both = (mask[:-distance] & mask[distance:]).sum().item()
    assert within_five_deviations(both, 2**20 - distance, scale**-2)


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.5, 0.99999, 0.999999, math.nextafter(1, 0)])
def test_every_rate_below_one_can_be_used(p):
    dropped = locked_dropout(torch.ones(3, 4), p, True)
    assert torch.isfinite(dropped).all()


@pytest.mark.parametrize("p, training", [(0.5, False), (0.0, True), (0.0, False)])
def test_nothing_is_dropped_in_evaluation_or_at_rate_zero(p, training):
    x = torch.randn(8, 4)
    assert torch.equal(locked_dropout(x, p, training), x)
    assert torch.equal(embedded_dropout(x, torch.arange(8), p, training), x)
    assert dropout_mask((2,), p, training, x) is None


def test_locked_mask_is_shared_over_time_and_drawn_anew_each_call():
    x = torch.ones(5, 6, 7)
    first, second = (locked_dropout(x, 0.5, True) for _ in range(2))
    assert torch.equal(first, first[:1].expand_as(first))
    assert not torch.equal(first[0, 0], first[0, 1])
    assert not torch.equal(first, second)


def test_embedded_dropout_drops_whole_words_at_all_their_places():
    embedding = torch.rand(50, 6, dtype=torch.float64) + 1  # no zeros
    before, tokens = embedding.clone(), torch.randint(50, (30, 20))
    rows = embedded_dropout(embedding, tokens, 0.25, True)
    factors = drop_factors(rows, embedding[tokens], 0.25)  # (30, 20, 6)
    assert all(len(factors[tokens == word].unique()) == 1 for word in tokens.unique())
    assert torch.equal(embedding, before)


def test_weight_dropout_and_its_gradient():
    """Each entry is dropped by itself."""
    weight = torch.randn(400, 300, dtype=torch.float64, requires_grad=True)
    before, upstream = weight.detach().clone(), torch.randn(400, 300, dtype=torch.float64)
    out = weight_dropout(weight, 0.25)
    factors = drop_factors(out.detach(), before, 0.25)
    assert within_five_deviations((out != 0).sum().item(), out.numel(), 0.75)
    for shared in (0, 1):  # no row and no column goes as one
        assert factors.std(shared).min() > 0
    out.backward(upstream)
    assert_close(weight.grad, upstream * factors, atol=1e-8)
    assert torch.equal(weight, before)
