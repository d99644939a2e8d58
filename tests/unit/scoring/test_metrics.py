"""WER, BLEU, chrF and ROUGE from sums."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

from fairseq_doc.scoring.metrics import metric_of

texts = st.lists(st.sampled_from(["a", "b", "c", "the", "cat."]), max_size=6).map(" ".join)


def summed(metric, pairs):
    return metric.value(np.sum([metric.statistics(*pair) for pair in pairs], axis=0))


def distance(a, b):
    """Levenshtein's recursion, word for word."""
    if not a or not b:
        return len(a) + len(b)
    rest = distance(a[1:], b), distance(a, b[1:]), distance(a[1:], b[1:])
    return min(rest[0] + 1, rest[1] + 1, rest[2] + (a[0] != b[0]))


@settings(max_examples=30)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
def test_wer_counts_edits_for_a_hundred_words(pairs):
    metric = metric_of("wer")
    words = sum(len(reference.split()) for _, reference in pairs)
    errors = sum(distance(h.split(), r.split()) for h, r in pairs)
    if words:
        assert summed(metric, pairs) == pytest.approx(100 * errors / words)
    assert metric.sign == -1 and metric.name == "WER"


pairs_of_texts = st.lists(st.tuples(texts, texts.filter(bool)), min_size=1, max_size=8)


@pytest.mark.parametrize(
    "name, language, settings",
    [("bleu", "en", {}), ("bleu", "zh", {"trg_lang": "zh"}), ("chrf", "en", {})],
)
@given(pairs=pairs_of_texts)
def test_bleu_and_chrf_are_sacrebleus_of_the_corpus(name, language, settings, pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    kind = {"bleu": BLEU, "chrf": CHRF}[name]
    expected = kind(**settings).corpus_score(hypotheses, [references]).score
    assert summed(metric_of(name, language), pairs) == pytest.approx(expected)


def test_the_packages_of_a_language_must_be_installed(monkeypatch):
    def without_packages():
        raise RuntimeError("\nJapanese needs MeCab.\n\n    pip install sacrebleu[ja]\n")

    tokenizer = SimpleNamespace(TokenizerJaMecab=without_packages)
    monkeypatch.setitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", tokenizer)
    assert refusal(metric_of, "bleu", "ja") == "Japanese needs MeCab. pip install sacrebleu[ja]"


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
@given(pairs=pairs_of_texts)
def test_rouge_is_the_mean_over_sentences(name, pairs):
    scorer = RougeScorer([name])
    scores = [scorer.score(reference, text)[name].fmeasure for text, reference in pairs]
    assert summed(metric_of(name), pairs) == pytest.approx(100 * np.mean(scores))


TARGETS = ["a b c d e", "f g h i j"]


@pytest.mark.parametrize(
    "name, targets, expected",
    [
        ("bleu", TARGETS, 100.0),
        ("bleu", [TARGETS[0], None], 100.0),
        ("bleu", [TARGETS[0], "f g h x y"], 100 * (8 / 10 * 6 / 8 * 4 / 6 * 2 / 4) ** 0.25),
        ("bleu", [None, None], None),
        ("wer", TARGETS, None),
    ],
)
def test_the_ceiling_is_what_the_targets_score(name, targets, expected):
    assert metric_of(name).ceiling(targets, TARGETS) == pytest.approx(expected)
