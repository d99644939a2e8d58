"""One step of the NAS cell (neural architecture search; Zoph and Le, 2017), and its gradients.

Axes: T steps, R rows, D width. With a_k = W_k x_t and b_k = U_k m_{t-1}, k = 0 .. 7, both without
biases,

    g_0, g_2, g_5, g_7 = sigmoid(a_k + b_k),    g_1 = relu(a_1 + b_1),    g_3 = relu(a_3 b_3)
    g_4, g_6 = tanh(a_k + b_k)
    p_0 = tanh(tanh(g_0 g_1) + c_{t-1}),  p_1 = tanh(g_2 + g_3)
    p_2 = tanh(g_4 g_5),                  p_3 = sigmoid(g_6 + g_7)
    c_t = p_0 p_1,    m_t = tanh(c_t q),  q = tanh(p_2 + p_3)

(as in deepmind/lamb, after TensorFlow's NASCell). z_t has nine parts of width D, since g_3 needs a
and b separately. The product with the input is in the first eight, that with m_{t-1} in the last
eight:

    a_3;  a_k + b_k for k = 1, 0, 2, 5, 7, 4, 6;  b_3

With d x for dL/dx and e_t = d m_t (1 - m_t^2):

    d c_t       = (given by step t + 1) + e q,      d c_{t-1} = d c p_1 (1 - p_0^2)
    d (g_0 g_1) = d c_{t-1} (1 - tanh(g_0 g_1)^2)
    d g_2 = d g_3 = d c p_0 (1 - p_1^2)
    d p_2 = d p_3 = e c (1 - q^2)
    d (g_4 g_5) = d p_2 (1 - p_2^2),   d g_6 = d g_7 = d p_3 p_3 (1 - p_3)

so every d z is d c or e times a factor that does not depend on later steps.
"""

import torch
from torch import Tensor

from fairseq_doc.ops.cell import Cell, CellGradients, Memory, through_sigmoid, through_tanh

PARTS = 9
ORDER = (1, 0, 2, 5, 7, 4, 6)  # of a_k + b_k in z


