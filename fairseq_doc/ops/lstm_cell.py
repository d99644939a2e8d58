"""One step of an LSTM, and the gradients of its gates: what the recurrences in ``ops/`` share.

Axes: T time, R rows, D width. The gates are in torch's order: input i, forget f, cell g, output o.

    c_t = f c_{t-1} + i g,   h_t = o tanh(c_t),   i, f, o = sigmoid(z), g = tanh(z) of z's quarters

    d c_t = d h_t o (1 - tanh(c_t)^2) + d c_{t+1} f_{t+1}
    d z_t = (d c g i(1 - i),  d c c_{t-1} f(1 - f),  d c i (1 - g^2),  d h tanh(c) o(1 - o))

with d x for dL/dx. :func:`lstm_cell` is the plain form.
"""

import torch


def lstm_cell(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One step in its plain form: gates z (R, 4 D), cell (R, D). Returns h and c, (R, D)."""
    i, f, g, o = gates.chunk(4, dim=1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


class CellSteps:
    """The steps of one layer into given memory, from the first to the last.

    Args:
        gates: (T, R, 4 D); row t is z_t before ``step(t)`` and i, f, g, o after it.
        cells: (T + 1, R, D); row 0 is c_0.
        hiddens: (T, R, D), for h_1 .. h_T.
    """

    def __init__(self, gates: torch.Tensor, cells: torch.Tensor, hiddens: torch.Tensor) -> None:
        # The views of all steps at once: made one by one they cost as much as the arithmetic.
        by_gate = gates.chunk(4, dim=2)
        self._i, self._f, self._g, self._o = (gate.unbind(0) for gate in by_gate)
        self._i_and_f = gates[:, :, : 2 * cells.size(2)].unbind(0)
        self._cells, self._hiddens = cells.unbind(0), hiddens.unbind(0)

    def step(self, t: int) -> torch.Tensor:
        """Compute c_{t+1} and h_{t+1}, both (R, D), from z_t and c_t (t from 0); returns h_{t+1}."""
        self._i_and_f[t].sigmoid_()
        g, o = self._g[t].tanh_(), self._o[t].sigmoid_()
        cell = self._cells[t + 1]
        torch.mul(self._f[t], self._cells[t], out=cell).addcmul_(self._i[t], g)
        return torch.mul(o, torch.tanh(cell), out=self._hiddens[t])


class CellGradients:
    """The gradients of the gates and cells of one layer, from the last step to the first.

    The factors of d c and d h in d z do not depend on later steps, so they are computed here for all
    steps at once; :meth:`step` multiplies them.

    Args:
        gates: i, f, g, o of every step, (T, R, 4 D).
        cells: c_0 .. c_T, (T + 1, R, D).
        d_cell: d c_T from outside, (R, D).

    Attributes:
        d_z: (T, R, 4 D); row t is d z_t after ``step(t)``.
        d_cell: d c_{t-1} after ``step(t)``, (R, D).
    """

    def __init__(self, gates: torch.Tensor, cells: torch.Tensor, d_cell: torch.Tensor) -> None:
        i, f, g, o = gates.chunk(4, dim=2)
        tanh_c = torch.tanh(cells[1:])
        self.d_z = torch.empty_like(gates)
        of_i, of_f, of_g, of_o = self.d_z.chunk(4, dim=2)
        torch.mul(g, _sigmoid_slope(i), out=of_i)
        torch.mul(cells[:-1], _sigmoid_slope(f), out=of_f)
        torch.mul(i, _tanh_slope(g), out=of_g)
        torch.mul(tanh_c, _sigmoid_slope(o), out=of_o)
        time, rows, width = tanh_c.shape
        self._of_d_cell = self.d_z[:, :, : 3 * width].view(time, rows, 3, width).unbind(0)
        self._of_d_hidden = of_o.unbind(0)
        self._cell_slope = _tanh_slope(tanh_c).mul_(o).unbind(0)  # each (R, D): d c / d h
        self._forget = f.unbind(0)
        self.d_cell = d_cell

    def step(self, t: int, d_hidden: torch.Tensor) -> torch.Tensor:
        """d z_t, (R, 4 D), from the whole d h_t, (R, D)."""
        d_c = torch.addcmul(self.d_cell, d_hidden, self._cell_slope[t])
        self._of_d_cell[t].mul_(d_c.unsqueeze(1))
        self._of_d_hidden[t].mul_(d_hidden)
        self.d_cell = d_c.mul_(self._forget[t])
        return self.d_z[t]


def _sigmoid_slope(y: torch.Tensor) -> torch.Tensor:
    """y (1 - y)."""
    return torch.addcmul(y, y, y, value=-1)


def _tanh_slope(y: torch.Tensor) -> torch.Tensor:
    """1 - y^2."""
    return y.square().neg_().add_(1)
