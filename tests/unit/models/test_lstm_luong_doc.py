"""The encoder-decoder against the same model written sentence by sentence and step by step, and its
beam search, through fairseq's own generator, against that."""

import copy
import functools
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.lstm_luong_doc import PRESETS, LSTMLuongDocConfig

from ..conftest import assert_close, gradients, small_dictionary, small_translation_model

V = 20
PAD, EOS, UNK = 1, 2, 3
# Ragged sources, each ended as fairseq does.
SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [10, 4, 11, EOS]]
TARGETS = [[EOS, 12, 13], [EOS, 5, 6, 7, 8], [EOS]]  # shifted by one
JOINT = (small_dictionary(), small_dictionary())
OPTIONS = {
    "default": {},
    "embedding only": {"doc_components": "3,0,0,0"},
    "every layer": {"doc_components": "1,2,1,1"},
    "h1 alone": {"doc_components": "0,2,0,0"},
    "mixture of softmaxes": {"doc_components": "0,0,0,3"},
    "one softmax": {"doc_components": "0,0,0,1"},
    "plain output": {"doc_components": "0,0,0,1", "plain_output": True},
    "linear": {"doc_activation": "linear"},
    "narrow components": {"component_dim": 2},
    "tied": {"share_decoder_input_output_embed": True},
    "all tied": {"share_all_embeddings": True, "encoder_embed_dim": 4, "dictionaries": JOINT},
    "forward encoder": {"unidirectional_encoder": True},
    "mixed directions": {"mix_directions": True},
    "no input feeding": {"no_input_feeding": True},
    "dot": {"attention_score": "dot"},
    "concat": {"attention_score": "concat"},
    "concat, no input feeding": {"attention_score": "concat", "no_input_feeding": True},
    "one layer": {"layers": 1, "doc_components": "1,1,2"},
    "three layers": {"layers": 3, "doc_components": "0,1,0,1,2"},
    "plain tied": {
        "doc_components": "0,0,0,1",
        "plain_output": True,
        "share_decoder_input_output_embed": True,
        "decoder_embed_dim": 5,
    },
}
every_option = pytest.mark.parametrize("option", OPTIONS)


@functools.cache
def shared_model(option="default", seed=0):
    """With a source that matters."""
    model = small_translation_model(seed=seed, **OPTIONS[option]).eval()
    with torch.no_grad():
        model.encoder.embedding.mul_(3)
    return model


def padded(rows, side="right", size=None):
    """(B, size) tokens; ``side`` is where the padding is; "both" puts one place of it to the left."""
    size = size or max(map(len, rows)) + (2 if side == "both" else 0)
    tokens = torch.full((len(rows), size), PAD)
    for row, words in zip(tokens, rows, strict=True):
        start = {"right": 0, "left": size - len(words), "both": 1}[side]
        row[start : start + len(words)] = torch.tensor(words)
    return tokens


def log_probs(model, sources, targets):
    output = model(src_tokens=sources, src_lengths=None, prev_output_tokens=targets)
    return model.get_normalized_probs(output, log_probs=True), output[1]["attn"][0]


# The same model by hand


def lstm_step(layer, x, h, c):
    gates = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ h + layer.bias_hh_l0
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def read(layer, xs):
    """The outputs of one layer over a sentence, and its last state."""
    h = c = xs[0].new_zeros(layer.hidden_size)
    outputs = []
    for x in xs:
        h, c = lstm_step(layer, x, h, c)
        outputs.append(h)
    return outputs, h, c


def encode_by_hand(model, source):
    """memory, and h and c of each layer, of one sentence."""
    embedded = [model.encoder.embedding[word] for word in source]
    lstm, states, inputs = model.encoder.lstm, [], None
    for layers in zip(*lstm.stacks, strict=True):
        if inputs is None:
            inputs = [embedded] * len(layers)
        runs = [read(layers[0], inputs[0])]
        if len(layers) == 2:
            outputs, *last = read(layers[1], inputs[1][::-1])
            runs.append((outputs[::-1], *last))
        states.append([sum(run[n] for run in runs) for n in (1, 2)])
        both = [sum(outputs) for outputs in zip(*(run[0] for run in runs), strict=True)]
        inputs = [both] * len(runs) if lstm.mix else [run[0] for run in runs]
    return both, states


def probs_by_hand(model, source, target):
    """P of every word after each of target's (T, V), and attention (T, S): Eqs. 7, 10, 11."""
    decoder, attention, output = model.decoder, model.decoder.lstm.attention, model.decoder.output
    memory, states = encode_by_hand(model, source)
    fed, probs, attn = memory[0].new_zeros(len(memory[0])), [], []
    for word in target:
        layers = [decoder.embedding[word]]
        x = torch.cat([fed, layers[0]]) if decoder.lstm.input_feeding else layers[0]
        for n, layer in enumerate(decoder.lstm.layers):
            states[n] = lstm_step(layer, x, *states[n])
            x = states[n][0]
            layers.append(x)
        if attention.score == "dot":
            scores = [x @ m for m in memory]
        elif attention.score == "general":
            scores = [x @ attention.general.weight @ m for m in memory]
        else:
            weight = attention.concat.weight
            scores = [attention.vector @ torch.tanh(weight @ torch.cat([x, m])) for m in memory]
        powers = torch.stack(scores).exp()
        attn.append(powers / powers.sum())
        context = sum(p * m for p, m in zip(attn[-1], memory, strict=True))
        fed = torch.tanh(attention.combine.weight @ torch.cat([x, context]))
        layers.append(fed)
        vectors = [fed] if not output.projections else []
        for n, projection in output.projections.items():
            k = projection.weight @ layers[int(n)] + projection.bias
            vectors += (k if output.activation(torch.tensor(9.0)) > 1 else k.tanh()).split(
                output.dim
            )
        pi = torch.ones(1)
        if output.mixture_weights is not None:
            pi = (output.mixture_weights.weight @ fed).exp()
            pi = pi / pi.sum()
        p = 0.0
        for share, k in zip(pi, vectors, strict=True):
            powers = (output.weight @ k + output.bias).exp()
            p = p + share * powers / powers.sum()
        probs.append(p)
    return torch.stack(probs), torch.stack(attn)


