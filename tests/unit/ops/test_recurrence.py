"""The recurrences against a loop of plain cells, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairseq_doc.ops.gated_cell import KINDS
from fairseq_doc.ops.recurrence import CELLS, recurrence

from ..conftest import assert_close
from ..device import on_device
from . import conftest
from .conftest import each_cell, recurrence_reference


class Case(conftest.Case):
    """Numbers for one cell: inputs, state, matrices and biases, and masks."""

    def __init__(self, cell, t=4, r=3, d=5, depth=1, masks=(), **settings):
        self.cell, self.depth = cell, depth
        wide = cell.matmul_parts * d
        shapes = [(t, r, wide), *[(r, d)] * (1 + cell.has_cell_state)]
        shapes += [(wide, d)] * depth + [(wide,)] * (depth - 1)
        super().__init__(shapes, **settings)
        self.masks = {name: torch.rand(r, d, generator=self.rng).round() * 2 for name in masks}

    def run(self, form, tensors, **settings):
        """[output, last cell state if there is one]."""
        inputs, hidden, *rest = tensors
        cell_state = rest.pop(0) if self.cell.has_cell_state else None
        matrices, biases = rest[: self.depth], rest[self.depth :]
        if form is recurrence:
            inputs = self.cell.input_order(inputs.movedim(2, 0)).movedim(0, 2)
            matrices = [self.cell.state_order(matrix) for matrix in matrices]
        masks = {name: mask.to(inputs.dtype) for name, mask in self.masks.items()}
        state = inputs, hidden, cell_state
        result = form(self.cell, *state, matrices, biases, **masks, **settings)
        return [x for x in result if x is not None]


@each_cell
@given(
    t=st.integers(1, 4), r=st.integers(1, 3), d=st.integers(1, 4), depth=st.integers(1, 3),
    seed=st.integers(0, 99),
    masks=st.sets(st.sampled_from(["state_mask", "recurrent_mask"])),
)  # fmt: skip
def test_values_and_gradients_are_the_plain_forms(cell, t, r, d, depth, seed, masks):
    if not cell.takes_recurrent_mask:
        masks -= {"recurrent_mask"}
    depth = depth if cell.name == "rhn" else 1
    case = Case(cell, t, r, d, depth, sorted(masks), seed=seed)
    case.check(recurrence, recurrence_reference)


@each_cell
def test_an_input_without_a_gradient(cell):
    Case(cell).check_partial_gradients(recurrence, recurrence_reference)


def test_the_untied_lstm_is_torchs_layer():
    layer = on_device(nn.LSTM(4, 5).double())
    x, h, c = (torch.randn(*shape).double() for shape in ((6, 3, 4), (1, 3, 5), (1, 3, 5)))
    w = dict(layer.named_parameters())
    u = x @ w["weight_ih_l0"].t() + w["bias_ih_l0"] + w["bias_hh_l0"]
    output, cell = recurrence(CELLS["lstm"](), u, h[0], c[0], [w["weight_hh_l0"]])
    expected, (_, last) = layer(x, (h, c))
    assert_close([output, cell], [expected, last[0]])


@pytest.mark.parametrize("gates", KINDS)
def test_a_capped_cell_stays_between_minus_one_and_one(gates):
    """c = f c + i g with f + i at most 1; an untied cell adds up."""
    u = torch.full((30, 1, (3 if gates == "tied" else 4) * 2), 5.0)
    zeros, weight = torch.zeros(1, 2), torch.zeros(u.size(2), 2)
    _, cell = recurrence(CELLS["lstm"](gates), u, zeros, zeros, [weight])
    assert (cell.abs().max() <= 1) == (gates != "untied")


@each_cell
def test_lower_precisions(kernel, cell):
    sizes = {"t": 12, "r": 4, "d": 24, "depth": 3 if cell.name == "rhn" else 1, "scale": 0.3}
    Case(cell, dtype=torch.float32, **sizes).check_precisions(recurrence, recurrence_reference)
