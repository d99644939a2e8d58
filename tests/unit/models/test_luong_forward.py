"""The encoder-decoder against the same model by hand; padding, dropout, 16 bits."""

import pytest
import torch

from ..conftest import (
    assert_close,
    drop_factors,
    gradients,
    relative_errors,
    small_translation_model,
)
from ..device import DEVICE
from .luong import (
    NEXT_WORDS,
    OPTIONS,
    PAD,
    SOURCES,
    TARGETS,
    every_option,
    generate,
    log_probs,
    padded,
    probs_by_hand,
    shared_model,
)


def test_probabilities_are_far_from_even():
    """So that the comparisons below can tell."""
    probs, attn = probs_by_hand(shared_model(), SOURCES[0], TARGETS[1])
    assert probs.max() > 0.25 and attn.max() > 0.25  # of 20 words and 5 places
    assert_close(probs.sum(1), torch.ones(5))


@every_option
def test_values_losses_and_gradients_are_those_by_hand(option):
    """Of a padded batch, each sentence by itself; of every parameter. The loss that the criterion
    takes computes no (R, T, V)."""
    model = shared_model(option)
    output = model(padded(SOURCES, "left"), None, padded(TARGETS))
    found, (attn,) = model.get_normalized_probs(output, log_probs=True), output[1]["attn"]
    value = expected_value = expected_loss = 0.0
    for b, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        probs, weights = probs_by_hand(model, source, target)
        row = found[b, : len(target)]
        assert_close(row.exp(), probs, rtol=1e-9, atol=1e-12)
        assert_close(attn[b, : len(target), -len(source) :], weights, rtol=1e-9, atol=1e-12)
        labels = torch.linspace(0, 1, probs.numel(), dtype=torch.float64).view_as(probs)
        value = value - (labels * row).sum()
        expected_value = expected_value - (labels * probs.log()).sum()
        words = torch.tensor(NEXT_WORDS[b])
        expected_loss = expected_loss - probs.gather(1, words[:, None]).log().sum()
    target = padded(NEXT_WORDS)
    loss = model.token_nll(output, target, PAD)
    assert_close(loss, expected_loss)
    assert_close(model.decoder.output.smoothed_nll(output[0], target, 0.0, PAD)[0], expected_loss)
    totals = (value + 3 * loss, expected_value + 3 * expected_loss)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = (dict(zip(names, gradients(x, parameters), strict=True)) for x in totals)
    assert_close(*grads, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("option", ["default", "no input feeding", "concat", "mixed directions"])
@pytest.mark.parametrize(
    "source_side, target_side", [("left", "right"), ("right", "left"), ("both", "left")]
)
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


def read_by(module, model, *words):
    """What a module of the model reads in training and in evaluation."""
    read = []
    hook = module.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    model(words[0], None, words[1])
    model.eval()(words[0], None, words[1])
    hook.remove()
    model.train()
    return read


def test_dropout_of_the_mixtures_layers():
    model = small_translation_model(doc_components="1,1,1,1", dropout=0.5)
    words = torch.tensor([[5, 6, 7]] * 4), torch.arange(4, 16).repeat(4, 1)
    train, whole = read_by(model.decoder.output, model, *words)  # each layer's (B, T, D_n)
    embedded = read_by(model.decoder.lstm, model, *words)
    assert_close(embedded[0], embedded[1], rtol=0, atol=0)  # none before the first layer
    drop_factors(train[0], whole[0], 0.5)
    for n, h in enumerate(train):
        share = (h == 0).double().mean()
        assert 0.35 < share < 0.65, n
        assert not torch.equal(h[:, 0] == 0, h[:, 1] == 0)
        assert (whole[n] != 0).all()
    memories = [model.train(on).encoder(words[0])["memory"] for on in (True, False)]
    assert not torch.allclose(*memories)  # between the encoder's layers, too


@pytest.mark.parametrize("side", ["source", "target"])
def test_word_dropout_drops_whole_words(side):
    model = small_translation_model(**{f"{side}_dropout": 0.5})
    module = model.encoder.lstm if side == "source" else model.decoder.lstm
    words = torch.arange(4, 16).repeat(3, 1), torch.arange(4, 20).repeat(3, 1)
    factors = drop_factors(*read_by(module, model, *words), 0.5)  # (T, B, width)
    assert torch.equal(factors, factors[:, :1, :1].expand_as(factors))


@pytest.mark.parametrize("option", ["default", "concat", "no input feeding", "tied", "one softmax"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, "autocast"], ids=str)
def test_sixteen_bits(option, dtype):
    """Scores near float64's, probabilities that sum to one, gradients near float64's; beam search
    runs."""
    settings, autocast = {"scale": 3.0, **OPTIONS[option]}, dtype == "autocast"
    dtype = torch.float32 if autocast else dtype
    model = small_translation_model(**settings).to(dtype)
    exact = small_translation_model(**settings)
    exact.load_state_dict(model.state_dict())
    args, target = (padded(SOURCES, "left"), None, padded(TARGETS)), padded(NEXT_WORDS)
    for smoothing in (0.0, 0.1):
        results = []
        for each in (model, exact):
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast and each is model):
                output = each(*args)
                scores = each.get_normalized_probs(output, log_probs=True)
                loss, _ = each.decoder.output.smoothed_nll(output[0], target, smoothing, PAD)
            grads = gradients(loss, list(each.parameters()))
            results.append([scores, loss, torch.cat([g.flatten() for g in grads])])
        (found, loss, grads), (truth, *_) = results
        assert found.dtype == loss.dtype == torch.float32 and grads.dtype == dtype
        assert_close(found.exp().sum(-1), torch.ones(3, 5), rtol=0, atol=1e-5)
        assert_close(found, truth, rtol=0, atol=0.1)
        errors = relative_errors(*results)
        assert errors[1] < 0.02 and errors[2] < 0.05, errors
    assert [len(hypotheses) for hypotheses in generate([model.eval()])] == [4] * 3
