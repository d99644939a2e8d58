import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.temperature import GRID, at_temperatures, check_temperatures

from ..conftest import assert_close


@given(
    n=st.integers(1, 5), v=st.integers(1, 6), seed=st.integers(0, 99),
    temperatures=st.lists(st.floats(0.3, 3), min_size=1, max_size=3),
)  # fmt: skip
def test_it_is_the_power_renormalised(n, v, seed, temperatures):
    rng = torch.Generator().manual_seed(seed)
    probs = torch.randn(n, v, generator=rng).double().softmax(-1)
    target = torch.randint(v, (n,), generator=rng)
    found = at_temperatures(probs.log(), target, [*temperatures, 1.0])
    for row, temperature in zip(found, [*temperatures, 1.0], strict=True):
        powers = probs ** (1 / temperature)
        expected = powers.gather(1, target[:, None])[:, 0] / powers.sum(1)
        assert_close(row.exp(), expected)


def test_the_published_grid():
    """Factors of the logits from 1.06 down to .8."""
    assert_close([1 / t for t in GRID], [1.06 - 0.02 * n for n in range(14)])
    assert 1.0 in GRID


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperatures_that_cannot_be(temperature):
    check_temperatures([0.5, 2.0])
    with pytest.raises(FairseqDocError, match=f"expected .01 to 100; got {temperature}"):
        check_temperatures([1.0, temperature])
