import pytest
import torch
from torch import nn

from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.modules.dropout import keep_mask
from fairseq_doc.ops.mogrifier import Round

from ..conftest import assert_close, drop_factors, gradients
from ..device import DEVICE, on_device
from ..ops.conftest import mogrifier_reference

T, B = 7, 3


def network(widths, **settings):
    """With random biases of a Mogrifier's gates too."""
    torch.manual_seed(0)
    stack = AWDLSTM(widths, **settings)
    for name, parameter in stack.named_parameters():
        if name.startswith("mogrifiers") and name.endswith("bias"):
            nn.init.normal_(parameter)
    return on_device(stack.double())


def inputs(lstm, width):
    x = torch.randn(T, B, width, dtype=torch.float64)
    return x, lstm.zero_state(B, x)


def test_evaluation_is_a_chain_of_plain_lstms():
    """To the bit, with the parameters that they would draw."""
    lstm = network([4, 6, 5], weight_drop=0.5, hidden_dropout=0.5, output_dropout=0.5).eval()
    torch.manual_seed(0)
    plain = on_device(nn.ModuleList([nn.LSTM(4, 6), nn.LSTM(6, 5)]).double())
    expected = {f"layers.{name}": weight for name, weight in plain.state_dict().items()}
    assert list(lstm.state_dict()) == list(expected)
    assert_close(lstm.state_dict(), expected, rtol=0, atol=0)
    x, zeros = inputs(lstm, 4)
    start = [tuple(torch.randn_like(part) for part in layer) for layer in zeros]
    outputs, undropped, state = lstm(x, start)
    for layer, before, output, after in zip(plain, start, outputs, state, strict=True):
        x, last = layer(x, before)
        assert_close((output, after), (x, last), rtol=0, atol=0)
    assert undropped is outputs[-1]


@pytest.mark.parametrize("rank", [None, 2])
def test_each_layer_is_the_gated_recurrence_with_its_own_gates(rank):
    settings = {"mogrifier_rounds": 4, "mogrifier_rank": rank, "hidden_dropout": 0.5}
    stack = network([4, 6, 5], **settings, output_dropout=0.5, weight_drop=0.5).eval()
    x, zeros = inputs(stack, 4)
    state = [tuple(torch.randn_like(part) for part in layer) for layer in zeros]
    outputs, undropped, after = stack(x, state)
    for n, layer in enumerate(stack.layers):
        w = dict(layer.named_parameters())
        bias = w["bias_ih_l0"] + w["bias_hh_l0"]
        rounds = [Round(tuple(g.matrices), g.bias) for g in stack.mogrifiers[n].rounds]
        assert len(rounds) == 4 and {len(r.matrices) for r in rounds} == {1 if rank is None else 2}
        weights = w["weight_ih_l0"], w["weight_hh_l0"], bias
        h, c = (part[0] for part in state[n])
        x, c = mogrifier_reference(x, h, c, *weights, rounds)
        assert_close(outputs[n], x)
        assert_close(after[n], (x[-1:], c[None]))
    assert undropped is outputs[-1]


@pytest.mark.parametrize("rounds", [0, 3])
def test_dropped_recurrent_matrix_one_mask_a_forward_pass(rounds):
    """Outputs are those of a stack whose matrices are the masked ones, at every step; so are the
    gradients, times the masks and their scale."""
    settings = {"mogrifier_rounds": rounds, "mogrifier_rank": 2 if rounds else None}
    dropping, plain = (network([4, 6, 5], weight_drop=p, **settings) for p in (0.4, 0.0))
    x, zeros = inputs(plain, 4)
    torch.manual_seed(5)
    found = dropping(x, zeros)
    torch.manual_seed(5)
    factors = {}
    for n, layer in enumerate(plain.layers):
        mask, scale = keep_mask(layer.weight_hh_l0.shape, 0.4, DEVICE)
        factors[f"layers.{n}.weight_hh_l0"] = mask.double() * scale
        with torch.no_grad():
            layer.weight_hh_l0.mul_(mask.double() * scale)
    expected = plain(x, zeros)
    assert_close(found, expected)
    ours, theirs = (
        gradients(outputs[-1].square().sum(), list(stack.parameters()))
        for stack, (outputs, _, _) in ((dropping, found), (plain, expected))
    )
    for (name, _), mine, other in zip(plain.named_parameters(), ours, theirs, strict=True):
        assert_close(mine, other * factors.get(name, 1))


def test_every_forward_pass_and_every_layer_draws_its_own_mask():
    lstm = network([5, 5, 5], weight_drop=0.5)
    lstm.layers[1].load_state_dict(lstm.layers[0].state_dict())
    x, zeros = inputs(lstm, 5)
    first, second = (lstm(x, zeros)[0] for _ in range(2))
    assert not torch.equal(first[0], second[0])
    # A gradient is zero exactly where the mask is.
    one, two = gradients(first[1].sum(), [layer.weight_hh_l0 for layer in lstm.layers])
    assert not torch.equal(one != 0, two != 0)


def test_dropped_outputs_feed_the_next_layer_and_the_last_is_returned_undropped_too():
    hidden, output = 0.25, 0.5
    lstm = network([4, 6, 7, 5], hidden_dropout=hidden, output_dropout=output)
    x, zeros = inputs(lstm, 4)
    received, before_dropout = [], []

    def record(layer, args, result):
        received.append(args[0])
        before_dropout.append(result[0])

    for layer in lstm.layers:
        layer.register_forward_hook(record)
    outputs, undropped, _ = lstm(x, zeros)
    assert received[0] is x
    assert all(a is b for a, b in zip(received[1:], outputs[:-1], strict=True))
    assert undropped is before_dropout[-1]
    rates = [hidden, hidden, output]
    for dropped, raw, p in zip(outputs, before_dropout, rates, strict=True):
        factor = drop_factors(dropped, raw, p)
        assert torch.equal(factor, factor[:1].expand_as(factor))  # one mask a sequence
        assert not torch.equal(factor[0, 0], factor[0, 1])