def nas_cell(a: Tensor, b: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Plain form of m and c: a and b, (R, 8 D), for k = 0 .. 7; c before the step, (R, D)."""
    x = [p + q for p, q in zip(a.chunk(8, dim=1), b.chunk(8, dim=1), strict=True)]
    product = a.chunk(8, dim=1)[3] * b.chunk(8, dim=1)[3]
    g = [torch.sigmoid(x[0]), torch.relu(x[1]), torch.sigmoid(x[2]), torch.relu(product)]
    g += [torch.tanh(x[4]), torch.sigmoid(x[5]), torch.tanh(x[6]), torch.sigmoid(x[7])]
    cell = torch.tanh(torch.tanh(g[0] * g[1]) + cell) * torch.tanh(g[2] + g[3])
    q = torch.tanh(torch.tanh(g[4] * g[5]) + torch.sigmoid(g[6] + g[7]))
    return torch.tanh(cell * q), cell


class NASSteps:
    """The steps, from the first to the last, written to ``memory``."""

    def __init__(self, cell: Cell, memory: Memory) -> None:
        gates, cells, hiddens, _ = memory
        self._width = width = cells.size(2)
        by_part = [part.unbind(0) for part in gates.split(width, dim=2)]
        self._parts = list(zip(*by_part, strict=True))
        self._sums = gates[:, :, width : 8 * width].unbind(0)
        self._sigmoids = gates[:, :, 2 * width : 6 * width].unbind(0)
        self._tanhs = gates[:, :, 6 * width : 8 * width].unbind(0)
        self._cells, self._hiddens = cells.unbind(0), hiddens.unbind(0)

    def step(self, t: int, b: Tensor, a: Tensor) -> Tensor:
        """Make step t, from 0: write c and m, (R, D), from the products b with m_{t-1} and a with
        x_t, (R, 8 D); returns m."""
        width, (a3, g1, *_, b3) = self._width, self._parts[t]
        a3.copy_(a[:, :width])
        b3.copy_(b[:, 7 * width :])
        torch.add(a[:, width:], b[:, : 7 * width], out=self._sums[t])
        g1.relu_()
        self._sigmoids[t].sigmoid_()
        self._tanhs[t].tanh_()
        p0, p1, _, _, q = _from_gates(self._parts[t], self._cells[t])
        cell = torch.mul(p0, p1, out=self._cells[t + 1])
        return torch.tanh(cell * q, out=self._hiddens[t])


def _from_gates(parts, cell):
    """p_0 .. p_3 and q, from the activated parts of z and c_{t-1}."""
    a3, g1, g0, g2, g5, g7, g4, g6, b3 = parts
    p0 = torch.mul(g0, g1).tanh_().add_(cell).tanh_()
    p1 = torch.mul(a3, b3).relu_().add_(g2).tanh_()
    p2 = torch.mul(g4, g5).tanh_()
    p3 = torch.add(g6, g7).sigmoid_()
    return p0, p1, p2, p3, torch.tanh(p2 + p3)


class NASGradients(CellGradients):
    """Gradients of :class:`NASSteps`: each d z is a factor times d c or e."""

    def __init__(self, cell: Cell, memory: Memory, d_cell: Tensor | None) -> None:
        super().__init__(cell, memory, d_cell)
        parts = self.d_z.unflatten(2, (PARTS, memory.states.size(2)))
        self._of_cell = parts[:, :, :4].unbind(0), parts[:, :, 8].unbind(0)
        self._of_e = parts[:, :, 4:8].unbind(0)
        self._d_z = self.d_z.unbind(0)

    def _compute_factors(self, block: slice) -> None:
        gates, cells, hiddens, _ = self.memory
        before, after = cells[block], cells[block.start + 1 : block.stop + 1]
        a3, g1, g0, g2, g5, g7, g4, g6, b3 = parts = gates[block].chunk(PARTS, dim=2)
        p0, p1, p2, p3, q = _from_gates(parts, before)
        tanh_product = torch.tanh(g0 * g1)
        d_z, new = self.d_z[block].chunk(PARTS, dim=2), torch.empty_like
        of_before = through_tanh(p1, p0, new(p0))  # the factor of d c_t in d c_{t-1}
        to_product = through_tanh(of_before, tanh_product, tanh_product)
        to_sum = through_tanh(p0, p1, new(p1))  # the factor of d c_t in d g_2
        active = (a3 * b3 > 0) * to_sum
        torch.mul(active, b3, out=d_z[0])
        torch.mul(to_product * g0, g1 > 0, out=d_z[1])
        through_sigmoid(to_product * g1, g0, d_z[2])
        through_sigmoid(to_sum, g2, d_z[3])
        torch.mul(active, a3, out=d_z[8])
        to_q = through_tanh(after, q, new(q))  # the factor of e in d p_2 and d p_3
        to_p2, to_p3 = through_tanh(to_q, p2, p2), through_sigmoid(to_q, p3, p3)
        through_sigmoid(to_p2 * g4, g5, d_z[4])
        through_sigmoid(to_p3, g7, d_z[5])
        through_tanh(to_p2 * g5, g4, d_z[6])
        through_tanh(to_p3, g6, d_z[7])
        m = hiddens[block]
        self._slope = through_tanh(torch.ones_like(m), m, new(m)).unbind(0)
        self._of_before, self._q = of_before.unbind(0), q.unbind(0)

    def step(self, k: int, d_hidden: Tensor) -> Tensor:
        place = self._place(k)
        e = d_hidden * self._slope[place]
        d_c = torch.addcmul(self.d_cell, e, self._q[place])
        self._of_cell[0][k].mul_(d_c.unsqueeze(1))
        self._of_cell[1][k].mul_(d_c)
        self._of_e[k].mul_(e.unsqueeze(1))
        self.d_cell = d_c.mul_(self._of_before[place])
        return self._d_z[k]


class NASCell(Cell):
    """The cell found by neural architecture search."""

    steps, gradients = NASSteps, NASGradients
    name = "nas"
    has_biases = takes_recurrent_mask = False
    parts, matmul_parts = PARTS, PARTS - 1

    def input_order(self, weight: Tensor) -> Tensor:
        parts = weight.chunk(8)
        return torch.cat([parts[3], *(parts[k] for k in ORDER)])

    def state_order(self, weight: Tensor) -> Tensor:
        parts = weight.chunk(8)
        return torch.cat([*(parts[k] for k in ORDER), parts[3]])

    def plain_step(self, added, product, state, mask):
        return nas_cell(added, product, state[1])
