"""``fairseq-doc export``, with a model of two layers in place of the checkpoint."""

import json

import pytest
from conftest import doc, refused

from fairseq_doc.cli import export
from fairseq_doc.errors import pip_install

from ..conftest import small_dictionary
from ..evaluation.conftest import ensemble, peaked_model

LINE = "export data --path a.pt --onnx model.onnx"
TOKENS = "".join(f"{t} {n}\n" for n, t in enumerate(["<blk>", "</s>", "w1", "w2", "no\u2581word"]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder to work in, with the dictionary of the model."""
    (tmp_path / "data").mkdir()
    small_dictionary().save(str(tmp_path / "data" / "dict.txt"))
    (tmp_path / "tokens.txt").write_text(TOKENS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loaded(monkeypatch):
    """The --path of every model that was loaded."""
    paths = []

    def load(path, data, precision):
        paths.append(path)
        return ensemble(peaked_model(), folder=data)

    monkeypatch.setattr(export, "load_ensemble", load)
    return paths


def names(folder):
    return {path.name for path in folder.iterdir()} - {"data", "tokens.txt"}


def test_a_model_and_the_numbers_of_its_tokens(folder, loaded):
    out, err = doc(*LINE.split())
    assert names(folder) == {"model.onnx", "model.tokens.txt"} and err == ""
    numbers = (folder / "model.tokens.txt").read_text().splitlines()
    assert numbers[2:5] == ["</s> 2", "<unk> 3", "w0 4"]
    assert out.splitlines()[-2:] == ["wrote model.onnx", "wrote model.tokens.txt"]
    assert "20 tokens, state (2, N, 6); log P differs by at most" in out
    result = json.loads(doc(*LINE.split(), "--overwrite", "--int8", "--json")[0])
    assert result["int8"] and result["bytes"] == (folder / "model.onnx").stat().st_size
    assert result["files"] == ["model.onnx", "model.tokens.txt"] and result["unknown"] == []


def test_a_recognisers_numbers(folder, loaded):
    out, _ = doc(*LINE.split(), "--tokens", "tokens.txt", "--form", "sentence")
    assert names(folder) == {"model.onnx"}
    assert "form sentence, 5 tokens" in out and "2 tokens are not in the dictionary" in out
    assert out.splitlines()[-2].endswith("scored as <unk>: <blk>, no\u2581word")


def test_what_is_refused_before_a_model_is_loaded(folder, loaded, without_package):
    (folder / "model.tokens.txt").touch()
    assert "model.tokens.txt exists" in refused(*LINE.split())
    (folder / "model.onnx").touch()
    before = names(folder)
    for options, problem in (
        ("--tokens tokens.txt", "model.onnx exists"),
        ("--onnx b.pt", "b.pt: expected a name ending in .onnx"),
        ("--onnx b.onnx --path a.pt:b.pt", "an ensemble cannot be exported; got 2"),
        ("--onnx b.onnx --tokens nothing.txt", "cannot read nothing.txt"),
    ):
        assert problem in refused(*LINE.split(), *options.split())
    without_package("onnxruntime")
    message = refused(*LINE.split(), "--onnx", "b.onnx")
    assert f"onnxruntime missing: {pip_install('onnx', *export.PACKAGES)}" in message
    assert names(folder) == before and loaded == []


def test_a_full_disk_leaves_nothing(folder, loaded, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairseq_doc.files.os.fsync", fail)
    assert "No space left on device" in refused(*LINE.split())
    assert names(folder) == set() and loaded == ["a.pt"]
