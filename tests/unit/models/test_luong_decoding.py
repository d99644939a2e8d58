"""Incremental decoding and fairseq's beam search against the model by hand."""

import copy
import itertools
import math

import pytest
import torch
from conftest import assert_refused

from ..conftest import assert_close, small_translation_model
from .luong import (
    EOS,
    OPTIONS,
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

ORDERS = {  # of the rows, before each step; two rows a sentence at first
    "none": [None, None, None],
    "within sentences": [None, [0, 0, 3, 2, 5, 4], [1, 1, 2, 3, 4, 4]],
    "a sentence leaves": [None, [2, 3, 4, 5], [0, 1, 3, 3]],
    "one sentence is left": [None, [0, 1], [1, 0]],
    "rows not grouped": [None, [5, 0, 2, 1, 3, 0], [2, 2, 0]],
    "groups of unequal size": [None, [0, 1, 2, 3, 4], [4, 4, 0, 1]],
    "sentences in another order": [None, [4, 5, 0, 1], [2, 3, 0, 1]],
    "more rows than before": [None, [0, 0, 0, 0, 0, 0, 0], [6, 1]],
    "a sentence again": [None, [4, 5, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]],
}
SOME = ("default", "no input feeding", "concat")


@pytest.mark.parametrize(
    "option, orders",
    [*((option, "none") for option in OPTIONS), *itertools.product(SOME, list(ORDERS)[1:])],
)
@torch.no_grad()
def test_step_by_step_is_all_at_once(option, orders):
    model, sources = shared_model(option), padded(SOURCES, "left")
    rows, state = torch.arange(3).repeat_interleave(2), {}
    targets = torch.randint(4, V, (6, 3), generator=torch.Generator().manual_seed(1))
    targets[:, 0] = EOS
    encoder_out = model.encoder.reorder_encoder_out(model.encoder(sources), rows)
    for t, order in enumerate(ORDERS[orders]):
        if order is not None:
            order = torch.tensor(order)
            model.decoder.reorder_incremental_state_scripting(state, order)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
            targets, rows = targets[order], rows[order]
        output = model.decoder(targets[:, : t + 1], encoder_out, state)
        expected, weights = log_probs(model, sources[rows], targets[:, : t + 1])
        assert_close(model.get_normalized_probs(output, True)[:, 0], expected[:, -1])
        assert_close(output[1]["attn"][0][:, 0], weights[:, -1])


def score_by_hand(models, source, words, temperature=1.0):
    """log of the mean over models of P_m^(1/T), renormalised, of each word; the attention's mean."""
    probs = attn = 0.0
    for model in models:
        p, weights = probs_by_hand(model, source, [EOS, *words[:-1]])
        powers = p ** (1 / temperature)
        probs = probs + powers / powers.sum(1, keepdim=True) / len(models)
        attn = attn + weights / len(models)
    return probs[range(len(words)), words].log(), attn


def check_hypotheses(models, found, temperature=1.0):
    size = max(map(len, SOURCES))
    for source, hypotheses in zip(SOURCES, found, strict=True):
        scores = [float(h["score"]) for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h["tokens"].tolist()) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            words = h["tokens"].tolist()
            expected, attn = score_by_hand(models, source, words, temperature)
            assert words[-1] == EOS and EOS not in words[:-1]
            assert_close(h["positional_scores"], expected)
            assert_close(float(h["score"]), expected.mean().item())
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
    check_hypotheses([model], found)


@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_prefix_tokens(beam):
    """Of different lengths; their scores are counted, as of any word."""
    model = shared_model()
    prefix = torch.tensor([[7, 9, 4], [12, PAD, PAD], [PAD, PAD, PAD]])
    found = generate([model], beam=beam, prefix=prefix)
    check_hypotheses([model], found)
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
    check_hypotheses(models, found, temperature)


@pytest.mark.parametrize("option", ["default", "tied", "concat"])
@torch.no_grad()
def test_parameters_of_nan_are_an_error_in_incremental_decoding(option):
    """In any parameter of the decoder: fairseq would treat their scores as minus infinity."""
    for name, _ in shared_model(option).decoder.named_parameters():
        model = copy.deepcopy(shared_model(option))
        model.decoder.get_parameter(name).fill_(math.nan)
        assert_refused("a score is not finite", generate, [model])


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
