"""Means over samples of dropout against passes one by one, in float64."""

import math
from unittest.mock import Mock

import pytest
import torch

from fairseq_doc.adaptation.monte_carlo import AVERAGES, mean_log_probs, sampled
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.scorer import SampleSettings, ScorerSettings

from ..conftest import assert_close, random_tokens
from ..evaluation.conftest import ensemble, peaked_model
from ..models.test_lstm_melis_lm import small

K, B, T, V = 4, 3, 5, 20
AWD = {"weight_dropout": 0.5, "embed_dropout": 0.3, "hidden_dropout": 0.3}


def model_with_dropout(kind):
    if kind == "melis":
        return small(input_dropout=0.3, state_dropout=0.4, output_dropout=0.3).eval()
    return peaked_model(**AWD)


@pytest.mark.parametrize("kind", ["melis", "awd"])
@torch.no_grad()
def test_samples_differ_and_carry_a_state_each(kind):
    """Streams with masks of their own go side by side; DropConnect's mask is shared, so its samples
    go one by one."""
    model = model_with_dropout(kind)
    assert model.decoder.masks_of_each_stream == (kind == "melis")
    tokens = random_tokens(B, 2 * T)
    with sampled(model, K) as forward:
        first = forward(tokens[:, :T], 0)[0]
        if kind == "awd":  # what differs from here on comes from the states
            model.decoder.embed_dropout = model.decoder.lstm.weight_drop = 0.0
            model.decoder.lstm.dropouts = [0.0, 0.0]
        second = forward(tokens[:, T:], 1)[0]
        assert first.shape[:3] == second.shape[:3] == (K, B, T)
        for params in (first, second):
            for k in range(1, K):
                assert not torch.equal(params[0], params[k])
    whole = model(tokens)[0]  # without dropout again
    assert_close(model(tokens)[0], whole, rtol=0, atol=0)


@torch.no_grad()
def test_the_carried_state_is_of_the_same_sample():
    """With the rates at zero after the first window, each sample goes on from a state of its own."""
    model = model_with_dropout("melis")
    tokens, decoder = random_tokens(B, 2 * T), model.decoder
    with sampled(model, K) as forward:
        forward(tokens[:, :T], 0)
        newest = decoder.evaluation_states[1]
        states = [
            [tuple(part[:, k * B : (k + 1) * B] for part in layer) for layer in newest]
            for k in range(K)
        ]
        decoder.input_dropout = decoder.lstm.state_dropout = decoder.lstm.output_dropout = 0.0
        found = forward(tokens[:, T:], 1)[0]
    for k, state in enumerate(states):
        decoder.evaluation_states = {1: state}
        assert_close(found[k], model(tokens[:, T:], window=1)[0])


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("temperatures", [[1.0], [0.8, 1.0, 1.3]])
@pytest.mark.parametrize("samples", [1, K])
@torch.no_grad()
def test_means_by_hand(average, temperatures, samples, monkeypatch):
    monkeypatch.setattr("fairseq_doc.adaptation.monte_carlo.BLOCK_BYTES", 4 * V * 4)
    model = peaked_model()
    params = torch.stack(
        [model(random_tokens(B, T, seed=k))[0].flatten(0, 1) for k in range(samples)]
    )
    target = random_tokens(1, B * T, seed=9)[0]
    found = mean_log_probs(model, params, target, temperatures, average)
    of_samples = model.decoder.output.log_probs(params).exp()  # (K, N, V)
    for row, temperature in zip(found, temperatures, strict=True):
        if average == "arithmetic":
            powers = of_samples ** (1 / temperature)
            probs = (powers / powers.sum(-1, keepdim=True)).mean(0)
        else:
            powers = of_samples.prod(0) ** (1 / samples / temperature)
            probs = powers / powers.sum(-1, keepdim=True)
        assert_close(row.exp(), probs.gather(1, target[:, None])[:, 0])


def sampling(samples, average="arithmetic"):
    return ScorerSettings(samples=SampleSettings(samples=samples, average=average))


@pytest.mark.parametrize("average", AVERAGES)
def test_without_dropout_samples_change_nothing(text, average):
    it = ensemble(peaked_model(), small().eval(), folder=text.folder)
    result = evaluate(it, "test", 2, settings=sampling(3, average))
    expected = evaluate(it, "test", columns=2)
    assert result.nll == pytest.approx(expected.nll, rel=1e-9)
    assert (result.tokens, result.left_out) == (expected.tokens, expected.left_out)


def test_masks_are_drawn_anew_every_bptt_steps(text):
    model = model_with_dropout("melis")
    model.forward = Mock(wraps=model.forward)
    it = ensemble(model, folder=text.folder, bptt=7, eval_window=1000)
    evaluate(it, "test", settings=sampling(2))
    assert model.forward.call_args_list[0].args[0].shape == (2, 7)
    assert model.forward.call_count == math.ceil(120 / 7)
