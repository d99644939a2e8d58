"""``fairseq-doc export``, with a model of two layers in place of the checkpoint."""

import json
import sys
from unittest.mock import Mock

import pytest
from conftest import doc, refused

from fairseq_doc.cli import export

from ..evaluation.conftest import ensemble, peaked_model

LINE = "export data --path a.pt --onnx model.onnx"
TOKENS = ["<blk>", "</s>", "w1", "w2", "no\u2581word"]


@pytest.fixture(autouse=True)
def folder(folder, monkeypatch):
    """The working folder. ``a.pt`` is a model, ``a.pt:b.pt`` are two."""
    (folder / "tokens.txt").write_text("".join(f"{t} {n}\n" for n, t in enumerate(TOKENS)))

    def load(path, data, precision):
        return ensemble(*(peaked_model() for _ in path.split(":")))

    monkeypatch.setattr(export, "load_ensemble", load)
    return folder


def names(folder):
    return {path.name for path in folder.iterdir()} - {"tokens.txt"}


def test_a_model_and_the_numbers_of_its_tokens(folder):
    out, err = doc(*LINE.split())
    assert names(folder) == {"model.onnx", "model.tokens.txt"} and err == ""
    numbers = (folder / "model.tokens.txt").read_text().splitlines()
    assert len(numbers) == 20 and numbers[2:5] == ["</s> 2", "<unk> 3", "w0 4"]
    assert out.splitlines()[-2:] == ["wrote model.onnx", "wrote model.tokens.txt"]
    assert "20 tokens, state (2, N, 6); largest difference in log P" in out
    out, err = doc(*LINE.split(), "--overwrite", "--int8", "--json")
    result = json.loads(out)
    assert result["int8"] and result["bytes"] == (folder / "model.onnx").stat().st_size
    assert result["files"] == ["model.onnx", "model.tokens.txt"] and result["unknown"] == []
    assert err == ""


def test_a_recognisers_numbers(folder):
    out, _ = doc(*LINE.split(), "--tokens", "tokens.txt", "--form", "sentence")
    assert names(folder) == {"model.onnx"}
    assert "form sentence, 5 tokens" in out and "2 tokens are not in the dictionary" in out
    assert out.splitlines()[-2].endswith("scored as <unk>: <blk>, no\u2581word")


def test_refusals(folder, monkeypatch):
    (folder / "b.tokens.txt").touch()
    before = names(folder)
    for options, problem in (
        ("--onnx b.onnx", "b.tokens.txt exists"),
        ("--onnx b.pt", "b.pt: expected a name ending in .onnx"),
        ("--path a.pt:b.pt", "expected one checkpoint"),
        ("--tokens nothing.txt", "cannot read nothing.txt"),
    ):
        assert problem in refused(*LINE.split(), *options.split())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "fairseq_doc.export.file", raising=False)
    assert "pip install --upgrade onnx onnxruntime" in refused(*LINE.split())
    assert names(folder) == before


def test_a_disk_that_is_full_after_the_model_leaves_nothing(folder, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(export, "write_lines", full)
    assert "No space left on device" in refused(*LINE.split())
    assert names(folder) == set()