def test_probabilities_are_far_from_even():
    """So that the comparisons below can tell."""
    probs, attn = probs_by_hand(shared_model(), SOURCES[0], TARGETS[1])
    assert probs.max() > 0.25 and attn.max() > 0.25  # of 20 words and 5 places
    assert_close(probs.sum(1), torch.ones(5))


@every_option
def test_values_and_gradients_are_those_by_hand(option):
    """Of a padded batch, each sentence by itself; of every parameter."""
    model = shared_model(option)
    found, attn = log_probs(model, padded(SOURCES, "left"), padded(TARGETS))
    parameters = list(model.parameters())
    loss = truth = 0.0
    for b, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        probs, weights = probs_by_hand(model, source, target)
        assert_close(found[b, : len(target)].exp(), probs, rtol=1e-9, atol=1e-12)
        assert_close(attn[b, : len(target), -len(source) :], weights, rtol=1e-9, atol=1e-12)
        labels = torch.linspace(0, 1, probs.numel(), dtype=torch.float64).view_as(probs)
        loss = loss - (labels * found[b, : len(target)]).sum()
        truth = truth - (labels * probs.log()).sum()
    names = [name for name, _ in model.named_parameters()]
    grads = [dict(zip(names, gradients(x, parameters), strict=True)) for x in (loss, truth)]
    assert_close(*grads, rtol=1e-8, atol=1e-9)


@every_option
def test_loss_and_gradients_in_training_are_those_by_hand(option):
    """The loss that the criterion takes, which knows no (R, T, V)."""
    model = shared_model(option)
    target = padded([[*row[1:], EOS] for row in TARGETS])
    output = model(padded(SOURCES, "left"), None, padded(TARGETS))
    truth = 0.0
    for source, row in zip(SOURCES, TARGETS, strict=True):
        probs, _ = probs_by_hand(model, source, row)
        for p, y in zip(probs, [*row[1:], EOS], strict=True):
            truth = truth - p[y].log()
    loss = model.token_nll(output, target, PAD)
    assert_close(loss, truth)
    assert_close(model.smoothed_nll(output, target, 0.0, PAD)[0], truth)
    parameters = list(model.parameters())
    names = [name for name, _ in model.named_parameters()]
    grads = [dict(zip(names, gradients(x, parameters), strict=True)) for x in (loss, truth)]
    assert_close(*grads, rtol=1e-8, atol=1e-9)


@every_option
def test_every_parameter_gets_a_gradient(option):
    model = small_translation_model(**OPTIONS[option])
    output = model(padded(SOURCES), None, padded(TARGETS))
    model.token_nll(output, padded([[*row[1:], EOS] for row in TARGETS]), PAD).backward()
    idle = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    top = OPTIONS[option].get("doc_components", "1,0,1,2").split(",")[-1]
    if top == "0" and model.decoder.output.mixture_weights is None:
        assert all("attention" in name for name in idle)
    else:
        assert idle == []


@pytest.mark.parametrize("option", ["mixed directions", "linear"])
def test_options_without_parameters_of_their_own_change_the_model(option):
    """The comparison by hand reads them from the modules, so that they must get there."""
    model = small_translation_model(**OPTIONS[option]).eval()
    model.load_state_dict(shared_model().state_dict())
    args = padded(SOURCES, "left"), padded(TARGETS)
    found, expected = (log_probs(each, *args)[0] for each in (model, shared_model()))
    assert (found - expected).abs().max() > 1e-3


# Padding


@pytest.mark.parametrize("option", ["default", "no input feeding", "concat", "mixed directions"])
@pytest.mark.parametrize("source_side", ["left", "right", "both"])
@pytest.mark.parametrize("target_side", ["left", "right"])
def test_padding_and_batch_mates_change_nothing(option, source_side, target_side):
    model = shared_model(option)
    sources, targets = padded(SOURCES, source_side), padded(TARGETS, target_side)
    found, attn = log_probs(model, sources, targets)
    assert attn.shape == (*targets.shape, sources.size(1))
    for b, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, weights = log_probs(model, torch.tensor([source]), torch.tensor([target]))
        assert_close(found[b][targets[b] != PAD], expected[0])
        real = attn[b][targets[b] != PAD]
        assert_close(real[:, sources[b] != PAD], weights[0])
        assert (real[:, sources[b] == PAD] == 0).all()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3), st.randoms())
def test_any_batch_mates(lengths, extra, random):
    model = shared_model()
    sources = [[random.randrange(2, V) for _ in range(length)] for length in lengths]
    side = random.choice(["left", "right"])
    with torch.no_grad():
        found, attn = log_probs(
            model,
            padded(sources, side, max(lengths) + extra),
            torch.tensor([[EOS, 7, 9]] * len(sources)),
        )
        for b, source in enumerate(sources):
            expected, _ = log_probs(model, torch.tensor([source]), torch.tensor([[EOS, 7, 9]]))
            assert_close(found[b], expected[0])
            assert (attn[b, :, len(source) :] == 0).all() if side == "right" else True
    assert_close(attn.sum(2), torch.ones(len(sources), 3))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_gets_no_gradient(side):
    model = small_translation_model()
    target = padded([[*row[1:], EOS] for row in TARGETS], side)
    output = model(padded(SOURCES, side), None, padded(TARGETS, side))
    model.token_nll(output, target, PAD).backward()
    for embedding, rows in ((model.encoder.embedding, SOURCES), (model.decoder.embedding, TARGETS)):
        used = {word for row in rows for word in row}
        moved = embedding.grad.abs().sum(1).gt(0).nonzero().flatten().tolist()
        assert set(moved) == used


