from itertools import islice

import numpy as np
import pytest
import torch
from conftest import assert_refused

from fairseq_doc.adaptation import gradient_statistics as module
from fairseq_doc.adaptation.gradient_statistics import (
    differentiable,
    statistics_of,
    trained_parameters,
)

from ..conftest import assert_close, small_model, write_split
from ..evaluation.conftest import ProgressSpy, ensemble, nlls_by_hand, peaked_model

SETTINGS = (3, 4)  # columns, segment


@pytest.fixture
def it(text, tmp_path):
    """An ensemble of one model whose split ``train`` is the text."""
    tokens = torch.tensor(text.tokens)
    write_split(tmp_path, "train", [x.tolist() for x in tokens.tensor_split([30, 77])])
    return ensemble(peaked_model(weight_dropout=0.5, output_dropout=0.5), folder=tmp_path)


def by_hand(it, batches=None):
    """Root mean squares of the gradients of each batch's mean NLL, from autograd alone."""
    parameters = trained_parameters(it.single)
    columns = it.task.dataset("train").tokens[: 3 * 40].view(3, 40)
    nlls = islice(nlls_by_hand(it.single, columns, 4), batches)
    gradients = [torch.autograd.grad(nll.mean(), list(parameters.values())) for nll in nlls]
    means = (torch.stack(of).square().mean(0) for of in zip(*gradients, strict=True))
    return {name: mean.sqrt() for name, mean in zip(parameters, means, strict=True)}


def interrupted(windows, name):
    """A progress that is interrupted after six windows."""
    for number, window in enumerate(windows):
        if number == 6:
            raise KeyboardInterrupt
        yield window


@pytest.mark.parametrize("batches", [None, 3])
def test_roots_of_mean_squares_of_the_batches_gradients(it, tmp_path, batches):
    spy = ProgressSpy()
    found = statistics_of(it, tmp_path / "s.npz", *SETTINGS, batches, progress=spy)
    expected = by_hand(it, batches)
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name], rtol=1e-4, atol=1e-8)
        assert not found[name].requires_grad
    assert spy.seen == [("gradient statistics", batches or 10)]


def test_a_second_time_they_are_read(it, tmp_path, monkeypatch):
    first = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    monkeypatch.setattr(module, "windows_of", None)  # the text is not needed
    second = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_interrupted_gathering_goes_on(it, tmp_path, monkeypatch):
    expected = statistics_of(it, tmp_path / "whole.npz", *SETTINGS)
    monkeypatch.setattr(module, "SAVED_EVERY", -1)

    with pytest.raises(KeyboardInterrupt):
        statistics_of(it, tmp_path / "s.npz", *SETTINGS, progress=interrupted)
    it.single.decoder.evaluation_states = {}
    spy = ProgressSpy()
    found = statistics_of(it, tmp_path / "s.npz", *SETTINGS, progress=spy)
    assert spy.seen == [("gradient statistics", 4)]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_statistics_of_another_model_or_settings(it, tmp_path):
    path = tmp_path / "s.npz"
    statistics_of(it, path, *SETTINGS)
    other = ensemble(peaked_model(seed=1), folder=tmp_path)
    for model, settings, problem in (
        (other, SETTINGS, "other weights.*remove it"),
        (it, (3, 5), "dynamic.segment.*segment 4"),
        (it, (2, 4), "dynamic.columns.*columns 3"),
        (it, (3, 4, 7), "dynamic.batches.*batches None"),
    ):
        problem = f"{path}: expected .* of this model.*{problem}"
        assert_refused(problem, statistics_of, model, path, *settings)


def text_array(text):
    return np.frombuffer(text, np.uint8)


HEADER, PROGRESS, WEIGHTS = "#header", "#progress", "decoder.embedding"
DAMAGES = [
    (HEADER, lambda a: None),
    (HEADER, lambda a: a[:9]),
    (HEADER, lambda a: text_array(b'{"kind": "x"}')),
    (PROGRESS, lambda a: None),
    (PROGRESS, lambda a: np.array([11, 0])),  # beyond the text
    (WEIGHTS, lambda a: None),
    (WEIGHTS, lambda a: a[:, :2]),
    (WEIGHTS, lambda a: np.array([{}], dtype=object)),
]


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name, change", DAMAGES)
def test_other_arrays_are_refused(it, tmp_path, name, change, finished, monkeypatch):
    path = tmp_path / "s.npz"
    monkeypatch.setattr(module, "SAVED_EVERY", -1)
    if finished:
        statistics_of(it, path, *SETTINGS)
    else:
        with pytest.raises(KeyboardInterrupt):
            statistics_of(it, path, *SETTINGS, progress=interrupted)
    with np.load(path) as archive:
        arrays = dict(archive)
    changed = change(arrays.pop(name, np.zeros((1, 3, 6))))
    np.savez(path, **arrays, **({} if changed is None else {name: changed}))
    before = path.read_bytes()
    problem = f"{path}: expected .*; got .*; remove it, and they"
    assert_refused(problem, statistics_of, it, path, *SETTINGS)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "mutilate",
    [
        lambda whole, at: b"no archive",
        lambda whole, at: b"",
        lambda whole, at: whole[: len(whole) // 2],
        lambda whole, at: whole[: at + 5] + bytes([whole[at + 5] ^ 1]) + whole[at + 6 :],
    ],
)
def test_a_damaged_file_is_refused_and_stays(it, tmp_path, mutilate):
    path = tmp_path / "s.npz"
    statistics_of(it, path, *SETTINGS)
    with np.load(path) as archive:
        weights = archive[WEIGHTS].tobytes()
    whole = path.read_bytes()
    damaged = mutilate(whole, whole.index(weights))
    assert damaged != whole
    path.write_bytes(damaged)
    assert_refused("s.npz: expected gradient statistics of", statistics_of, it, path, *SETTINGS)
    assert path.read_bytes() == damaged


def test_a_file_that_cannot_be_written_is_refused_before_the_work(it, tmp_path):
    def never(windows, name):
        raise AssertionError

    path = tmp_path / "nowhere" / "s.npz"
    assert_refused("folder that exists", statistics_of, it, path, *SETTINGS, progress=never)


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
