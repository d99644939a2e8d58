import pytest
import torch
from torch import nn

from fairseq_doc.modules.attentional_lstm import AttentionalLSTM, State
from fairseq_doc.modules.luong_attention import SCORES

from ..conftest import assert_close, gradients

T, B, S, E, D = 4, 2, 5, 3, 4
PADDING = torch.tensor([[False] * 5, [True, False, False, False, True]])
everywhere = pytest.mark.parametrize("input_feeding", [True, False])
scores = pytest.mark.parametrize("score", SCORES)
layers = pytest.mark.parametrize("layers", [1, 2, 3])


def decoder(score="general", input_feeding=True, layers=2, dropout=0.0):
    torch.manual_seed(0)
    module = AttentionalLSTM(E, D, layers, dropout, score, input_feeding).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    return module


def inputs(k=1, layers=2):
    """e (T, k B, E), the memory (B, S, D), h and c (N, k B, D)."""
    rng = torch.Generator().manual_seed(0)
    shapes = ((T, k * B, E), (B, S, D), (layers, k * B, D), (layers, k * B, D))
    return [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in shapes]


def run(module, embedded, memory, hidden, cell):
    return module(embedded, module.prepare(memory, PADDING), module.start(hidden, cell))


def by_hand(module, embedded, memory, hidden, cell):
    """A loop over steps, rows and layers, with nn.LSTMCell: layer 1 reads [a_{t-1} ; e_t], or e_t."""
    attention, rows = module.attention, embedded.size(1)
    k = rows // len(memory)
    hidden, cell = ([list(layer) for layer in part] for part in (hidden, cell))
    fed = [embedded.new_zeros(D) for _ in range(rows)]
    outputs = [embedded.new_zeros(T, rows, D) for _ in module.layers]
    attentional, weights = embedded.new_zeros(T, rows, D), embedded.new_zeros(T, rows, S)
    for t in range(T):
        for r in range(rows):
            x = embedded[t, r]
            if module.input_feeding:
                x = torch.cat([fed[r], x])
            for n, layer in enumerate(module.layers):
                lstm = nn.LSTMCell(len(x), D).double()
                named = {name: weight for name, weight in layer.named_parameters()}
                lstm.load_state_dict({name: named[f"{name}_l0"] for name in lstm.state_dict()})
                h, c = lstm(x[None], (hidden[n][r][None], cell[n][r][None]))
                outputs[n][t, r] = x = hidden[n][r] = h[0]
                cell[n][r] = c[0]
            m = memory[r // k][~PADDING[r // k]]
            if attention.score == "general":
                score = m @ attention.general.weight.t() @ x
            elif attention.score == "dot":
                score = m @ x
            else:
                both = torch.cat([x.expand(len(m), D), m], dim=1)
                score = torch.tanh(both @ attention.concat.weight.t()) @ attention.vector
            p = score.softmax(0)
            weights[t, r, ~PADDING[r // k]] = p
            fed[r] = torch.tanh(attention.combine.weight @ torch.cat([x, p @ m]))
            attentional[t, r] = fed[r]
    stacked = (torch.stack([torch.stack(layer) for layer in part]) for part in (hidden, cell))
    return outputs, attentional, weights, State(attentional[-1], *stacked)


@everywhere
@scores
@layers
@pytest.mark.parametrize("k", [1, 3])
@torch.no_grad()
def test_it_is_a_loop_over_lstm_cells_and_attention(score, input_feeding, layers, k):
    module, x = decoder(score, input_feeding, layers), inputs(k, layers)
    assert_close(run(module, *x), by_hand(module, *x))


@everywhere
@scores
@pytest.mark.parametrize("cuts", [(1, 2, 3), (2,)])
def test_step_by_step_is_all_at_once(score, input_feeding, cuts):
    """Chained by the state; gradients too."""
    module, x = decoder(score, input_feeding), inputs(3)
    expected, before_last = run(module, *x)[:3], run(module, *x)[3]
    prepared, state = module.prepare(x[1], PADDING), module.start(*x[2:])
    parts = []
    for part in torch.tensor_split(x[0], cuts):
        *results, state = module(part, prepared, state)
        parts.append(results)
    outputs = [torch.cat(steps) for steps in zip(*(part[0] for part in parts), strict=True)]
    found = (outputs, *(torch.cat([part[n] for part in parts]) for n in (1, 2)))
    assert_close(found, expected)
    assert_close(state, before_last)
    parameters = list(module.parameters())
    losses = (a.square().sum() + outputs[0].sum() for outputs, a, _ in (found, expected))
    assert_close(*(gradients(loss, parameters) for loss in losses))


@everywhere
@scores
def test_hypotheses_of_a_sentence_share_its_memory(score, input_feeding):
    """As with the memory repeated for each row."""
    module, (embedded, memory, hidden, cell) = decoder(score, input_feeding), inputs(3)
    found = run(module, embedded, memory, hidden, cell)
    repeated = module.prepare(memory.repeat_interleave(3, 0), PADDING.repeat_interleave(3, 0))
    assert_close(found, module(embedded, repeated, module.start(hidden, cell)))


@everywhere
@scores
def test_gradients_are_those_of_the_loop(score, input_feeding):
    """Of the inputs, and, since nn.LSTMCell copies its weights, of the attention alone."""
    module, x = decoder(score, input_feeding), [y.requires_grad_() for y in inputs(2)]
    asked = [*x, *module.attention.parameters()]
    grads = []
    for outputs, a, _, state in (run(module, *x), by_hand(module, *x)):
        loss = a.square().sum() + outputs[0].sum() + outputs[1].square().sum()
        grads.append(gradients(loss + state.cell.square().sum() + state.hidden.sum(), asked))
    assert_close(*grads)
    assert (grads[0][1][PADDING] == 0).all() and (grads[0][1][~PADDING] != 0).any(1).all()


def test_start_is_the_encoders_state_and_zeros_to_feed():
    hidden, cell = inputs()[2:]
    state = decoder().start(hidden, cell)
    assert state.hidden is hidden and state.cell is cell
    assert state.attentional.shape == (B, D) and not state.attentional.any()


@everywhere
@pytest.mark.parametrize("score", ["general", "concat"])
def test_dropout_is_between_layers_alone(score, input_feeding):
    """Of the outputs of layers 1 and 2 of three, as returned; what is handed on is not dropped."""
    module = decoder(score, input_feeding, layers=3, dropout=0.25).train()
    embedded, memory, hidden, cell = inputs(layers=3)
    embedded = embedded.repeat(10, 3, 1)
    state = (hidden.repeat(1, 3, 1), cell.repeat(1, 3, 1))
    outputs, attentional, _, after = run(module, embedded, memory, *state)
    for n, output in enumerate(outputs[:2]):
        dropped = (output == 0).double().mean()
        assert 0.1 < dropped < 0.4
        assert not torch.equal(output[0] == 0, output[1] == 0)  # a mask a step
        kept = output[-1] != 0
        assert_close(output[-1][kept], after.hidden[n][kept] / 0.75)
    assert (outputs[2] != 0).all() and (attentional != 0).all()
    assert_close(outputs[2][-1], after.hidden[2])


@everywhere
def test_dropped_outputs_are_the_next_layers_inputs(input_feeding):
    """The first step's mask is found in the output and applied by hand."""
    module = decoder(input_feeding=input_feeding, layers=2, dropout=0.5).train()
    x = inputs()
    embedded, memory, hidden, cell = x
    torch.manual_seed(3)
    outputs, *_ = run(module, embedded[:1], memory, hidden, cell)
    first, second = module.layers
    read = embedded[:1]
    if input_feeding:
        read = torch.cat([read.new_zeros(1, B, D), read], dim=2)
    undropped, _ = first(read, (hidden[:1], cell[:1]))
    mask = (outputs[0] != 0).double() * 2
    assert 0 < (mask == 0).sum() < mask.numel()
    assert_close(outputs[0], undropped * mask)
    assert_close(outputs[1], second(undropped * mask, (hidden[1:], cell[1:]))[0])


@everywhere
def test_nothing_is_dropped_in_evaluation(input_feeding):
    x = inputs()
    found = run(decoder(input_feeding=input_feeding, dropout=0.5).eval(), *x)
    assert_close(found, run(decoder(input_feeding=input_feeding), *x), rtol=0, atol=0)