def test_a_source_of_unknown_words_alone():
    model = shared_model()
    found, _ = log_probs(model, torch.tensor([[UNK, UNK, EOS]]), torch.tensor([[EOS, UNK]]))
    probs, _ = probs_by_hand(model, [UNK, UNK, EOS], [EOS, UNK])
    assert_close(found[0].exp(), probs)


# Incremental decoding


def decode(model, sources, targets, k=1, orders=None):
    """Step by step, k rows a sentence; before step t the rows ``orders[t]`` are taken."""
    encoder_out = model.encoder(sources)
    rows = torch.arange(len(sources)).repeat_interleave(k)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, rows)
    state, found = {}, []
    for t in range(targets.size(1)):
        if t and orders:
            model.decoder.reorder_incremental_state_scripting(state, orders[t])
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, orders[t])
            targets = targets[orders[t]]
            rows = rows[orders[t]]
        output = model.decoder(targets[:, : t + 1], encoder_out, state)
        found.append(
            (model.get_normalized_probs(output, True), output[1]["attn"][0], rows, targets)
        )
    return found


@every_option
@pytest.mark.parametrize("k", [1, 3])
@torch.no_grad()
def test_step_by_step_is_all_at_once(option, k):
    model, sources = shared_model(option), padded(SOURCES, "left")
    rng = torch.Generator().manual_seed(0)
    targets = torch.randint(4, V, (3 * k, 4), generator=rng)
    targets[:, 0] = EOS
    found = decode(model, sources, targets, k)
    expected, attn = log_probs(model, sources.repeat_interleave(k, 0), targets)
    assert_close(torch.cat([step[0] for step in found], 1), expected)
    assert_close(torch.cat([step[1] for step in found], 1), attn)


@pytest.mark.parametrize("option", ["default", "no input feeding", "concat"])
@pytest.mark.parametrize(
    "orders",
    [
        pytest.param([None, [0, 0, 3, 2, 5, 4], [1, 1, 2, 3, 4, 4]], id="within sentences"),
        pytest.param([None, [2, 3, 4, 5], [0, 1, 3, 3]], id="a sentence leaves"),
        pytest.param([None, [0, 1], [1, 0]], id="one sentence is left"),
        pytest.param([None, [5, 0, 2, 1, 3, 0], [2, 2, 0]], id="rows not grouped"),
        pytest.param([None, [0, 1, 2, 3, 4], [4, 4, 0, 1]], id="groups of unequal size"),
        pytest.param([None, [4, 5, 0, 1], [2, 3, 0, 1]], id="sentences in another order"),
        pytest.param([None, [0, 0, 0, 0, 0, 0, 0], [6, 1]], id="more rows than before"),
        pytest.param([None, [4, 5, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]], id="a sentence again"),
    ],
)
@torch.no_grad()
def test_any_rows_may_be_taken(option, orders):
    model, sources = shared_model(option), padded(SOURCES, "left")
    rng = torch.Generator().manual_seed(1)
    targets = torch.randint(4, V, (6, 3), generator=rng)
    targets[:, 0] = EOS
    orders = [None if order is None else torch.tensor(order) for order in orders]
    for t, (found, attn, rows, taken) in enumerate(decode(model, sources, targets, 2, orders)):
        expected, weights = log_probs(model, sources[rows], taken[:, : t + 1])
        assert_close(found[:, 0], expected[:, -1])
        assert_close(attn[:, 0], weights[:, -1])


@given(st.data())
@hypothesis_settings(max_examples=25)
@torch.no_grad()
def test_any_sequence_of_any_rows(data):
    model, sources = shared_model(), padded(SOURCES, "left")
    targets, count, orders = torch.tensor([[EOS, 5, 6, 7]] * 6), 6, [None]
    targets += torch.arange(6).unsqueeze(1) * torch.tensor([0, 1, 1, 1])
    for _ in range(3):
        row = st.integers(0, count - 1)
        orders.append(torch.tensor(data.draw(st.lists(row, min_size=1, max_size=8))))
        count = len(orders[-1])
    found, attn, rows, taken = decode(model, sources, targets, 2, orders)[-1]
    expected, weights = log_probs(model, sources[rows], taken)
    assert_close(found[:, 0], expected[:, -1])
    assert_close(attn[:, 0], weights[:, -1])


# Beam search


def generate(models, sources=SOURCES, beam=4, prefix=None, **settings):
    """fairseq's hypotheses, best first, of each source; decoding ends after 12 words."""
    generator = SequenceGenerator(
        list(models),
        models[0].decoder.dictionary,
        beam_size=beam,
        max_len_b=settings.pop("max_len_b", 12),
        **settings,
    )
    sample = {"net_input": {"src_tokens": padded(sources, "left")}}
    with torch.no_grad():
        return generator.generate(models, sample, prefix_tokens=prefix)


def score_by_hand(models, source, words, temperature=1.0):
    """log of the mean over models of P_m^(1/T), renormalised, of each word; the attention's mean."""
    probs = attn = 0.0
    for model in models:
        p, weights = probs_by_hand(model, source, [EOS, *words[:-1]])
        powers = p ** (1 / temperature)
        probs = probs + powers / powers.sum(1, keepdim=True) / len(models)
        attn = attn + weights / len(models)
    return probs[range(len(words)), words].log(), attn


