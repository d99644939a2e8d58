import pytest
import torch
from torch import nn

from fairseq_doc.ops.gated_cell import GatedGradients, GatedSteps, lstm_cell

from ..conftest import assert_close, gradients, leaves

T, R, D = 4, 3, 5


def random(*shape):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.double
    )


def test_the_plain_cell_is_torchs():
    cell = nn.LSTMCell(4, D).double()
    x, h, c = random(R, 4), random(R, D), random(R, D)
    gates = x @ cell.weight_ih.t() + cell.bias_ih + h @ cell.weight_hh.t() + cell.bias_hh
    assert_close(lstm_cell(gates, c), cell(x, (h, c)))


def run_steps(gates, cell, hiddens):
    """Buffers after all steps: i, f, g, o; c_0 .. c_T; h_1 .. h_T in ``hiddens``."""
    gates, cells = gates.clone(), gates.new_empty(T + 1, R, D)
    cells[0] = cell
    steps = GatedSteps(gates, cells, hiddens)
    returned = [steps.step(t, gates[t]) for t in range(T)]
    assert_close(torch.stack(returned), hiddens)
    return gates, cells


@pytest.mark.parametrize("columns", [slice(None), slice(D, None)], ids=["dense", "a wider buffer"])
def test_steps_are_the_plain_cells(columns):
    """The gates of a recurrence depend on the step before; here they are given."""
    gates, cell = random(T, R, 4 * D), random(R, D)
    hiddens = torch.zeros(T, R, 2 * D, dtype=torch.double)[:, :, columns][:, :, :D]
    activated, cells = run_steps(gates, cell, hiddens)
    for t in range(T):
        h, cell = lstm_cell(gates[t], cell)
        assert_close(hiddens[t], h)
        assert_close(cells[t + 1], cell)
        i, f, g, o = gates[t].chunk(4, 1)
        assert_close(activated[t], torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1))


def test_gradients_are_autograds():
    gates, cell = leaves([random(T, R, 4 * D), random(R, D)])
    d_hiddens, d_last = random(T, R, D) + 0.5, random(R, D) - 0.5
    loss, c = 0.0, cell
    for t in range(T):
        h, c = lstm_cell(gates[t], c)
        loss = loss + (h * d_hiddens[t]).sum()
    expected = gradients(loss + (c * d_last).sum(), [gates, cell])
    with torch.no_grad():
        activated, cells = run_steps(gates, cell, torch.empty(T, R, D, dtype=torch.double))
        found = GatedGradients(activated, cells, d_last)
        for t in reversed(range(T)):
            d_z = found.step(t, d_hiddens[t])
            assert_close(d_z, expected[0][t])
    assert_close(found.d_z, expected[0])
    assert_close(found.d_cell, expected[1])
