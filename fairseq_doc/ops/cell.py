"""The interface of a recurrent cell; ``gated_cell.py`` and ``nas_cell.py`` have the cells.

Axes: S micro-steps, R rows, D width, E width of the input, G parts of z, M of them in a product. A
part is a vector of width D, such as a gate.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

# Entries of z in a block of steps (``CellGradients``): 1 MiB in float32, which stays in a core's
# cache.
BLOCK_NUMBERS = 2**18

CellState = tuple[Tensor, Tensor | None]  # h and c, (R, D); None for a cell without c


class Memory(NamedTuple):
    """Tensors that the steps write and their gradients read."""

    gates: Tensor  # z after its activations, (S, R, G D)
    states: Tensor  # c, or h of a cell without c, (S + 1, R, D); row 0: before step 1
    hiddens: Tensor  # h_1 .. h_S, (S, R, D)
    mask: Tensor | None = None  # multiplies g, (R, D); None: no dropout


class Cell(ABC):
    """A recurrent cell. To add one, write a subclass and enter it in ``CELLS`` of
    ``ops/recurrence.py``."""

    # ``steps(cell, memory).step(k, product, added)``, k from 0, writes z_k and h_k to row k of the
    # memory's gates and hiddens, and c_k to row k + 1 of its states; returns h_k. z_k before its
    # activations follows from the product W_l (m h) and u_t or b_l, see ``ops/recurrence.py``.
    steps: ClassVar[Any]
    gradients: ClassVar[type["CellGradients"]]  # of these steps
    name: str  # its key in ``CELLS``
    has_cell_state = True  # the state is h and c; False: h alone, which is updated as c would be
    has_biases = True
    takes_recurrent_mask = True  # whether the cell has a g, to which dropout can be applied
    parts: int  # G
    # M: the input's product is in the first M parts of z, the state's in the last M.
    matmul_parts: int
    forget_part: int  # index of the forget gate in a product; one is added to its initial bias

    def __init__(self, gates: str = "untied") -> None:
        self.kind = gates  # one of ``KINDS`` in ``ops/gated_cell.py``, for cells with gates

    def input_order(self, weight: Tensor) -> Tensor:
        """The input's matrix (M D, E) or bias (M D,), with its parts put in the order of z."""
        return weight

    def state_order(self, weight: Tensor) -> Tensor:
        """The state's matrix (M D, D), with its parts put in the order of z."""
        return weight

    @abstractmethod
    def plain_step(
        self, added: Tensor, product: Tensor, state: CellState, mask: Tensor | None
    ) -> CellState:
        """Plain form of a step, with which the tests compare: h and c after it. ``added`` (u_t or
        b_l) and ``product`` (with h) have the order of the weights as stored; ``mask`` is that of
        g."""


class CellGradients(ABC):
    """The gradients of z and c, from the last step to the first. Factors that do not depend on later
    steps are computed for a block of steps at once."""

    def __init__(self, cell: Cell, memory: Memory, d_cell: Tensor | None) -> None:
        self.kind, self.memory = cell.kind, memory
        self.d_z = torch.empty_like(memory.gates)  # (S, R, G D); row k is d z_k after step(k)
        self.d_cell: Any = d_cell  # d c, (R, D), before the step of the last call; None without c
        self._first = len(memory.gates)  # first step of the current block
        self._length = max(1, BLOCK_NUMBERS // max(1, memory.gates[0].numel()))

    @abstractmethod
    def step(self, k: int, d_hidden: Tensor) -> Tensor:
        """d z_k, (R, G D), from the complete d h_k, (R, D). In a cell without c, ``d_hidden`` is
        overwritten by the part of d h_{k-1} that does not pass through the product."""

    @abstractmethod
    def _compute_factors(self, block: slice) -> None:
        """Write the factors of a block of steps to their rows of d z."""

    def _place(self, k: int) -> int:
        """The index of step k in its block; computes the factors of a new block."""
        while k < self._first:
            block = slice(max(0, self._first - self._length), self._first)
            self._compute_factors(block)
            self._first = block.start
        return k - self._first


def through_sigmoid(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y y (1 - y) into ``out``: the gradient of z from that of y = sigmoid(z)."""
    return torch.ops.aten.sigmoid_backward.grad_input(d_y, y, grad_input=out)


def through_tanh(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y (1 - y^2) into ``out``: the gradient of z from that of y = tanh(z)."""
    return torch.ops.aten.tanh_backward.grad_input(d_y, y, grad_input=out)
