"""One step of a gated recurrence and its gradients: what the LSTM and the RHN share.

Axes: T steps, R rows, D width. z_t are the gates before their activations.

    x_t = f x_{t-1} + i' g,        i, f = sigmoid(z), g = tanh(z) of parts of z_t

with i' = i (``untied``), 1 - f (``tied``; z_t has no i) or min(1 - f, i) (``capped``; Melis et al.,
2018). x is an LSTM's cell c, whose output is h_t = o tanh(c_t), o = sigmoid(z); or the state s of a
recurrent highway network (Zilly et al., 2017), where i is its transform gate and f its carry gate. The
parts of z_t are in the order i, f, g, o. With recurrent dropout (Semeniuta et al., 2016) g is multiplied
by a mask.

With d x for dL/dx, and d i' either given to i or, negative, to f:

    d c_t     = d h_t o (1 - tanh(c_t)^2) + d c_{t+1} f_{t+1}
    d x_{t-1} = d x_t f
    d z_g     = d x_t i' (1 - g^2),        d z_o = d h_t tanh(c_t) o (1 - o)
    untied:  d z_i = d x_t g i (1 - i),    d z_f = d x_t x_{t-1} f (1 - f)
    tied:                                  d z_f = d x_t (x_{t-1} - g) f (1 - f)
    capped:  as untied where i < 1 - f; elsewhere as tied, d z_i = 0

:func:`lstm_cell` and :func:`gated_sum` are the plain forms.
"""

import torch

KINDS = ("untied", "tied", "capped")


def n_gates(kind: str, output: bool) -> int:
    """How many parts z_t has; ``output``: whether o is one of them."""
    return (2 if kind == "tied" else 3) + (1 if output else 0)


