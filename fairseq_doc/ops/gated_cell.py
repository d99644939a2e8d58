"""One step of a gated recurrence, an LSTM's or RHN's, and its gradients.

Axes: T steps, R rows, D width. z_t are the gates before their activations.

    x_t = f x_{t-1} + i' g,        i, f = sigmoid(z), g = tanh(z) of parts of z_t

with i' = i (``untied``), 1 - f (``tied``; z_t has no i) or min(1 - f, i) (``capped``; Melis et al.,
2018). x is an LSTM's cell c, whose output is h_t = o tanh(c_t), o = sigmoid(z); or the state h of a
recurrent highway network (Zilly et al., 2017), where i is its transform gate and f its carry gate.
The parts of z_t are in the order i, f, g, o. Recurrent dropout (Semeniuta et al., 2016) multiplies
g by a mask.

With d x for dL/dx; d i' is passed on to i or, with a negative sign, to f:

    d c_t     = d h_t o (1 - tanh(c_t)^2) + d c_{t+1} f_{t+1}
    d x_{t-1} = d x_t f
    d z_g     = d x_t i' (1 - g^2),        d z_o = d h_t tanh(c_t) o (1 - o)
    untied:  d z_i = d x_t g i (1 - i),    d z_f = d x_t x_{t-1} f (1 - f)
    tied:                                  d z_f = d x_t (x_{t-1} - g) f (1 - f)
    capped:  as untied where i < 1 - f; elsewhere as tied, d z_i = 0
"""

import torch
from torch import Tensor

from fairseq_doc.ops.cell import Cell, CellGradients, Memory, through_sigmoid, through_tanh

KINDS = ("untied", "tied", "capped")


def n_gates(kind: str) -> int:
    """The number of parts of z_t without o."""
    return 2 if kind == "tied" else 3


def gated_sum(
    gates: Tensor, before: Tensor, kind: str = "untied", mask: Tensor | None = None
) -> Tensor:
    """Plain form of x_t: z_t without o, (R, 2 D or 3 D); x_{t-1} and the mask of g, (R, D)."""
    *i, f, g = gates.split(before.size(1), dim=1)
    f, g = torch.sigmoid(f), torch.tanh(g)
    if mask is not None:
        g = g * mask
    used = 1 - f if kind == "tied" else torch.sigmoid(i[0])  # i'
    if kind == "capped":
        used = torch.minimum(1 - f, used)
    return f * before + used * g