def check_hypotheses(models, found, sources, temperature=1.0, **tolerance):
    for source, hypotheses in zip(sources, found, strict=True):
        scores = [float(h["score"]) for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h["tokens"].tolist()) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            words = h["tokens"].tolist()
            expected, attn = score_by_hand(models, source, words, temperature)
            assert words[-1] == EOS and EOS not in words[:-1]
            assert_close(h["positional_scores"], expected, **tolerance)
            assert_close(float(h["score"]), expected.mean().item(), **tolerance)
            size = max(map(len, sources))
            assert h["attention"].shape == (size, len(words))
            places = h["attention"][size - len(source) :].t()
            assert_close(places, attn, rtol=1e-5, atol=1e-6)  # kept in float32 by fairseq
            assert (h["attention"][: size - len(source)] == 0).all()


@every_option
@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_positional_scores_are_those_by_hand(option, beam):
    """Sentences end at different steps and leave the batch."""
    model = shared_model(option)
    found = generate([model], beam=beam)
    assert [len(hypotheses) for hypotheses in found] == [beam] * 3
    check_hypotheses([model], found, SOURCES)


def test_hypotheses_end_at_different_steps():
    """What the test above takes for granted."""
    for beam in (1, 4):
        found = generate([shared_model()], beam=beam)
        last = [max(len(h["tokens"]) for h in hypotheses) for hypotheses in found]
        assert len(set(last)) > 1 and max(last) < 13