def gated_sum(
    gates: torch.Tensor,
    before: torch.Tensor,
    kind: str = "untied",
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """x_t in its plain form: z_t without o, (R, 2 D or 3 D); x_{t-1} (R, D); ``mask`` (R, D) of g."""
    *i, f, g = gates.split(before.size(1), dim=1)
    f, g = torch.sigmoid(f), torch.tanh(g)
    if mask is not None:
        g = g * mask
    if kind == "untied":
        i = torch.sigmoid(i[0])
    elif kind == "tied":
        i = 1 - f
    else:
        i = torch.minimum(1 - f, torch.sigmoid(i[0]))
    return f * before + i * g


def lstm_cell(
    gates: torch.Tensor,
    cell: torch.Tensor,
    kind: str = "untied",
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of an LSTM in its plain form: z_t (R, 3 D or 4 D), c_{t-1} (R, D). Returns h and c."""
    width = cell.size(1)
    cell = gated_sum(gates[:, :-width], cell, kind, mask)
    return torch.sigmoid(gates[:, -width:]) * torch.tanh(cell), cell


class GatedSteps:
    """The steps of x into given memory, from the first to the last.

    Args:
        gates: (T, R, G D); row t is z_t before ``step(t)`` and i, f, g after it.
        states: (T + 1, R, D); row 0 is x_0.
        kind: one of ``KINDS``.
        mask: of g, (R, D); None: no dropout.
    """

    def __init__(
        self,
        gates: torch.Tensor,
        states: torch.Tensor,
        kind: str = "untied",
        mask: torch.Tensor | None = None,
    ) -> None:
        # The views of all steps at once: made one by one they cost as much as the arithmetic.
        width, first = states.size(2), n_gates(kind, False) - 1
        by_gate = [part.unbind(0) for part in gates.split(width, dim=2)]
        self._i, self._f, self._g = by_gate[0], by_gate[first - 1], by_gate[first]
        self._sigmoids = gates[:, :, : first * width].unbind(0)
        self._states = states.unbind(0)
        self._kind, self._mask = kind, mask

    def step(self, t: int) -> torch.Tensor:
        """Compute x_{t+1}, (R, D), from z_t and x_t (t from 0), and return it."""
        self._sigmoids[t].sigmoid_()
        f, g, i = self._f[t], self._g[t].tanh_(), self._i[t]
        if self._kind != "untied":
            room = torch.rsub(f, 1)
            i = room if self._kind == "tied" else torch.minimum(room, i, out=room)
        if self._mask is not None:
            g = g * self._mask
        return torch.mul(f, self._states[t], out=self._states[t + 1]).addcmul_(i, g)


class CellSteps(GatedSteps):
    """The steps of an LSTM.

    Args:
        gates: (T, R, G D); row t is z_t before ``step(t)`` and i, f, g, o after it.
        cells: (T + 1, R, D); row 0 is c_0.
        hiddens: (T, R, D), for h_1 .. h_T.
        kind, mask: see :class:`GatedSteps`.
    """

    def __init__(
        self,
        gates: torch.Tensor,
        cells: torch.Tensor,
        hiddens: torch.Tensor,
        kind: str = "untied",
        mask: torch.Tensor | None = None,
    ) -> None:
        super().__init__(gates, cells, kind, mask)
        self._o = gates[:, :, -cells.size(2) :].unbind(0)
        self._hiddens = hiddens.unbind(0)

    def step(self, t: int) -> torch.Tensor:
        """Compute c_{t+1} and h_{t+1}, both (R, D), from z_t and c_t (t from 0); returns h_{t+1}."""
        cell = super().step(t)
        return torch.mul(self._o[t].sigmoid_(), torch.tanh(cell), out=self._hiddens[t])


class GatedGradients:
    """The gradients of z and x, from the last step to the first.

    The factors of d x in d z do not depend on later steps, so they are computed here for all steps at
    once; :meth:`step` multiplies them.

    Args:
        gates: i, f, g of every step, and o of an LSTM, (T, R, G D).
        states: x_0 .. x_T, (T + 1, R, D).
        kind, mask: see :class:`GatedSteps`.

    Attributes:
        d_z: (T, R, G D); row t is d z_t after ``step(t)``.
    """

    def __init__(
        self,
        gates: torch.Tensor,
        states: torch.Tensor,
        kind: str = "untied",
        mask: torch.Tensor | None = None,
    ) -> None:
        time, rows, width = states[1:].shape
        count, before = n_gates(kind, False), states[:-1]
        self.d_z = torch.empty_like(gates)
        parts, factors = gates.split(width, dim=2), self.d_z.split(width, dim=2)
        f, g = parts[count - 2 : count]
        of_f, of_g = factors[count - 2 : count]
        masked = g if mask is None else g * mask
        if kind == "untied":
            i = parts[0]
            torch.mul(before, sigmoid_slope(f), out=of_f)
            torch.mul(masked, sigmoid_slope(i), out=factors[0])
        else:
            i = 1 - f
            to_f = masked
            if kind == "capped":
                closed = parts[0] >= i  # (T, R, D): where the cap holds
                i = torch.minimum(i, parts[0])
                to_f = masked * closed
                torch.mul(masked - to_f, sigmoid_slope(parts[0]), out=factors[0])
            torch.mul(before - to_f, sigmoid_slope(f), out=of_f)
        torch.mul(i, tanh_slope(g), out=of_g)
        if mask is not None:
            of_g *= mask
        self._factors = self.d_z[:, :, : count * width].view(time, rows, count, width).unbind(0)
        self._d_z = self.d_z.unbind(0)
        self._forget = f.unbind(0)

    def step(self, t: int, d_state: torch.Tensor) -> torch.Tensor:
        """d z_t, (R, G D), from the whole d x_t, (R, D), which becomes d x_{t-1} as far as it goes
        through the sum."""
        self._factors[t].mul_(d_state.unsqueeze(1))
        d_state.mul_(self._forget[t])
        return self._d_z[t]


class CellGradients(GatedGradients):
    """The gradients of an LSTM's gates and cells.

    Args:
        gates: i, f, g, o of every step, (T, R, G D).
        cells: c_0 .. c_T, (T + 1, R, D).
        d_cell: d c_T from outside, (R, D).
        kind, mask: see :class:`GatedSteps`.

    Attributes:
        d_z: (T, R, G D); row t is d z_t after ``step(t)``.
        d_cell: d c_{t-1} after ``step(t)``, (R, D).
    """

    def __init__(
        self,
        gates: torch.Tensor,
        cells: torch.Tensor,
        d_cell: torch.Tensor,
        kind: str = "untied",
        mask: torch.Tensor | None = None,
    ) -> None:
        super().__init__(gates, cells, kind, mask)
        width = cells.size(2)
        o, of_o = gates[:, :, -width:], self.d_z[:, :, -width:]
        tanh_c = torch.tanh(cells[1:])
        torch.mul(tanh_c, sigmoid_slope(o), out=of_o)
        self._of_d_hidden = of_o.unbind(0)
        self._cell_slope = tanh_slope(tanh_c).mul_(o).unbind(0)  # each (R, D): d c / d h
        self.d_cell = d_cell

    def step(self, t: int, d_hidden: torch.Tensor) -> torch.Tensor:
        """d z_t, (R, G D), from the whole d h_t, (R, D)."""
        self.d_cell = torch.addcmul(self.d_cell, d_hidden, self._cell_slope[t])
        self._of_d_hidden[t].mul_(d_hidden)
        return super().step(t, self.d_cell)


def sigmoid_slope(y: torch.Tensor) -> torch.Tensor:
    """y (1 - y)."""
    return torch.addcmul(y, y, y, value=-1)


def tanh_slope(y: torch.Tensor) -> torch.Tensor:
    """1 - y^2."""
    return y.square().neg_().add_(1)
