"""``rescore``'s options; what it computes is tested in tests/unit/scoring and tests/integration."""

import itertools

import pytest
from conftest import refusal
from generated_text import write

from fairseq_doc.cli import rescore
from fairseq_doc.cli.rescore import Options
from fairseq_doc.options import read_options

from ..evaluation.conftest import ensemble, peaked_model

LISTS = {"data": "data", "path": "a.pt", "nbest": "lists"}
WER = {"metric": "wer", "reference": "said", "first_pass": "first"}


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, "expected --output, --metric or --scores"),
        ({"output": "new"}, "--output or --metric needs --weight and --bonus, or --tune"),
        ({"output": "new", "bonus": 1}, "--bonus needs --weight"),
        ({**WER, "tune": True, "weight": 1, "bonus": 1}, "--weight cannot be combined with --tune"),
        ({"scores": "new", "weight": 1, "bonus": 1}, "--weight needs --output, --metric or --carry"),
        ({"scores": "new", "carry": True, "weight": 1}, "--weight needs --bonus"),
        ({"scores": "new", "first_pass": "x", "format": "fairseq-generate"}, "--first-pass needs --format kaldi"),
        ({"scores": "new", "nbest_data": "x"}, "--nbest-data needs --format fairseq-generate"),
        ({**WER, "first_pass": None, "tune": True}, "needs --first-pass"),
        ({**WER, "tune": True, "weights": "-1:1:1"}, "--weights: expected FROM:TO:STEP"),
        ({**WER, "tune": True, "weights": "0:10:0.001", "bonuses": "0:10:0.001"}, "at most 1,000,000 pairs"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(given, problem):
    assert problem in refusal(read_options, Options, {**LISTS, **given})


def test_the_grid_begins_with_the_smallest():
    options = Options(**LISTS, **WER, tune=True, weights="0:1:0.5", bonuses="-1:1:1")
    assert options.grid == [*itertools.product([1], [0, 0.5, 1], [0, -1, 1])]


@pytest.mark.parametrize("lang, scores", [("zh", True), ("en", False)])
def test_the_language_chooses_the_tokenizer_of_bleu(tmp_path, monkeypatch, lang, scores):
    """Chinese characters, or one word."""
    monkeypatch.setattr(rescore, "ensemble_of", lambda _: ensemble(peaked_model(1)))
    (tmp_path / "dict.txt").write_text("w0 1\n")
    nbest = str(write(tmp_path / "lists", ["u-1 我们是好人"]))
    reference = str(write(tmp_path / "said", ["u 我们是坏人"]))
    files = {"data": str(tmp_path), "path": "a.pt", "nbest": nbest, "reference": reference}
    result = rescore.run(Options(**files, metric="bleu", lang=lang, weight=1, bonus=0))
    assert (result["value"] > 0) == scores and result["ceiling"] is None