@torch.no_grad()
def test_scores_in_float32():
    model = copy.deepcopy(shared_model()).float()
    found = generate([model])
    check_hypotheses([shared_model()], found, SOURCES, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_pass_scoring_gives_the_same_scores():
    """fairseq's scorer (``--score-reference``) takes each hypothesis as a target."""
    model = shared_model()
    found = [hypotheses[0] for hypotheses in generate([model])]
    words = [h["tokens"].tolist() for h in found]
    sample = {
        "net_input": {
            "src_tokens": padded(SOURCES, "left"),
            "src_lengths": None,
            "prev_output_tokens": padded([[EOS, *row[:-1]] for row in words]),
        },
        "target": padded(words),
    }
    scorer = SequenceScorer(model.decoder.dictionary)
    for h, (scored,) in zip(found, scorer.generate([model], sample), strict=True):
        assert_close(scored["positional_scores"], h["positional_scores"])
        assert_close(float(scored["score"]), float(h["score"]))


@pytest.mark.parametrize("option", ["default", "concat", "no input feeding"])
@torch.no_grad()
def test_greedy_search_by_hand_is_beam_one(option):
    model = shared_model(option)
    for source, (hypothesis,) in zip(SOURCES, generate([model], beam=1), strict=True):
        words = []
        while not words or words[-1] != EOS:
            p = probs_by_hand(model, source, [EOS, *words])[0][-1]
            p[PAD] = 0.0
            if not words:
                p[EOS] = 0.0  # fairseq's hypotheses have a word at least
            words.append(EOS if len(words) == 12 else int(p.argmax()))
        assert hypothesis["tokens"].tolist() == words


@torch.no_grad()
def test_a_wide_beam_finds_the_best_of_all():
    """Six words, at most two before the end: every hypothesis is tried by hand."""
    model = small_translation_model(6).eval()
    (found,) = generate([model], [[5, 4, EOS]], beam=5, max_len_b=2, normalize_scores=False)
    words = [0, UNK, 4, 5]
    candidates = [[a, EOS] for a in words] + [[a, b, EOS] for a in words for b in words]
    scores = [float(score_by_hand([model], [5, 4, EOS], c)[0].sum()) for c in candidates]
    assert found[0]["tokens"].tolist() == candidates[scores.index(max(scores))]


@torch.no_grad()
def test_batch_mates_do_not_change_hypotheses():
    model, together = shared_model(), generate([shared_model()])
    for source, hypotheses in zip(SOURCES, together, strict=True):
        (alone,) = generate([model], [source])
        for ours, theirs in zip(hypotheses, alone, strict=True):
            assert torch.equal(ours["tokens"], theirs["tokens"])
            assert_close(ours["positional_scores"], theirs["positional_scores"])


@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_prefix_tokens(beam):
    """Of different lengths; their scores are counted, as of any word."""
    model = shared_model()
    prefix = torch.tensor([[7, 9, 4], [12, PAD, PAD], [PAD, PAD, PAD]])
    found = generate([model], beam=beam, prefix=prefix)
    check_hypotheses([model], found, SOURCES)
    for row, hypotheses in zip(prefix, found, strict=True):
        forced = row[row != PAD]
        assert all(torch.equal(h["tokens"][: len(forced)], forced) for h in hypotheses)


MODELS = ("default", "mixture of softmaxes", "plain output")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("members", [1, 3])
@torch.no_grad()
def test_temperature_and_ensembles(temperature, members):
    """Each model's P^(1/T), renormalised; then the mean, of models with other components."""
    models = [shared_model(option, seed) for seed, option in enumerate(MODELS[:members])]
    found = generate(models, temperature=temperature)
    check_hypotheses(models, found, SOURCES, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
@torch.no_grad()
def test_sampling_draws_with_the_probabilities(temperature):
    """The first word of 4,009 samples, each count within five deviations of N P^(1/T); fairseq
    draws none of the padding nor, before a word, of the end."""
    model, drawn = shared_model(), []
    sample = {"net_input": {"src_tokens": torch.tensor([SOURCES[0]] * 211)}}
    search = Sampling(model.decoder.dictionary)
    for _ in range(2):
        torch.manual_seed(5)
        generator = SequenceGenerator(
            [model],
            model.decoder.dictionary,
            beam_size=19,
            max_len_b=1,
            temperature=temperature,
            search_strategy=search,
        )
        found = generator.generate([model], sample)
        drawn.append([int(h["tokens"][0]) for hypotheses in found for h in hypotheses])
    assert drawn[0] == drawn[1]
    n = len(drawn[0])
    p = probs_by_hand(model, SOURCES[0], [EOS])[0][0]
    p[[PAD, EOS]] = 0.0
    p = p ** (1 / temperature)
    p = p / p.sum()
    counts = torch.bincount(torch.tensor(drawn[0]), minlength=V)
    assert n == 19 * 211
    assert ((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt() + 1e-9).all()


@torch.no_grad()
def test_packed_is_divided_after_the_state_was_kept():
    """The generator divides the decoder's output in place: it must not reach the next step."""
    model = shared_model()
    encoder_out, states = model.encoder(padded(SOURCES, "left")), ({}, {})
    for t in range(3):
        tokens = torch.tensor([[EOS, 7, 9]] * 3)[:, : t + 1]
        kept, divided = (model.decoder(tokens, encoder_out, state)[0] for state in states)
        assert_close(kept, divided, rtol=0, atol=0)
        divided.div_(0.1)


@pytest.mark.parametrize("option", ["default", "tied", "concat"])
@torch.no_grad()
def test_numbers_that_are_none_are_an_error_in_incremental_decoding(option):
    """In any parameter of the decoder: fairseq would take them for scores of minus infinity."""
    untold = []
    for name, _ in shared_model(option).decoder.named_parameters():
        model = copy.deepcopy(shared_model(option))
        dict(model.decoder.named_parameters())[name].fill_(math.nan)
        try:
            generate([model])
            untold.append(name)
        except FairseqDocError as error:
            assert "a score is not finite" in str(error) and "\n" not in str(error)
        except AssertionError:  # fairseq's own, without a word
            untold.append(name)
    assert untold == []


def test_an_output_matrix_with_a_large_sum_is_no_error_in_half_precision():
    """The same shift of all words changes no probability, and 65,504 is the largest half."""
    model = small_translation_model(scale=1.0).half()
    with torch.no_grad():
        model.decoder.output.weight += 700.0
    assert not torch.isfinite(model.decoder.output.weight.sum())
    prev = torch.full((1, 1), model.decoder.dictionary.eos())
    encoded = model.encoder(torch.tensor([[4, 5, 6, 2]]))
    packed, _ = model.decoder(prev, encoded, incremental_state={})
    assert packed.shape[:2] == (1, 1)


# Dropout


def dropped_inputs(**rates):
    """What the output layer gets in training and in evaluation, (B, T, D_n) of each layer."""
    model, caught = small_translation_model(doc_components="1,1,1,1", **rates), []
    model.decoder.output.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
    sources, targets = torch.tensor([[5, 6, 7]] * 4), torch.arange(4, 16).repeat(4, 1)
    torch.manual_seed(0)
    embedded = []
    hook = model.decoder.lstm.register_forward_pre_hook(lambda _, args: embedded.append(args[0]))
    extra = [model(sources, None, targets)[1], model.eval()(sources, None, targets)[1]]
    hook.remove()
    return caught, embedded, extra


def test_dropout_of_the_mixtures_layers():
    (train, whole), embedded, _ = dropped_inputs(dropout=0.5)
    assert_close(embedded[0], embedded[1], rtol=0, atol=0)  # none before the first layer
    factors = (train[0] / whole[0]).round(decimals=9)
    assert set(factors.unique().tolist()) == {0.0, 2.0}
    for n, h in enumerate(train):
        share = (h == 0).double().mean()
        assert 0.35 < share < 0.65, n
        assert not torch.equal(h[:, 0] == 0, h[:, 1] == 0)
        assert (whole[n] != 0).all()


def test_dropout_between_the_encoders_layers():
    for rate, model in (
        (0.5, small_translation_model(dropout=0.5)),
        (0.0, small_translation_model()),
    ):
        caught = []
        for layers in zip(*model.encoder.lstm.stacks, strict=True):
            for layer in layers:
                layer.register_forward_hook(
                    lambda _, args, result, seen=caught: seen.append((args[0], result[0]))
                )
        model.encoder(torch.randint(4, V, (8, 9)))
        first, _, second, _ = caught
        assert first[0].any(2).all()  # the embedding, whole
        assert abs((second[0] == 0).double().mean() - rate) < 0.1
        assert_close(second[0][second[0] != 0], first[1][second[0] != 0] / (1 - rate))


@pytest.mark.parametrize("side", ["source", "target"])
def test_word_dropout_drops_whole_words(side):
    model = small_translation_model(**{f"{side}_dropout": 0.5})
    caught = []
    module = model.encoder.lstm if side == "source" else model.decoder.lstm
    module.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
    sources, targets = torch.arange(4, 16).repeat(3, 1), torch.arange(4, 20).repeat(3, 1)
    model(sources, None, targets)
    model.eval()(sources, None, targets)
    factors = (caught[0] / caught[1]).round(decimals=9)  # (T, B, width)
    assert set(factors.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(factors, factors[:, :1, :1].expand_as(factors))


def test_nothing_is_dropped_in_evaluation():
    rates = {"dropout": 0.5, "source_dropout": 0.5, "target_dropout": 0.5}
    model = small_translation_model(**rates).eval()
    model.load_state_dict(shared_model().state_dict())
    sources, targets = padded(SOURCES, "left"), padded(TARGETS)
    expected = log_probs(shared_model(), sources, targets)
    assert_close(log_probs(model, sources, targets), expected, rtol=0, atol=0)


def test_training_repeats_with_its_seed():
    model = small_translation_model(dropout=0.3, source_dropout=0.1)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model(padded(SOURCES), None, padded(TARGETS))[0])
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


# Building


def task(n_source, n_target):
    return SimpleNamespace(
        source_dictionary=small_dictionary(n_source, "s"),
        target_dictionary=small_dictionary(n_target),
    )


def counted_parameters(cfg, v_source, v_target):
    """From the widths: embeddings; LSTMs with two biases; W_c and the score's; W_j, b_j, W_pi; output
    matrix and bias."""
    width, source, target = cfg.hidden_size, cfg.encoder_embed_dim, cfg.decoder_embed_dim

    def lstm(below):
        return 4 * width * (below + width) + 8 * width

    deeper = (cfg.layers - 1) * lstm(width)
    encoder = (1 if cfg.unidirectional_encoder else 2) * (lstm(source) + deeper)
    decoder = lstm(target if cfg.no_input_feeding else target + width) + deeper
    score = {"general": width**2, "dot": 0, "concat": 2 * width**2 + width}
    attention = 2 * width**2 + score[str(cfg.attention_score)]
    counts = list(map(int, cfg.doc_components.split(",")))
    tied = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
    dim = target if tied else (cfg.component_dim or width)
    widths = [target] + [width] * (cfg.layers + 1)
    mixture = sum(i * dim * (w + 1) for i, w in zip(counts, widths, strict=True))
    mixture = 0 if cfg.plain_output else mixture
    mixture += sum(counts) * width if sum(counts) > 1 else 0
    embeddings = v_source * source + (0 if cfg.share_all_embeddings else v_target * target)
    output = v_target + (0 if tied else v_target * dim)
    return embeddings + encoder + decoder + attention + mixture + output


@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_of_the_presets_are_those_of_the_widths(preset):
    cfg = MODEL_DATACLASS_REGISTRY[preset]()
    with torch.device("meta"):
        model = MODEL_REGISTRY[preset].build_model(cfg, task(600, 500))
    assert sum(p.numel() for p in model.parameters()) == counted_parameters(cfg, 600, 500)


def test_parameters_of_the_papers_model_by_hand():
    """D = 500, i_2 = i_3 = 2, 16,000 words a side: embeddings and output 3 x 8,000,000 + 16,000;
    encoder 2 x 2 x 4 x 500 x 1,002; decoder 4 x 500 x 1,502 and x 1,002; attention 3 x 250,000;
    W_j and b_j 4 x 500 x 501, W_pi 4 x 500."""
    cfg = MODEL_DATACLASS_REGISTRY["lstm_luong_doc_iwslt16"]()
    expected = 24_016_000 + 8_016_000 + 3_004_000 + 2_004_000 + 750_000 + 1_002_000 + 2_000
    assert counted_parameters(cfg, 16_000, 16_000) == expected


@every_option
def test_parameters_of_every_option_are_those_of_the_widths(option):
    given = dict(OPTIONS[option])
    dictionaries = given.pop("dictionaries", None)
    base = {"encoder_embed_dim": 3, "decoder_embed_dim": 4, "hidden_size": 5}
    cfg = LSTMLuongDocConfig(**{**base, "doc_components": "1,0,1,2", **given})
    model = small_translation_model(dictionaries=dictionaries, **given)
    assert sum(p.numel() for p in model.parameters()) == counted_parameters(cfg, V, V)


def test_presets_are_the_papers():
    default, mt, headline, small = (MODEL_DATACLASS_REGISTRY[name]() for name in PRESETS)
    widths = [(c.encoder_embed_dim, c.decoder_embed_dim, c.hidden_size) for c in (default, mt)]
    assert widths == [(500,) * 3] * 2
    assert (headline.encoder_embed_dim, headline.decoder_embed_dim, headline.hidden_size) == (
        400,
    ) * 3
    assert (small.encoder_embed_dim, small.decoder_embed_dim, small.hidden_size) == (256,) * 3
    for cfg in (default, mt, headline, small):
        assert (cfg.layers, cfg.dropout, cfg.doc_components) == (2, 0.3, "0,0,2,2")
        assert not (cfg.plain_output or cfg.no_input_feeding or cfg.unidirectional_encoder)
        assert str(cfg.attention_score) == "general" and str(cfg.doc_activation) == "tanh"


def test_every_option_of_every_preset_has_its_help():
    for preset in PRESETS:
        for name, field in MODEL_DATACLASS_REGISTRY[preset].__dataclass_fields__.items():
            assert name == "_name" or field.metadata["help"], (preset, name)


@every_option
def test_every_parameter_starts_uniform(option):
    """In +-.1: mean 0 and deviation .2 / sqrt(12), within six deviations of a sample's."""
    wide = {"encoder_embed_dim": 32, "decoder_embed_dim": 32, "hidden_size": 32}
    model = small_translation_model(100, scale=1.0, **{
        **wide, **OPTIONS[option],
        **{name: 32 for name in wide if name in OPTIONS[option]},
        **({"dictionaries": (small_dictionary(100),) * 2} if option == "all tied" else {}),
    })  # fmt: skip
    deviation = 0.2 / math.sqrt(12)
    for name, p in model.named_parameters():
        n, p = p.numel(), p.detach()
        assert p.min() >= -0.1 and p.max() <= 0.1, name
        assert abs(p.mean()) < 6 * deviation / math.sqrt(n), name
        assert abs(p.std() - deviation) < 6 * deviation * math.sqrt(0.2 / n) + 1e-4 * (n > 32), name
        assert len(p.unique()) > 0.9 * n, name


def test_tied_matrices():
    untied = shared_model().decoder
    assert untied.output.weight.shape == (V, 5) and untied.output.weight is not untied.embedding
    assert shared_model("narrow components").decoder.output.weight.shape == (V, 2)
    tied = shared_model("tied")
    assert tied.decoder.output.weight is tied.decoder.embedding is not tied.encoder.embedding
    all_tied = shared_model("all tied")
    assert all_tied.encoder.embedding is all_tied.decoder.embedding
    assert all_tied.decoder.output.weight is all_tied.decoder.embedding


def test_dictionaries_of_different_sizes():
    dictionaries = (small_dictionary(9, "s"), small_dictionary(30))
    model = small_translation_model(dictionaries=dictionaries).eval()
    found, _ = log_probs(model, torch.tensor([[8, 4, EOS]]), torch.tensor([[EOS, 29]]))
    assert_close(found[0].exp(), probs_by_hand(model, [8, 4, EOS], [EOS, 29])[0])


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"doc_components": "1,2"}, "--doc-components 1,2: expected 4 numbers, .* got 2"),
        ({"doc_components": "0,0,0,0"}, "at least one positive"),
        ({"doc_components": "a"}, "--doc-components a"),
        ({"layers": 3}, "expected 5 numbers"),
        ({"layers": 0}, "--layers must be at least 1; got 0"),
        ({"hidden_size": 0}, "--hidden-size must be at least 1; got 0"),
        ({"encoder_embed_dim": -1}, "--encoder-embed-dim must be at least 1; got -1"),
        ({"decoder_embed_dim": 0}, "--decoder-embed-dim must be at least 1; got 0"),
        ({"component_dim": 0}, "--component-dim must be at least 1; got 0"),
        ({"dropout": 1.0}, "--dropout must be in"),
        ({"source_dropout": -0.1}, "--source-dropout must be in"),
        ({"target_dropout": 1.5}, "--target-dropout must be in"),
        ({"plain_output": True}, "--plain-output .* expected --doc-components 0,0,0,1"),
        (
            {"plain_output": True, "doc_components": "0,0,0,1", "component_dim": 3},
            "--plain-output",
        ),
        (
            {
                "plain_output": True,
                "doc_components": "0,0,0,1",
                "share_decoder_input_output_embed": True,
            },
            "a last layer 4 wide",
        ),
        (
            {"share_decoder_input_output_embed": True, "component_dim": 5},
            "--component-dim must be --decoder-embed-dim, 4; got 5",
        ),
        ({"mix_directions": True, "unidirectional_encoder": True}, "--mix-directions"),
        ({"share_all_embeddings": True}, "--joined-dictionary"),
        (
            {"share_all_embeddings": True, "dictionaries": JOINT},
            "equal widths; got --encoder-embed-dim 3 and --decoder-embed-dim 4",
        ),
        (
            {
                "share_all_embeddings": True,
                "dictionaries": JOINT,
                "encoder_embed_dim": 4,
                "encoder_embed_path": "a",
                "decoder_embed_path": "b",
            },
            "one file of embeddings",
        ),
        (
            {"encoder_embed_path": "/no/such"},
            "--encoder-embed-path: expected a file; got none at /no/such",
        ),
        (
            {"decoder_embed_path": "/no/such"},
            "--decoder-embed-path: expected a file; got none at /no/such",
        ),
    ],
)
def test_settings_that_do_not_fit_together(settings, problem):
    with pytest.raises(FairseqDocError, match=problem) as caught:
        small_translation_model(**settings)
    assert "\n" not in str(caught.value)


