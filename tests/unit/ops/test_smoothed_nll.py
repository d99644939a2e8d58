"""What is special to the cross entropy against smoothed labels."""

import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops import reference
from fairseq_doc.ops.mixture_nll import mixture_nll, smoothed_mixture_nll

from ..conftest import (
    assert_close,
    gradients,
    leaves,
    mixtures_with_targets,
    naive_nll,
    random_mixture,
    random_targets,
)

FORMS = {"plain": reference.smoothed_mixture_nll, "chunked": smoothed_mixture_nll}
forms = pytest.mark.parametrize("form", FORMS)


@forms
@given(case=mixtures_with_targets(least_words=2), smoothing=st.sampled_from([0.0, 0.5, 0.99]))
def test_loss_and_nll_are_the_truth(form, case, smoothing):
    mixture, target, ignore_index, size = case
    settings = {"chunk_bytes": size} if form == "chunked" else {}
    inputs, exact = leaves(mixture), leaves(mixture)
    loss, nll = FORMS[form](*inputs, target, smoothing, ignore_index, **settings)
    zero = exact[0].sum() * 0
    expected = sum(naive_nll(*exact, target, ignore_index, smoothing), zero)
    assert_close((loss, nll), (expected, sum(naive_nll(*mixture, target, ignore_index), zero)))
    assert loss.shape == nll.shape == () and not nll.requires_grad
    inputs, exact = ([x for x in xs if x is not None] for xs in (inputs, exact))
    assert_close(gradients(3 * loss, inputs), gradients(3 * expected, exact))


@forms
def test_by_hand(form):
    """Softmaxes (1/4, 3/4) and (3/4, 1/4) weighted .2 and .8: P = (.65, .35). With smoothing .1 and
    target 0 the labels are (.9, .1)."""
    components = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    log_weights = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    loss, nll = FORMS[form](components, log_weights, weight, None, torch.tensor([0]), 0.1)
    assert_close(loss.item(), -0.9 * math.log(0.65) - 0.1 * math.log(0.35))
    assert_close(nll.item(), -math.log(0.65))


@forms
def test_without_smoothing_it_is_the_nll(form):
    inputs, target = leaves(random_mixture(7, 3, 4, 6)), random_targets(7, 6, ignored=[2])
    loss, nll = FORMS[form](*inputs, target, 0.0)
    expected = mixture_nll(*inputs, target)
    assert_close((loss, nll), (expected, expected))
    assert_close(gradients(loss, inputs), gradients(expected, inputs))


@forms
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_of_one_component_it_is_fairseqs(form, smoothing):
    components, _, weight, bias = random_mixture(7, 1, 4, 6)
    inputs = leaves([components, weight, bias])
    target = random_targets(7, 6)
    target[[1, 4]] = 5  # ignored
    log_probs = (inputs[0][:, 0] @ inputs[1].t() + inputs[2]).log_softmax(1)
    expected = label_smoothed_nll_loss(log_probs, target, smoothing, ignore_index=5)
    found = FORMS[form](inputs[0], components.new_zeros(7, 1), *inputs[1:], target, smoothing, 5)
    assert_close(found, expected)
    assert_close(gradients(found[0], inputs), gradients(expected[0], inputs))


# Words whose probability is too small for float32: the loss takes another way


def largest_error(mixture, target, **settings):
    """Of the loss and each gradient, in the Euclidean norm; and the loss's own."""
    inputs, exact = leaves(mixture), leaves(x.double() for x in mixture)
    loss, nll = smoothed_mixture_nll(*inputs, target, 0.1, **settings)
    expected, exact_nll = reference.smoothed_mixture_nll(*exact, target, 0.1)
    assert_close(nll, exact_nll, rtol=0.01)
    found, right = [loss, *gradients(loss, inputs)], [expected, *gradients(expected, exact)]
    errors = [((x - y).norm() / y.norm()).item() for x, y in zip(found, right, strict=True)]
    return max(errors), errors[0]


@pytest.mark.parametrize("gap", [60.0, 95.0, 200.0, 1e4])
def test_a_word_whose_probability_is_too_small_for_float32(gap):
    """Words 300 .. 302 lie ``gap`` or more below the others in both components: their probability,
    e^-200 say, is no float32, yet they are 3 in 300 labels. The other chunk is ordinary. The error
    that remains is the rounding of logits as large as the gap, which the gradients consist of."""
    mixture = random_mixture(6, 2, 8, 303, dtype=torch.float32, scale=0.5)
    mixture[0][:3, :, 0] = gap
    mixture[0][3:, :, 0] = 0.0
    mixture[2][:, 0] = 0.0
    mixture[2][300:, 0] = torch.tensor([-1.0, -1.0, -1.5])
    target = torch.tensor([5, 300, 302, 5, 300, 302])
    largest, of_loss = largest_error(mixture, target, chunk_bytes=4 * 2 * 303 * 3)
    assert of_loss < 1e-6 and largest < 1e-6 + 1e-7 * gap


def test_bfloat16_of_an_underflowing_word():
    """Word 3 has logit -200, without rounding, in every component."""
    mixture = random_mixture(6, 2, 8, 40, dtype=torch.float32, scale=0.5)
    mixture[0][..., 0], mixture[2][:, 0], mixture[2][3], mixture[3][3] = 200.0, 0.0, 0.0, 0.0
    mixture[2][3, 0] = -1.0
    mixture = [x.bfloat16() for x in mixture]
    assert largest_error(mixture, random_targets(6, 40))[0] < 0.01


@forms
@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_smoothing_outside_its_range(form, smoothing):
    with pytest.raises(FairseqDocError, match="--label-smoothing .*got"):
        FORMS[form](*random_mixture(2, 1, 2, 3), random_targets(2, 3), smoothing)