def lstm_cell(
    gates: Tensor, cell: Tensor, kind: str = "untied", mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Plain form of an LSTM's h_t and c_t: z_t (R, 3 D or 4 D), c_{t-1} (R, D)."""
    width = cell.size(1)
    cell = gated_sum(gates[:, :-width], cell, kind, mask)
    return torch.sigmoid(gates[:, -width:]) * torch.tanh(cell), cell


class GatedSteps:
    """The steps of an LSTM or RHN, from the first to the last, written to ``memory``."""

    def __init__(self, cell: Cell, memory: Memory) -> None:
        # All views are made at once: one by one, they would cost as much as the arithmetic.
        gates, states, hiddens, self._mask = memory
        width, g_index, self._kind = states.size(2), n_gates(cell.kind) - 1, cell.kind
        by_gate = [part.unbind(0) for part in gates.split(width, dim=2)]
        # Not used: i of tied gates, which is f here, and o of an RHN, which is g.
        self._i, self._f, self._g, self._o = (by_gate[n] for n in (0, g_index - 1, g_index, -1))
        self._sigmoids = gates[:, :, : g_index * width].unbind(0)
        self._states, self._hiddens = states.unbind(0), None
        self._sizes = [g_index * width, width]
        if cell.has_cell_state:
            self._hiddens = hiddens.unbind(0)
            self._sizes.append(width)

    def step(self, t: int, z: Tensor | None = None, added: Tensor | None = None) -> Tensor:
        """Make step t, from 0: write x to row t + 1 of the states and an LSTM's h to row t of the
        hiddens; returns h, (R, D). The gates are z, (R, G D), plus ``added``; z may be overwritten.
        None: z is in row t of the memory's gates."""
        if z is None:
            parts = self._sigmoids[t], self._g[t], self._o[t]
        else:
            parts = (z if added is None else z.add_(added)).split(self._sizes, dim=1)
        torch.sigmoid(parts[0], out=self._sigmoids[t])
        f, g, i = self._f[t], torch.tanh(parts[1], out=self._g[t]), self._i[t]
        if self._kind != "untied":
            room = torch.rsub(f, 1)
            i = room if self._kind == "tied" else torch.minimum(room, i, out=room)
        if self._mask is not None:
            g = g * self._mask
        state = torch.mul(f, self._states[t], out=self._states[t + 1]).addcmul_(i, g)
        if self._hiddens is None:
            return state
        o = torch.sigmoid(parts[2], out=self._o[t])
        return torch.mul(o, torch.tanh(state), out=self._hiddens[t])


class GatedGradients(CellGradients):
    """Gradients of :class:`GatedSteps`: each d z is a factor times d x, but d z_o a factor times
    d h."""

    def __init__(self, cell: Cell, memory: Memory, d_cell: Tensor | None) -> None:
        super().__init__(cell, memory, d_cell)
        width, count = memory.states.size(2), n_gates(cell.kind)
        parts = self.d_z[:, :, : count * width].unflatten(2, (count, width))
        self._factors, self._d_z = parts.unbind(0), self.d_z.unbind(0)
        self._of_o = self.d_z[:, :, -width:].unbind(0)
        self._forget = memory.gates[:, :, (count - 2) * width : (count - 1) * width].unbind(0)

    def _compute_factors(self, block: slice) -> None:
        gates, states, _, mask = self.memory
        before, count = states[block], n_gates(self.kind)
        parts = gates[block].split(before.size(2), dim=2)
        factors = self.d_z[block].split(before.size(2), dim=2)
        f, g = parts[count - 2 : count]
        of_f, of_g = factors[count - 2 : count]
        masked = g if mask is None else g * mask
        if self.kind == "untied":
            i = parts[0]
            through_sigmoid(before, f, of_f)
            through_sigmoid(masked, i, factors[0])
        else:
            i, to_f = torch.rsub(f, 1), masked
            if self.kind == "capped":
                to_f = masked * (parts[0] >= i)  # where the cap holds
                through_sigmoid(masked - to_f, parts[0], factors[0])
                torch.minimum(i, parts[0], out=i)
            through_sigmoid(before - to_f, f, of_f)
        through_tanh(i, g, of_g)
        if mask is not None:
            of_g *= mask
        if self.d_cell is not None:
            tanh_c = torch.tanh(states[block.start + 1 : block.stop + 1])
            through_sigmoid(tanh_c, parts[-1], factors[-1])
            # each (R, D): o (1 - tanh(c)^2), the factor of d h in d c
            self._cell_slope = through_tanh(parts[-1], tanh_c, tanh_c).unbind(0)

    def step(self, k: int, d_hidden: Tensor) -> Tensor:
        place, d_state = self._place(k), d_hidden
        if self.d_cell is not None:
            d_state = torch.addcmul(self.d_cell, d_hidden, self._cell_slope[place])
            self._of_o[k].mul_(d_hidden)
            self.d_cell = d_state
        self._factors[k].mul_(d_state.unsqueeze(1))
        d_state.mul_(self._forget[k])
        return self._d_z[k]


class GatedCell(Cell):
    """Common base of LSTM and RHN."""

    steps, gradients = GatedSteps, GatedGradients

    def __init__(self, gates: str = "untied") -> None:
        self.kind, self.forget_part = gates, n_gates(gates) - 2
        self.parts = self.matmul_parts = n_gates(gates) + self.has_cell_state


class LSTMCell(GatedCell):
    """A long short-term memory."""

    name = "lstm"

    def plain_step(self, added, product, state, mask):
        return lstm_cell(added + product, state[1], self.kind, mask)


class HighwayCell(GatedCell):
    """A recurrent highway network."""

    name = "rhn"
    has_cell_state = False

    def plain_step(self, added, product, state, mask):
        return gated_sum(added + product, state[0], self.kind, mask), None
