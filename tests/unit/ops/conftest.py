"""What the tests of the operations share, the recurrences' plain forms among it."""

import copy

import pytest
import torch

from fairseq_doc.ops import matmul
from fairseq_doc.ops.gated_cell import KINDS, GatedCell, lstm_cell
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.recurrence import CELLS, RecurrenceResult

from ..conftest import assert_close, gradients, leaves, relative_errors
from ..device import DEVICE

EVERY_CELL = [
    CELLS[name](gates)
    for name, kind in CELLS.items()
    for gates in (KINDS if issubclass(kind, GatedCell) else KINDS[:1])
]
each_cell = pytest.mark.parametrize("cell", EVERY_CELL, ids=lambda x: f"{x.name}-{x.kind}")


@pytest.fixture(params=matmul.BACKENDS)
def kernel(request, monkeypatch):
    monkeypatch.setattr(matmul, "backend", lambda: request.param)


def loss_and_gradients(form, mixture, target, seed=0, **settings):
    """Of a form of the NLL, with one draw; the tokens' losses have unequal factors."""
    torch.manual_seed(seed)
    inputs = leaves(mixture)
    loss = form(Mixture(*inputs), target, **settings)
    factors = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).view_as(loss)
    return loss.detach(), gradients((loss * factors).sum(), inputs)


def weighted(results):
    """A scalar on which every number has another influence."""
    wide = [x.float() if x.dtype.itemsize == 2 else x for x in results]
    return sum(
        (x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in wide
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

    def results(self, form, asking=None, used=None, **settings):
        """The results, and the gradients of the tensors that ask for one, by default all, where the
        results numbered in ``used``, by default all, have an influence."""
        inputs = [
            x.clone().requires_grad_(asking is None or n in asking)
            for n, x in enumerate(self.tensors)
        ]
        found = self.run(form, inputs, **settings)
        loss = weighted([x for n, x in enumerate(found) if used is None or n in used])
        return found + list(gradients(loss, [x for x in inputs if x.requires_grad]))

    def check(self, own, plain, asking=None, used=None, **settings):
        """Both forms have equal results and gradients."""
        forms = own, plain
        assert_close(*(self.results(form, asking, used, **settings) for form in forms))

    def check_partial_gradients(self, own, plain):
        """Of all tensors but one."""
        numbers = set(range(len(self.tensors)))
        for left_out in numbers:
            self.check(own, plain, asking=numbers - {left_out})

    def exact(self):
        """The same numbers in float64."""
        case = copy.copy(self)
        case.tensors = [x.double() for x in self.tensors]
        return case

    def check_error(self, own, plain, factors):
        """Of float32 numbers, with rounded ``factors`` of the products, it is at most the plain
        form's under autocast, with a margin."""
        truth, ours = self.exact().results(plain), self.results(own, dtype=factors)
        assert {x.dtype for x in ours} == {torch.float32}
        errors, floor = relative_errors(ours, truth), torch.finfo(factors).eps

        def rounded(*arguments, **settings):
            with torch.autocast(DEVICE.type, factors, enabled=factors != torch.float32):
                return plain(*arguments, **settings)

        of_plain = relative_errors(self.results(rounded), truth)
        assert (errors <= 1.5 * of_plain + 0.2 * floor).all() and errors.max() < 16 * floor

    def check_precisions(self, own, plain):
        """In float32 and with factors in bfloat16; autocast changes nothing."""
        for factors in (torch.float32, torch.bfloat16):
            self.check_error(own, plain, factors)
        outside = self.results(own)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            assert_close(self.results(own), outside, rtol=0, atol=0)


def recurrence_reference(
    cell, inputs, hidden, cell_state, weights, biases=(), state_mask=None, recurrent_mask=None
):
    """The plain form of :func:`recurrence`, a loop for autograd."""
    outputs, state = [], (hidden, cell_state)
    for u in inputs:
        for weight, added in zip(weights, [u, *biases], strict=True):
            read = state[0] if state_mask is None else state[0] * state_mask
            state = cell.plain_step(added, read @ weight.t(), state, recurrent_mask)
        outputs.append(state[0])
    return RecurrenceResult(torch.stack(outputs), state[1])


def mogrifier_reference(
    inputs,
    hidden,
    cell,
    input_weight,
    state_weight,
    bias,
    rounds,
    kind="untied",
    state_mask=None,
    recurrent_mask=None,
):
    """The plain form of :func:`mogrifier`, likewise."""
    outputs = []
    for x in inputs:
        h = hidden if state_mask is None else hidden * state_mask
        for number, (matrices, gate_bias) in enumerate(rounds):
            product = x if number % 2 else h
            for matrix in reversed(matrices):
                product = product @ matrix.t()
            gate = 2 * torch.sigmoid(product + gate_bias)
            if number % 2:
                h = gate * h
            else:
                x = gate * x
        z = x @ input_weight.t() + h @ state_weight.t() + bias
        hidden, cell = lstm_cell(z, cell, kind, recurrent_mask)
        outputs.append(hidden)
    return RecurrenceResult(torch.stack(outputs), cell)
