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

from collections.abc import Callable

import torch

KINDS = ("untied", "tied", "capped")
# The factors of so many numbers of z are computed at once; a MiB of float32 stays in a core's cache.
BLOCK_NUMBERS = 2**18


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
        gates: (T, R, G D), for i, f, g of every step.
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
        self._sizes = [first * width, width]

    def step(self, t: int, z: torch.Tensor | None = None) -> torch.Tensor:
        """Compute x_{t+1}, (R, D), from z_t, (R, G D), and x_t (t from 0), and return it. z_t may be
        row t of the memory for the gates; None: it is that row."""
        if z is None:
            of_sigmoids, of_g = self._sigmoids[t], self._g[t]
        else:
            of_sigmoids, of_g = z.split(self._sizes, dim=1)
        torch.sigmoid(of_sigmoids, out=self._sigmoids[t])
        f, g, i = self._f[t], torch.tanh(of_g, out=self._g[t]), self._i[t]
        if self._kind != "untied":
            room = torch.rsub(f, 1)
            i = room if self._kind == "tied" else torch.minimum(room, i, out=room)
        if self._mask is not None:
            g = g * self._mask
        return torch.mul(f, self._states[t], out=self._states[t + 1]).addcmul_(i, g)


class CellSteps(GatedSteps):
    """The steps of an LSTM.

    Args:
        gates: (T, R, G D), for i, f, g, o of every step.
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
        self._without_o = [sum(self._sizes), cells.size(2)]

    def step(self, t: int, z: torch.Tensor | None = None) -> torch.Tensor:
        """Compute c_{t+1} and h_{t+1}, both (R, D), from z_t and c_t (t from 0); returns h_{t+1}."""
        if z is None:
            others, of_o = None, self._o[t]
        else:
            others, of_o = z.split(self._without_o, dim=1)
        cell = super().step(t, others)
        o = torch.sigmoid(of_o, out=self._o[t])
        return torch.mul(o, torch.tanh(cell), out=self._hiddens[t])


class BlocksOfSteps:
    """Steps from the last to the first, prepared block by block, so that a block stays in the cache.

    Args:
        gates: (T, R, G D).
        prepare: prepares a slice of steps.
    """

    def __init__(self, gates: torch.Tensor, prepare: Callable[[slice], None]) -> None:
        self._first, self._prepare = len(gates), prepare
        self._length = max(1, BLOCK_NUMBERS // max(1, gates[0].numel()))

    def place(self, t: int) -> int:
        """Where step t is in its block, which is prepared now if it is not."""
        while t < self._first:
            block = slice(max(0, self._first - self._length), self._first)
            self._prepare(block)
            self._first = block.start
        return t - self._first


class GatedGradients:
    """The gradients of z and x, from the last step to the first.

    The factors of d x in d z do not depend on later steps. They are computed for a block of steps that
    stays in the cache; :meth:`step` multiplies them.

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
        self._gates, self._states, self._kind, self._mask = gates, states, kind, mask
        width, count = states.size(2), n_gates(kind, False)
        self.d_z = torch.empty_like(gates)
        parts = self.d_z[:, :, : count * width].unflatten(2, (count, width))
        self._factors, self._d_z = parts.unbind(0), self.d_z.unbind(0)
        self._forget = gates[:, :, (count - 2) * width : (count - 1) * width].unbind(0)
        self._blocks = BlocksOfSteps(gates, self._compute_factors)

    def _compute_factors(self, block: slice) -> None:
        """Write the factors of d x of some steps into their rows of d z."""
        gates, before, mask = self._gates[block], self._states[block], self._mask
        width, count = before.size(2), n_gates(self._kind, False)
        parts, factors = gates.split(width, dim=2), self.d_z[block].split(width, dim=2)
        f, g = parts[count - 2 : count]
        of_f, of_g = factors[count - 2 : count]
        masked = g if mask is None else g * mask
        if self._kind == "untied":
            i = parts[0]
            through_sigmoid(before, f, of_f)
            through_sigmoid(masked, i, factors[0])
        else:
            i, to_f = torch.rsub(f, 1), masked
            if self._kind == "capped":
                to_f = masked * (parts[0] >= i)  # where the cap holds
                through_sigmoid(masked - to_f, parts[0], factors[0])
                torch.minimum(i, parts[0], out=i)
            through_sigmoid(before - to_f, f, of_f)
        through_tanh(i, g, of_g)
        if mask is not None:
            of_g *= mask

    def step(self, t: int, d_state: torch.Tensor) -> torch.Tensor:
        """d z_t, (R, G D), from the whole d x_t, (R, D), which becomes d x_{t-1} as far as it goes
        through the sum."""
        self._blocks.place(t)
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
        self._of_d_hidden = self.d_z[:, :, -cells.size(2) :].unbind(0)
        self.d_cell = d_cell

    def _compute_factors(self, block: slice) -> None:
        super()._compute_factors(block)
        width = self._states.size(2)
        o, of_o = (x[block, :, -width:] for x in (self._gates, self.d_z))
        tanh_c = torch.tanh(self._states[block.start + 1 : block.stop + 1])
        through_sigmoid(tanh_c, o, of_o)
        self._cell_slope = through_tanh(o, tanh_c, tanh_c).unbind(0)  # each (R, D): d c / d h

    def step(self, t: int, d_hidden: torch.Tensor) -> torch.Tensor:
        """d z_t, (R, G D), from the whole d h_t, (R, D)."""
        place = self._blocks.place(t)
        self.d_cell = torch.addcmul(self.d_cell, d_hidden, self._cell_slope[place])
        self._of_d_hidden[t].mul_(d_hidden)
        return super().step(t, self.d_cell)


def through_sigmoid(d_y: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """d_y y (1 - y) into ``out``: the gradient of z from that of y = sigmoid(z), in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(d_y, y, grad_input=out)


def through_tanh(d_y: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """d_y (1 - y^2) into ``out``: the gradient of z from that of y = tanh(z), in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(d_y, y, grad_input=out)
