"""What the tests of the recurrences share."""

import pytest
import torch

from fairseq_doc.ops.gated_cell import KINDS, GatedCell
from fairseq_doc.ops.recurrence import CELLS, make_cell

from ..conftest import gradients

EVERY_CELL = [
    make_cell(name, gates)
    for name, kind in CELLS.items()
    for gates in (KINDS if issubclass(kind, GatedCell) else KINDS[:1])
]
each_cell = pytest.mark.parametrize("cell", EVERY_CELL, ids=lambda x: f"{x.name}-{x.gates}")


def weighted(results):
    """A scalar on which every number has another influence."""
    return sum(
        (x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in results
    )


class Case:
    """Tensors of these shapes, and what a form of an operation makes of them.

    ``run(form, tensors, **settings)``, which a subclass has, gives its results as a list.
    """

    def __init__(self, shapes, seed=0, dtype=torch.float64, scale=1.0):
        self.rng = torch.Generator().manual_seed(seed)
        self.tensors = [
            (scale * torch.randn(*shape, generator=self.rng, dtype=torch.float64)).to(dtype)
            for shape in shapes
        ]

    def results(self, form, asking=None, **settings):
        """The results, and the gradients of the tensors that ask for one, by default all."""
        inputs = [
            x.clone().requires_grad_(asking is None or n in asking)
            for n, x in enumerate(self.tensors)
        ]
        found = self.run(form, inputs, **settings)
        return found + list(gradients(weighted(found), [x for x in inputs if x.requires_grad]))

    def all_but_one(self):
        """Each choice of all tensors but one."""
        numbers = range(len(self.tensors))
        return [[n for n in numbers if n != left_out] for left_out in numbers]