# Pretrained embeddings


def write_vectors(path, vectors):
    lines = [f"{word} {' '.join(map(str, numbers))}" for word, numbers in vectors.items()]
    path.write_text("\n".join([f"{len(lines)} 3", *lines]) + "\n")
    return str(path)


@pytest.mark.parametrize("side, width", [("encoder", 3), ("decoder", 4)])
def test_pretrained_embeddings(tmp_path, side, width):
    """Rows of the words that the file has; the others, and all else, as without."""
    prefix = "s" if side == "encoder" else "w"
    numbers = [0.5 * n for n in range(width)]
    path = write_vectors(tmp_path / "v", {f"{prefix}1": numbers, "stranger": [9.0] * width})
    model = small_translation_model(scale=1.0, **{f"{side}_embed_path": path})
    expected = small_translation_model(scale=1.0)
    with torch.no_grad():
        getattr(expected, side).embedding[5] = torch.tensor(numbers)
    assert getattr(model, side).dictionary[5] == f"{prefix}1"
    assert_close(model.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert getattr(model, side).embedding.requires_grad


def test_pretrained_embeddings_of_one_matrix_for_all(tmp_path):
    path = write_vectors(tmp_path / "v", {"w1": [1.0, 2.0, 3.0, 4.0]})
    model = small_translation_model(scale=1.0, encoder_embed_path=path, **OPTIONS["all tied"])
    assert model.decoder.output.weight[5].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "got no header"),
        ("s1 1 2 3\ns2 1 2 3\n", "got no header"),
        ("1 3\ns1 1 2\n", "expected 3 numbers a word, as wide as the embedding; got 2 for 's1'"),
        ("1 3\ns1 1 2 x\n", "could not convert string to float"),
        ("1 3\ns1 1 2 3\n\n", "expected 3 numbers"),
    ],
)
def test_files_of_embeddings_that_cannot_be_read(tmp_path, text, problem):
    (tmp_path / "v").write_text(text)
    with pytest.raises(FairseqDocError, match=f"--encoder-embed-path .*{problem}") as caught:
        small_translation_model(encoder_embed_path=str(tmp_path / "v"))
    assert "\n" not in str(caught.value)


