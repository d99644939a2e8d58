"""The gated recurrence against a loop of plain cells, in float64."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_doc.ops import matmul, mogrifier
from fairseq_doc.ops.gated_cell import KINDS
from fairseq_doc.ops.mogrifier import Round

from . import conftest
from .conftest import mogrifier_reference

own = mogrifier.mogrifier


class Case(conftest.Case):
    """Numbers for T steps, R rows, an input of width E, a layer of width D, r rounds of rank k
    (None: full matrices). The state and the recurrent mask drop some numbers and scale others."""

    def __init__(self, t=4, r=3, e=5, d=4, rounds=5, rank=2, kind="untied", **settings):
        parts = 3 if kind == "tied" else 4
        shapes = [(t, r, e), (r, d), (r, d), (parts * d, e), (parts * d, d), (parts * d,)]
        for number in range(rounds):
            gated, source = ((e, d), (d, e))[number % 2]
            matrix = [(gated, source)] if rank is None else [(gated, rank), (rank, source)]
            shapes += [*matrix, (gated,)]
        super().__init__(shapes, **settings)
        self.a_round = 2 if rank is None else 3  # tensors
        self.kind = kind
        numbers = torch.arange(r * d).view(r, d)
        self.masks = {"state_mask": (numbers % 3) * 0.75, "recurrent_mask": (numbers % 5) * 0.5}

    def run(self, form, tensors, **settings):
        """[output, last cell]."""
        rest = tensors[6:]
        groups = [rest[n : n + self.a_round] for n in range(0, len(rest), self.a_round)]
        rounds = [Round(tuple(matrices), bias) for *matrices, bias in groups]
        return list(form(*tensors[:6], rounds, self.kind, **settings))


@pytest.fixture(params=["torch", "package"])
def each_product(request, monkeypatch):
    """Small products, of torch, and large ones have other kernels."""
    if request.param == "package":
        monkeypatch.setattr(matmul, "LEAST_ONEDNN", 0)
        monkeypatch.setattr(mogrifier, "LEAST_LINEAR", 0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    t=st.integers(1, 5) | st.just(18),  # which pack the weights
    r=st.integers(1, 3), e=st.integers(1, 4), d=st.integers(1, 4), rounds=st.integers(1, 6),
    rank=st.none() | st.integers(1, 5), kind=st.sampled_from(KINDS), seed=st.integers(0, 99),
    dropped=st.sets(st.sampled_from(["state_mask", "recurrent_mask"])),
)  # fmt: skip
def test_values_and_gradients_are_the_plain_forms(
    each_product, t, r, e, d, rounds, rank, kind, seed, dropped
):
    case = Case(t, r, e, d, rounds, rank, kind, seed=seed)
    masks = {name: case.masks[name].double() for name in dropped}
    case.check(own, mogrifier_reference, **masks)


def test_an_input_without_a_gradient():
    Case(rounds=2).check_partial_gradients(own, mogrifier_reference)


def test_a_step_by_hand():
    """Of one number each: two rounds, then the plain cell, whose output and c nothing gates."""
    x, h, c, of_x, of_h, bias = 0.7, -0.4, 0.3, 0.5, -1.1, 0.2
    q, q_bias, r, r_bias = 1.3, 0.1, -0.8, 0.6
    weights = [torch.full((4, 1), of_x), torch.full((4, 1), of_h), torch.full((4,), bias)]
    rounds = [
        Round((torch.tensor([[matrix]]),), torch.tensor([matrix_bias]))
        for matrix, matrix_bias in ((q, q_bias), (r, r_bias))
    ]
    state = [torch.tensor([[[x]]]), torch.tensor([[h]]), torch.tensor([[c]])]

    def sigmoid(z):
        return 1 / (1 + math.exp(-z))

    x = 2 * sigmoid(q * h + q_bias) * x
    h = 2 * sigmoid(r * x + r_bias) * h
    z = of_x * x + of_h * h + bias
    c = sigmoid(z) * c + sigmoid(z) * math.tanh(z)
    for form in (own, mogrifier_reference):
        output, cell = form(*state, *weights, rounds)
        assert cell.item() == pytest.approx(c, rel=1e-6)
        assert output.item() == pytest.approx(sigmoid(z) * math.tanh(c), rel=1e-6)


@pytest.mark.parametrize("time", [6, 20])
def test_lower_precisions(each_product, kernel, time):
    case = Case(t=time, r=4, e=20, d=24, rank=6, scale=0.3, dtype=torch.float32)
    case.check_precisions(own, mogrifier_reference)
