"""The plain form by hand and in its errors; test_mixture_nll.py compares it with a loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops import reference

from ..conftest import assert_close, naive_probs, random_mixture

sizes = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 7))


def two_components():
    """Logits (0, log 3) and (0, -log 3): softmaxes (1/4, 3/4) and (3/4, 1/4); weights .2 and .8."""
    components = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    return components, torch.tensor([[0.2, 0.8]], dtype=torch.float64).log(), weight, None


def test_probabilities_by_hand():
    expected = [[0.2 * 0.25 + 0.8 * 0.75, 0.2 * 0.75 + 0.8 * 0.25]]
    assert_close(reference.mixture_log_probs(*two_components()).exp().tolist(), expected)


def test_losses_by_hand():
    components, log_weights, weight, bias = two_components()
    three = (components.expand(3, 2, 1), log_weights.expand(3, 2), weight, bias)
    target = torch.tensor([0, -100, 1])
    losses = [-math.log(0.65), 0.0, -math.log(0.35)]
    assert_close(reference.mixture_nll(*three, target, reduction="none").tolist(), losses)
    assert_close(reference.mixture_nll(*three, target, reduction="sum").item(), sum(losses))
    assert_close(reference.mixture_nll(*three, target, reduction="mean").item(), sum(losses) / 2)


@given(sizes, st.booleans(), st.integers(0, 99))
def test_log_probs_are_those_of_the_naive_loop(sizes, with_bias, seed):
    mixture = random_mixture(*sizes, seed=seed)
    mixture[3] = mixture[3] if with_bias else None
    assert_close(reference.mixture_log_probs(*mixture), naive_probs(*mixture).log())


def test_mean_over_no_token_is_zero():
    mixture = random_mixture(2, 2, 3, 4)
    assert reference.mixture_nll(*mixture, torch.tensor([-100, -100]), reduction="mean") == 0


def test_16_bit_inputs_give_float32():
    mixture = random_mixture(3, 2, 4, 5, dtype=torch.bfloat16)
    assert reference.mixture_log_probs(*mixture).dtype == torch.float32


@pytest.mark.parametrize("reduction", ["average", "", None])
def test_unknown_reduction(reduction):
    with pytest.raises(FairseqDocError, match="none, sum or mean"):
        reference.mixture_nll(*random_mixture(2, 2, 3, 4), torch.tensor([0, 1]), -100, reduction)


@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("components", (2, 3), "component vectors"),
        ("log_weights", (2, 4), "component vectors"),
        ("weight", (5, 7), "output matrix"),
        ("weight", (4,), "output matrix"),
        ("bias", (4,), "bias"),
        ("target", (3,), "targets"),
    ],
)
def test_shapes_that_are_not_of_one_mixture(name, shape, message):
    shapes = {
        "components": (2, 3, 4),
        "log_weights": (2, 3),
        "weight": (5, 4),
        "bias": (5,),
        "target": (2,),
    }
    reference.check_shapes(**{key: torch.empty(value) for key, value in shapes.items()})
    with pytest.raises(FairseqDocError, match=message):
        shapes[name] = shape
        reference.check_shapes(**{key: torch.empty(value) for key, value in shapes.items()})
