"""What a cell of a recurrence is: ``ops/recurrence.py`` runs it; ``ops/gated_cell.py`` and
``ops/nas_cell.py`` define the cells.

Axes: S micro-steps, R rows, D width, E width of the input, G parts of z.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

# The factors of so many numbers of z are computed at once; a MiB of float32 stays in a core's
# cache.
BLOCK_NUMBERS = 2**18

State = tuple[Tensor, Tensor | None]  # h and c, (R, D); None for a cell without c


class Memory(NamedTuple):
    """What the steps fill and their gradients read.

    Attributes:
        gates: z after its activations, (S, R, G D).
        states: c, or h of a cell without c, (S + 1, R, D); row 0 is given.
        hiddens: h_1 .. h_S, (S, R, D).
        mask: of g, (R, D), given; None: no dropout.
    """

    gates: Tensor
    states: Tensor
    hiddens: Tensor
    mask: Tensor | None = None


class Cell(ABC):
    """A new cell is a subclass, and an entry of ``CELLS`` in ``ops/recurrence.py``.

    Attributes:
        name: its key in ``CELLS``.
        gates: one of ``KINDS`` in ``ops/gated_cell.py``, where the cell has such gates.
        has_cell_state: whether it has c as well as h. A cell without c adds h itself up.
        has_biases: whether z has them.
        takes_recurrent_mask: whether it has a g to be dropped.
        parts: how many vectors of width D z has.
        matmul_parts: how many of them a product gives: the input's the first ones, the state's the
            last ones.
        forget_part: which of them keeps the state; its bias starts at one.
    """

    name: str
    gates: str
    has_cell_state = True
    has_biases = True
    takes_recurrent_mask = True
    parts: int
    matmul_parts: int
    forget_part: int

    def input_order(self, weight: Tensor) -> Tensor:
        """The input's matrix (G D, E), its parts in the order of z."""
        return weight

    def state_order(self, weight: Tensor) -> Tensor:
        """The state's matrix (G D, D), its parts in the order of z."""
        return weight

    @abstractmethod
    def plain_step(
        self, added: Tensor, product: Tensor, state: State, mask: Tensor | None
    ) -> State:
        """The state after a step, from u_t or b_l, the product with h, the state before, and the
        mask of g."""

    @abstractmethod
    def steps(self, memory: Memory) -> Any:
        """An object whose ``step(k, product, added)`` computes h_k in the memory, and returns
        it."""

    @abstractmethod
    def gradients(self, memory: Memory, d_cell: Tensor | None) -> "CellGradients":
        """The gradients of these steps."""


class CellGradients(ABC):
    """The gradients of z and c, from the last step to the first.

    The factors of a step's gradients that do not depend on later steps are computed for a block of
    steps, which stays in the cache.

    Args:
        memory: what the steps left.
        d_cell: d c of the last step from outside, (R, D); None of a cell without c.

    Attributes:
        d_z: (S, R, G D); row k is d z_k after ``step(k)``.
        d_cell: d c before step k after ``step(k)``, (R, D).
    """

    def __init__(self, memory: Memory, d_cell: Tensor | None) -> None:
        self.memory = memory
        self.d_z = torch.empty_like(memory.gates)
        self.d_cell: Any = d_cell
        self._first = len(memory.gates)  # step of the block
        self._length = max(1, BLOCK_NUMBERS // max(1, memory.gates[0].numel()))

    @abstractmethod
    def step(self, k: int, d_hidden: Tensor) -> Tensor:
        """d z_k, (R, G D), from the whole d h_k, (R, D). Without c, d h_k becomes d h_{k-1} as far
        as it goes through the sum."""

    @abstractmethod
    def _compute_factors(self, block: slice) -> None:
        """Write the factors of some steps into their rows of d z."""

    def _place(self, k: int) -> int:
        """Where step k is in its block, whose factors are computed now if they are not yet."""
        while k < self._first:
            block = slice(max(0, self._first - self._length), self._first)
            self._compute_factors(block)
            self._first = block.start
        return k - self._first


def through_sigmoid(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y y (1 - y) into ``out``: the gradient of z from that of y = sigmoid(z), in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(d_y, y, grad_input=out)


def through_tanh(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y (1 - y^2) into ``out``: the gradient of z from that of y = tanh(z), in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(d_y, y, grad_input=out)
