"""Incremental decoding and fairseq's beam search against the model by hand."""

import copy
import math

import pytest
import torch

from fairseq_doc.errors import FairseqDocError

from ..conftest import assert_close, small_translation_model
from .luong import (
    EOS,
    PAD,
    SOURCES,
    V,
    every_option,
    generate,
    log_probs,
    padded,
    probs_by_hand,
    shared_model,
)


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
@torch.no_grad()
def test_step_by_step_is_all_at_once(option, k=3):
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
@torch.no_grad()
def test_positional_scores_are_those_by_hand(option, beam=4):
    """Sentences end at different steps and leave the batch."""
    model = shared_model(option)
    found = generate([model], beam=beam)
    assert [len(hypotheses) for hypotheses in found] == [beam] * 3
    check_hypotheses([model], found, SOURCES)


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


@pytest.mark.parametrize("temperature, members", [(0.5, 1), (0.5, 3), (1.0, 3), (1.7, 3)])
@torch.no_grad()
def test_temperature_and_ensembles(temperature, members):
    """Each model's P^(1/T), renormalised; then the mean, of models with other components."""
    models = [shared_model(option, seed) for seed, option in enumerate(MODELS[:members])]
    found = generate(models, temperature=temperature)
    check_hypotheses(models, found, SOURCES, temperature)


@torch.no_grad()
def test_dividing_the_output_does_not_change_the_state():
    """The generator divides the decoder's output in place; the next step must not change."""
    model = shared_model()
    encoder_out, states = model.encoder(padded(SOURCES, "left")), ({}, {})
    for t in range(3):
        tokens = torch.tensor([[EOS, 7, 9]] * 3)[:, : t + 1]
        whole, divided = (model.decoder(tokens, encoder_out, state)[0] for state in states)
        assert_close(whole, divided, rtol=0, atol=0)
        divided.div_(0.1)


@pytest.mark.parametrize("option", ["default", "tied", "concat"])
@torch.no_grad()
def test_parameters_of_nan_are_an_error_in_incremental_decoding(option):
    """In any parameter of the decoder: fairseq would treat their scores as minus infinity."""
    accepted = []
    for name, _ in shared_model(option).decoder.named_parameters():
        model = copy.deepcopy(shared_model(option))
        dict(model.decoder.named_parameters())[name].fill_(math.nan)
        try:
            generate([model])
            accepted.append(name)
        except FairseqDocError as error:
            assert "a score is not finite" in str(error) and "\n" not in str(error)
        except AssertionError:  # fairseq's own, without a message
            accepted.append(name)
    assert accepted == []


def test_an_output_matrix_with_a_large_sum_is_no_error_in_half_precision():
    """The same shift of all words changes no probability, and 65,504 is the largest half."""
    model = small_translation_model(scale=1.0).half()
    with torch.no_grad():
        model.decoder.output.weight += 700.0
    assert not torch.isfinite(model.decoder.output.weight.sum())
    prev = torch.full((1, 1), model.decoder.dictionary.eos())
    encoded = model.encoder(torch.tensor([[4, 5, 6, 2]]))
    mixture_params, _ = model.decoder(prev, encoded, incremental_state={})
    assert mixture_params.shape[:2] == (1, 1)
