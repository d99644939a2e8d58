"""The encoder's stacks in one padded batch against each sentence alone, which the tests of
lstm_luong_doc compare with the stacks by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.modules.bilstm import BidirectionalLSTM

from ..conftest import assert_close, drop_factors, gradients, leaves
from ..device import on_device
from ..ops.conftest import weighted

E, D = 4, 3
FORMS = {
    "both": {},
    "mixed": {"mix": True},
    "forward only": {"bidirectional": False},
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "three mixed": {"layers": 3, "mix": True},
}


def encoder(form="both", seed=0, **options):
    torch.manual_seed(seed)
    lstm = BidirectionalLSTM(E, D, **{"layers": 2, **FORMS[form], **options}).double()
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(2)
    return on_device(lstm)


def alone(lstm, x):
    """memory (S, D), h and c (N, D) of one sentence x (S, E) without padding."""
    memory, hidden, cell = lstm(x.unsqueeze(1), torch.zeros(1, len(x), dtype=torch.bool))
    return memory[0], hidden[:, 0], cell[:, 0]


def sentences(lengths, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(length, E, generator=rng, dtype=torch.float64) for length in lengths]


def batch(parts, places, size):
    """x (S, B, E) and padding (B, S), sentence b starting at places[b]; padding is full of numbers,
    as an embedding of padding is."""
    rng = torch.Generator().manual_seed(7)
    x = 5 * torch.randn(size, len(parts), E, generator=rng, dtype=torch.float64)
    padding = torch.ones(len(parts), size, dtype=torch.bool)
    for b, (part, place) in enumerate(zip(parts, places, strict=True)):
        x[place : place + len(part), b] = part
        padding[b, place : place + len(part)] = False
    return x, padding


@settings(max_examples=40)
@given(
    st.sampled_from(list(FORMS)),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_the_result_of_a_sentence_does_not_depend_on_its_batch(form, sizes, seed):
    lengths, places = zip(*sizes, strict=True)
    size = max(length + place for length, place in sizes)
    lstm, parts = encoder(form, seed), sentences(lengths, seed)
    x, padding = batch(parts, places, size)
    x.requires_grad_()
    memory, hidden, cell = lstm(x, padding)
    assert memory.shape == (len(parts), size, D)
    assert (memory[padding] == 0).all()
    parts, found, expected = leaves(parts), [], []
    for b, (part, place) in enumerate(zip(parts, places, strict=True)):
        found += [memory[b, place : place + len(part)], hidden[:, b], cell[:, b]]
        expected += alone(lstm, part)
    assert_close(found, expected, rtol=1e-10, atol=1e-12)
    parameters = list(lstm.parameters())
    of_x, *found = gradients(weighted(found) + memory[padding].sum(), [x, *parameters])
    expected = gradients(weighted(expected), [*parts, *parameters])
    assert_close(found, list(expected[len(parts) :]))
    assert (of_x.transpose(0, 1)[padding] == 0).all()
    for b, (place, gradient) in enumerate(zip(places, expected, strict=False)):
        assert_close(of_x[place : place + len(gradient), b], gradient)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_closed_gates_are_exact_in_every_dtype(dtype, scale):
    """However large the embedding of padding is."""
    lstm = encoder("three mixed").to(dtype)
    x, padding = batch(sentences([4, 1, 6]), [1, 3, 0], 6)
    at_padding = padding.t().unsqueeze(2)
    x, other = x.to(dtype), torch.where(at_padding, scale, x).to(dtype)
    x.requires_grad_()
    found, expected = lstm(x, padding), lstm(other, padding)
    assert all(torch.isfinite(part).all() for part in found)
    assert_close(found, expected, rtol=0, atol=0)
    assert (found[0][padding] == 0).all()
    (gradient,) = gradients(sum(part.float().sum() for part in found), [x])
    assert (gradient.transpose(0, 1)[padding] == 0).all()
    assert (gradient.transpose(0, 1)[~padding].abs().sum(1) > 0).all()


@pytest.mark.parametrize("form", ["three layers", "three mixed"])
def test_dropout_is_between_layers_alone(form):
    lstm, seen = encoder(form, dropout=0.25).train(), {}  # what each layer read and gave
    for d, stack in enumerate(lstm.stacks):
        for n, layer in enumerate(stack):
            layer.register_forward_hook(
                lambda _, args, result, at=(d, n): seen.update({at: (args[0], result[0])})
            )
    torch.manual_seed(1)
    x = torch.randn(20, 3, E, dtype=torch.float64)
    memory, _, _ = lstm(x, torch.zeros(3, 20, dtype=torch.bool))
    assert_close(seen[0, 0][0], x, rtol=0, atol=0)
    assert_close(seen[1, 0][0], x.flip(0), rtol=0, atol=0)
    for n in (1, 2):
        outputs = [seen[d, n - 1][1] for d in range(2)]
        if form == "three mixed":
            total = outputs[0] + outputs[1].flip(0)
            assert_close(seen[1, n][0], seen[0, n][0].flip(0))  # one mask for both directions
            outputs = [total, total.flip(0)]
        factors = [drop_factors(seen[d, n][0], outputs[d], 0.25) for d in range(2)]
        assert not any(torch.equal(factor[0], factor[1]) for factor in factors)  # a mask a step
        if form == "three layers":
            assert not torch.equal(factors[0], factors[1])
    assert_close(memory.transpose(0, 1), seen[0, 2][1] + seen[1, 2][1].flip(0))