# Checkpoints


@every_option
def test_a_models_own_state_is_accepted_and_restores_it(option):
    model, other = (
        shared_model(option, 1),
        small_translation_model(seed=2, **OPTIONS[option]).eval(),
    )
    args = padded(SOURCES, "left"), padded(TARGETS)
    assert not torch.equal(log_probs(other, *args)[0], log_probs(model, *args)[0])
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert_close(log_probs(other, *args), log_probs(model, *args), rtol=0, atol=0)


@pytest.mark.parametrize(
    "other, problem",
    [
        (
            {"layers": 3, "doc_components": "1,0,1,0,2"},
            "another architecture: .*unknown: decoder.lstm.layers.2",
        ),
        ({"unidirectional_encoder": True}, "another architecture: .*encoder.lstm.stacks.1"),
        ({"attention_score": "dot"}, "another architecture: .*attention.general"),
        ({"doc_components": "0,1,1,2"}, "another architecture: .*projections.0"),
        ({"doc_components": "2,0,1,2"}, "another size: expected decoder.output.projections.0"),
        ({"no_input_feeding": True}, r"another size: expected decoder.lstm.layers.0.weight_ih_l0"),
        ({"hidden_size": 6}, "another size"),
        (
            {"encoder_embed_dim": 4},
            r"another size: expected encoder.embedding \(20, 3\), got \(20, 4",
        ),
        ({"share_decoder_input_output_embed": True}, "another size"),
        (
            {"dictionaries": (small_dictionary(21, "s"), small_dictionary())},
            "another source dictionary: expected 20 words, as the data has, got 21",
        ),
        (
            {"dictionaries": (small_dictionary(20, "s"), small_dictionary(19))},
            "another target dictionary: expected 20 words, as the data has, got 19",
        ),
        (
            {"dictionaries": (small_dictionary(20, "x"), small_dictionary())},
            "another source dictionary: it has as many words as the data's, 20",
        ),
        (
            {"dictionaries": (small_dictionary(20, "s"), small_dictionary(20, "x"))},
            "another target dictionary: it has as many words as the data's, 20",
        ),
    ],
)
def test_states_of_other_models(other, problem):
    model, stranger = small_translation_model(), small_translation_model(**other)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(FairseqDocError, match=problem) as caught:
        model.load_state_dict(stranger.state_dict())
    assert "\n" not in str(caught.value)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    with pytest.raises(FairseqDocError, match="another"):
        stranger.load_state_dict(before)


