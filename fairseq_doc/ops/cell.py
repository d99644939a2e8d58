"""What a cell of a recurrence is: ``ops/recurrence.py`` runs it; ``ops/gated_cell.py`` and
``ops/nas_cell.py`` define the cells.

Axes: S micro-steps, R rows, D width, E width of the input, G parts of z.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
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
        has_cell_state: whether there is a c beside h. A cell without it adds h itself up, and its
            gradients' step leaves in d h what goes through that sum.
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
        """The state's matrix (G D, D), likewise."""
        return weight

    @abstractmethod
    def plain_step(
        self, added: Tensor, product: Tensor, state: State, mask: Tensor | None
    ) -> State:
        """The state after a step, from u_t or b_l, the product with h, and the state before;
        ``mask`` is of g."""

    @abstractmethod
    def steps(self, memory: Memory) -> Any:
        """An object whose ``step(k, product, added)`` computes h_k in the memory, and returns
        it."""

    @abstractmethod
    def gradients(self, memory: Memory, d_cell: Tensor | None) -> Any:
        """An object whose ``step(k, d_hidden)`` returns d z_k, from the last step to the first. Its
        ``d_z`` (S, R, G D) holds them all, and its ``d_cell`` d c before the step."""


class BlocksOfSteps:
    """Steps from the last to the first, prepared block by block, so that a block stays in the
    cache.

    Args:
        gates: (T, R, G D).
        prepare: prepares a slice of steps.
    """

    def __init__(self, gates: Tensor, prepare: Callable[[slice], None]) -> None:
        self._first, self._prepare = len(gates), prepare
        self._length = max(1, BLOCK_NUMBERS // max(1, gates[0].numel()))

    def place(self, t: int) -> int:
        """Where step t is in its block, which is prepared now if it is not."""
        while t < self._first:
            block = slice(max(0, self._first - self._length), self._first)
            self._prepare(block)
            self._first = block.start
        return t - self._first


def through_sigmoid(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y y (1 - y) into ``out``: the gradient of z from that of y = sigmoid(z), in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(d_y, y, grad_input=out)


def through_tanh(d_y: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """d_y (1 - y^2) into ``out``: the gradient of z from that of y = tanh(z), in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(d_y, y, grad_input=out)
