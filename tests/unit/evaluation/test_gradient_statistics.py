import numpy as np
import pytest
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import gradient_statistics as module
from fairseq_doc.evaluation.gradient_statistics import (
    GatheringSettings,
    differentiable,
    statistics_of,
    trained_parameters,
    weights_digest,
)

from ..conftest import assert_close, small_model, write_split
from .conftest import ProgressSpy, ensemble, peaked_model

SETTINGS = GatheringSettings(columns=3, segment=4)


@pytest.fixture
def it(text, tmp_path):
    """An ensemble of one model whose split ``train`` is the text."""
    tokens = torch.tensor(text.tokens)
    write_split(tmp_path, "train", [x.tolist() for x in tokens.tensor_split([30, 77])])
    return ensemble(peaked_model(weight_dropout=0.5, output_dropout=0.5), folder=tmp_path)


def by_hand(it, batches=None):
    """Root mean squares of the gradients of each batch's mean NLL, from autograd alone."""
    model = it.single
    tokens = it.task.dataset("train").tokens[: 3 * 40].view(3, 40)
    squares, count = {}, 0
    state = None
    for start in range(0, 39, 4):
        if batches is not None and count == batches:
            break
        count += 1
        source = tokens[:, start : min(start + 4, 39)]
        target = tokens[:, start + 1 : start + 1 + source.size(1)]
        x = model.decoder.embedded(source.t())
        state = state or model.decoder.lstm.zero_state(3, x)
        outputs, _, state = model.decoder.lstm(x, state)
        state = [tuple(part.detach() for part in layer) for layer in state]
        params, _ = model.decoder.output([h.transpose(0, 1) for h in [x, *outputs]])
        log_probs = model.decoder.output.log_probs(params)
        loss = -log_probs.gather(2, target[:, :, None]).mean()
        gradients = torch.autograd.grad(loss, list(trained_parameters(model).values()))
        for name, gradient in zip(trained_parameters(model), gradients, strict=True):
            squares[name] = squares.get(name, 0) + gradient.square()
    return {name: (total / count).sqrt() for name, total in squares.items()}


@pytest.mark.parametrize("batches", [None, 3])
def test_roots_of_mean_squares_of_the_batches_gradients(it, tmp_path, batches):
    settings = GatheringSettings(3, 4, batches)
    spy = ProgressSpy()
    found = statistics_of(it, tmp_path / "s.npz", settings, progress=spy)
    expected = by_hand(it, batches)
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name], rtol=1e-4, atol=1e-8)
        assert not found[name].requires_grad
    assert spy.seen == [("gradient statistics", batches or 10)]


def test_a_second_time_they_are_read(it, tmp_path, monkeypatch):
    first = statistics_of(it, tmp_path / "s.npz", SETTINGS)
    monkeypatch.setattr(module, "windows_of", None)  # the text is not needed
    second = statistics_of(it, tmp_path / "s.npz", SETTINGS)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_interrupted_gathering_goes_on(it, tmp_path, monkeypatch):
    expected = statistics_of(it, tmp_path / "whole.npz", SETTINGS)
    monkeypatch.setattr(module, "SAVED_EVERY", -1)

    def interrupted(windows, name):
        for number, window in enumerate(windows):
            if number == 6:
                raise KeyboardInterrupt
            yield window

    with pytest.raises(KeyboardInterrupt):
        statistics_of(it, tmp_path / "s.npz", SETTINGS, progress=interrupted)
    it.single.decoder.evaluation_states = {}
    spy = ProgressSpy()
    found = statistics_of(it, tmp_path / "s.npz", SETTINGS, progress=spy)
    assert spy.seen == [("gradient statistics", 4)]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_file_of_something_else(it, tmp_path):
    path = tmp_path / "s.npz"
    statistics_of(it, path, SETTINGS)
    other = ensemble(peaked_model(seed=1), folder=tmp_path)
    for model, settings, problem in (
        (other, SETTINGS, "other weights.*remove it"),
        (it, GatheringSettings(3, 5), "--dynamic-segment.*segment 4"),
        (it, GatheringSettings(2, 4), "--dynamic-columns.*columns 3"),
        (it, GatheringSettings(3, 4, 7), "--dynamic-batches.*batches None"),
    ):
        with pytest.raises(FairseqDocError, match=f"{path}: expected .* of this model.*{problem}"):
            statistics_of(model, path, settings)
    np.savez(tmp_path / "foreign.npz", **{"#header": np.zeros(3, np.uint8)})
    (tmp_path / "text.npz").write_text("no archive")
    whole = path.read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    with np.load(path) as archive:
        weights = archive["decoder.embedding"].tobytes()
    flipped = bytearray(whole)
    flipped[whole.index(weights) + 5] ^= 1
    (tmp_path / "flipped.npz").write_bytes(flipped)
    for name in ("foreign", "text", "short", "flipped"):
        before = (tmp_path / f"{name}.npz").read_bytes()
        with pytest.raises(FairseqDocError, match=f"{name}.npz: expected gradient statistics of"):
            statistics_of(it, tmp_path / f"{name}.npz", SETTINGS)
        assert (tmp_path / f"{name}.npz").read_bytes() == before


def test_a_file_that_cannot_be_written_is_refused_before_the_work(it, tmp_path):
    def never(windows, name):
        raise AssertionError

    with pytest.raises(FairseqDocError, match="in a folder that exists"):
        statistics_of(it, tmp_path / "nowhere" / "s.npz", SETTINGS, progress=never)


@pytest.mark.parametrize("name", ["columns", "segment", "batches"])
def test_settings_that_cannot_be(name):
    with pytest.raises(FairseqDocError, match=f"--dynamic-{name} must be at least 1; got 0"):
        GatheringSettings(**{name: 0})


def test_lstms_in_training_mode_drop_nothing():
    """Only torch's layers are, for cuDNN; the rest of the model stays in evaluation."""
    model = small_model(weight_dropout=0.9, output_dropout=0.9, hidden_dropout=0.9).eval()
    tokens = torch.arange(4, 12)[None]
    expected = model(tokens)[0]
    with differentiable(model):
        assert all(layer.training for layer in model.decoder.lstm.layers)
        assert not model.decoder.lstm.training
        assert torch.equal(model(tokens)[0], expected)
    assert not any(module.training for module in model.modules())


def test_the_digest_knows_every_weight():
    model = small_model()
    before = weights_digest(model)
    assert before == weights_digest(small_model())
    with torch.no_grad():
        model.decoder.output.bias[3] += 1e-6
    assert weights_digest(model) != before