@pytest.mark.parametrize("tied", ["share_decoder_input_output_embed", "share_all_embeddings"])
def test_states_of_untied_matrices_do_not_enter_a_tied_model(tied):
    """All have the same names and shapes; loading one into the other would lose a matrix."""
    settings = {"dictionaries": JOINT, "encoder_embed_dim": 4, "component_dim": 4}
    model = small_translation_model(**settings, **{tied: True})
    stranger = small_translation_model(**settings)
    with pytest.raises(FairseqDocError, match="expected decoder.* tied to .*got two matrices"):
        model.load_state_dict(stranger.state_dict())
    stranger.load_state_dict(model.state_dict())  # nothing is lost: equal matrices


# 16 bits


@pytest.mark.parametrize("option", ["default", "concat", "no input feeding", "tied", "one softmax"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits(option, dtype):
    """Scores near float64's, probabilities that sum to one, gradients that are finite; beam search
    runs."""
    settings = {"scale": 3.0, **OPTIONS[option]}
    model, exact = (
        small_translation_model(**settings).to(dtype),
        small_translation_model(**settings),
    )
    exact.load_state_dict(model.state_dict())
    args = padded(SOURCES, "left"), padded(TARGETS)
    found, _ = log_probs(model, *args)
    expected, _ = log_probs(exact, *args)
    assert found.dtype == torch.float32
    assert_close(found.exp().sum(-1), torch.ones(3, 5), rtol=0, atol=1e-5)
    assert_close(found, expected, rtol=0, atol=0.1)
    target = padded([[*row[1:], EOS] for row in TARGETS])
    for smoothing in (0.0, 0.1):
        losses, grads = [], []
        for each in (model, exact):
            loss, _ = each.smoothed_nll(each(args[0], None, args[1]), target, smoothing, PAD)
            losses.append(loss)
            grads.append(torch.cat([g.flatten() for g in gradients(loss, list(each.parameters()))]))
        assert_close(*losses, rtol=0.02, atol=0)
        assert grads[0].dtype == dtype
        assert (grads[0] - grads[1]).norm() < 0.05 * grads[1].norm()
    assert [len(hypotheses) for hypotheses in generate([model.eval()])] == [4] * 3


def test_autocast():
    model = small_translation_model(scale=3.0)
    args = padded(SOURCES, "left"), padded(TARGETS)
    expected, _ = log_probs(model, *args)
    target = padded([[*row[1:], EOS] for row in TARGETS])
    truth = model.token_nll(model(args[0], None, args[1]), target, PAD)
    exact = gradients(truth, list(model.parameters()))
    model.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = log_probs(model, *args)
        loss = model.token_nll(model(args[0], None, args[1]), target, PAD)
    grads = gradients(loss, list(model.parameters()))
    assert found.dtype == loss.dtype == torch.float32
    assert_close(found, expected, rtol=0, atol=0.1)
    assert_close(found.exp().sum(-1), torch.ones(3, 5), rtol=0, atol=1e-5)
    assert {g.dtype for g in grads} == {torch.float32}
    error, size = (
        torch.cat([g.flatten() for g in part]).norm()
        for part in ([g - e for g, e in zip(grads, exact, strict=True)], exact)
    )
    assert error < 0.05 * size
