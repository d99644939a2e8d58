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
from ..evaluation.conftest import ensemble, nlls_by_hand, peaked_model

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


@pytest.mark.parametrize("batches", [None, 3])
def test_roots_of_mean_squares_of_the_batches_gradients(it, tmp_path, batches):
    found = statistics_of(it, tmp_path / "s.npz", *SETTINGS, batches)
    expected = by_hand(it, batches)
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name], rtol=1e-4, atol=1e-8)
        assert not found[name].requires_grad


def test_a_second_time_they_are_read(it, tmp_path, monkeypatch):
    first = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    monkeypatch.setattr(module, "windows_of", None)  # the text is not needed
    second = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_incomplete_file_of_an_earlier_version_is_computed_anew(it, tmp_path):
    expected = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    with np.load(tmp_path / "s.npz") as file:
        np.savez(tmp_path / "s.npz", **(dict(file) | {"#progress": np.array([3, 0])}))
    found = statistics_of(it, tmp_path / "s.npz", *SETTINGS)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_statistics_of_another_model_or_settings(it, tmp_path):
    path = tmp_path / "s.npz"
    statistics_of(it, path, *SETTINGS)
    other = ensemble(peaked_model(seed=1), folder=tmp_path)
    for model, settings, problem in (
        (other, SETTINGS, "other weights"),
        (it, (3, 5), "dynamic.segment 4"),
        (it, (2, 4), "dynamic.columns 3"),
        (it, (3, 4, 7), "dynamic.batches None"),
    ):
        problem = f"{path}: expected .* of this model.*{problem}.*remove it"
        assert_refused(problem, statistics_of, model, path, *settings)


def test_a_damaged_file_is_never_used_and_stays(it, tmp_path):
    path = tmp_path / "s.npz"
    statistics_of(it, path, *SETTINGS)
    with np.load(path) as file:
        at = path.read_bytes().index(file["decoder.embedding"].tobytes())
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:at] + b"~~" + whole[at + 2 :]):
        path.write_bytes(damaged)
        problem = "expected gradient statistics of fairseq-doc; got another file; remove it"
        assert_refused(problem, statistics_of, it, path, *SETTINGS)
        assert path.read_bytes() == damaged


def test_a_file_that_cannot_be_written_is_refused_before_the_work(it, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "track", None)
    path = tmp_path / "nowhere" / "s.npz"
    problem = "folder that exists.*name another file with dynamic.statistics"
    assert_refused(problem, statistics_of, it, path, *SETTINGS)


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
