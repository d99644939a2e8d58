"""``rescore``'s options; what it computes is tested in tests/unit/scoring and tests/integration."""

import itertools

import numpy as np
import pytest
from conftest import refusal

from fairseq_doc.cli.rescore import Options, _ceiling, _judge_of
from fairseq_doc.scoring.metrics import metric_of
from fairseq_doc.scoring.nbest_lists import NBestList

LISTS = {"data": "data", "path": "a.pt", "nbest": "lists"}
WER = {"metric": "wer", "reference": "said", "first_pass": "first"}


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, "expected --output, --metric or --scores"),
        *(({"output": "new", "weight": w, "bonus": b}, "--weight and --bonus") for w, b in ((None, 1), (float("nan"), 1))),
        ({**WER, "tune": True, "weight": 1, "bonus": 1}, "--weight and --bonus"),
        ({"scores": "new", "weight": 1, "bonus": 1}, "--weight and --bonus"),
        ({"scores": "new", "carry": True, "weight": 1}, "--weight and --bonus"),
        ({"scores": "new", "first_pass": "x", "format": "fairseq-generate"}, "--first-pass needs --format kaldi"),
        ({"scores": "new", "nbest_data": "x"}, "--nbest-data needs --format fairseq-generate"),
        ({**WER, "first_pass": None, "tune": True}, "needs --first-pass"),
        ({**WER, "tune": True, "weights": "-1:1:1"}, "--weights: expected FROM:TO:STEP"),
        ({**WER, "tune": True, "bonuses": "1:0:1"}, "--bonuses: expected FROM:TO:STEP"),
        ({**WER, "tune": True, "weights": "0:10:0.001", "bonuses": "0:10:0.001"}, "at most 1,000,000 pairs"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(given, problem):
    assert problem in refusal(Options, **LISTS, **given)


def test_the_grid_begins_with_the_smallest():
    options = Options(**LISTS, **WER, tune=True, weights="0:1:0.5", bonuses="-1:1:1")
    assert options.grid == [*itertools.product([1], [0, 0.5, 1], [0, -1, 1])]


TARGETS = ["a b c d e", "f g h i j"]


@pytest.mark.parametrize(
    "metric, targets, expected",
    [
        ("bleu", TARGETS, 100.0),
        ("bleu", [TARGETS[0], None], 100.0),
        ("bleu", [TARGETS[0], "f g h x y"], 100 * (8 / 10 * 6 / 8 * 4 / 6 * 2 / 4) ** 0.25),
        ("bleu", [None, None], None),
        ("wer", TARGETS, None),
    ],
)
def test_the_ceiling_is_what_the_targets_score(metric, targets, expected):
    lists = [NBestList("0", ["x"], np.zeros(1), ["0-1"], target) for target in targets]
    assert _ceiling(metric_of(metric), lists, TARGETS) == pytest.approx(expected)


def test_the_language_chooses_the_tokenizer_of_bleu():
    """Chinese characters, or one word."""
    lists = [NBestList("0", ["我们是好人"], np.zeros(1))]
    bleu = {**LISTS, "metric": "bleu", "reference": "said", "weight": 1, "bonus": 0}
    judges = [_judge_of(Options(**bleu, lang=lang), lists, ["我们是坏人"]) for lang in ("zh", None)]
    assert judges[0].first > judges[1].first == 0
