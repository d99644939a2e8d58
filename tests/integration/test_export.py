"""``fairseq-doc export`` on a trained model: the file gives the perplexity of ``eval-lm``."""

import json

import pytest
from conftest import doc, refused

from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.evaluation.perplexity import windows_of
from fairseq_doc.export.file import ExportedModel


def test_an_exported_model_gives_the_perplexity_of_eval_lm(corpus, trained, tmp_path):
    checkpoint, path = trained.folder / "checkpoint_best.pt", tmp_path / "model.onnx"
    words = (corpus.data, "--path", checkpoint)
    expected = json.loads(doc("eval-lm", *words, "--gen-subset", "valid", "--cpu", "--json")[0])
    printed, _ = doc("export", *words, "--onnx", path, "--form", "nll", "--json")
    assert json.loads(printed)["difference"] < 1e-5
    assert "exists" in refused("export", *words, "--onnx", path)
    run = ExportedModel(path.read_bytes())
    assert run.metadata["architecture"] == "lstm_doc_lm"
    windows = windows_of(load_ensemble(str(checkpoint), str(corpus.data)), "valid")
    total, tokens, state = 0.0, 0, run.zero_state(1)
    for window in windows:
        x, y = window["net_input"]["src_tokens"].numpy(), window["target"].numpy()
        nll, *state = run(x, y, *state)
        total, tokens = total + float(nll[0]), tokens + y.size
    assert tokens == expected["tokens"] >= 1000
    assert total / tokens == pytest.approx(expected["nll"] / tokens, abs=1e-5)
