"""Which of two sentences is likelier."""

import json
from types import SimpleNamespace

import pytest
from conftest import refusal

from fairseq_doc.evaluation import minimal_pairs
from fairseq_doc.evaluation.minimal_pairs import Pair, accuracy, judge, read_pairs
from fairseq_doc.evaluation.scoring import score_text

from .conftest import ensemble, peaked_model


def test_pairs_are_judged_by_the_scores_of_their_sentences():
    models = ensemble(peaked_model(1), peaked_model(2))
    texts = ["w1 w2 w3", "w3 w2 w1", "w5", "w4 w4", "w1 nowhere", "w2"]
    scores = [s.log_prob for s in score_text(models, [t.split() for t in texts])]
    of = dict(zip(texts, scores, strict=True))
    pairs = [
        Pair(texts[0], texts[1], "order", "syntax"),
        Pair(texts[1], texts[0], "order", "syntax"),
        Pair(texts[2], texts[3], "number", "syntax"),
        Pair(texts[4], texts[5], "word", "words"),
        Pair(texts[2], texts[2], "equal", "words"),
    ]
    found = judge(models, pairs)
    right = [of[pair.good] > of[pair.bad] for pair in pairs]
    assert found["all"]["accuracy"] == 100 * sum(right) / 5
    assert found["kinds"]["order"]["accuracy"] == 50  # one of the two orders
    assert found["kinds"]["equal"]["accuracy"] == 0
    word = found["kinds"]["word"]
    assert word["known"] is None and word["unknown"]["pairs"] == 1
    assert found["all"]["known"]["pairs"] == 4
    assert list(found["phenomena"]) == ["syntax", "words"]
    assert found["ties"] == 1


def test_scores_that_differ_by_rounding_are_ties(monkeypatch):
    """Whichever the larger; a difference beyond float32's rounding of the sums decides."""
    scores = {"a": -80.0, "b": -80.00001, "c": -80.001}
    sentences = [SimpleNamespace(log_prob=value) for value in scores.values()]
    monkeypatch.setattr(minimal_pairs, "score_text", lambda *_, **__: sentences)
    pairs = [Pair(good, bad, "k", "k") for good, bad in ("ab", "ba", "ac", "ca")]
    found = judge(ensemble(peaked_model()), pairs)
    assert found["ties"] == 2 and found["all"]["accuracy"] == 25


def test_no_batch_size_decides_a_pair():
    """Near ties in float32: sentences whose words have almost equal probabilities."""
    model = peaked_model().float()
    lines = [[f"w{(3 * i + k) % 16}" for i in range(4 + k % 30)] for k in range(60)]
    by_size = [
        [one.log_prob for one in score_text(ensemble(model), lines, max_tokens=size)]
        for size in (1, 100, 4000)
    ]
    for scores in zip(*by_size, strict=True):
        assert max(scores) - min(scores) < minimal_pairs.ROUNDING * abs(max(scores))


@pytest.mark.parametrize(
    "labels, kind, phenomenon",
    [
        ({"UID": "k", "linguistics_term": "p", "x": 1}, "k", "p"),
        ({"UID": None, "linguistics_term": None}, "x", "x"),
        ({"UID": ""}, "x", "x"),
        ({"UID": 7}, "7", "7"),
    ],
)
def test_a_pair_without_a_kind_has_the_files_name(tmp_path, labels, kind, phenomenon):
    line = {"sentence_good": "a", "sentence_bad": "b", **labels}
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    assert read_pairs(tmp_path / "x.jsonl") == [Pair("a", "b", kind, phenomenon)]


@pytest.mark.parametrize(
    "text",
    [
        "a b\tb a\r\nc\td\r\n",
        "sentence_good\tsentence_bad\na b\tb a\nc\td\n",
        "Good\tBad\r\na b\tb a\r\nc\td\r\n",
        "sentence_bad\tsentence_good\nb a\ta b\nd\tc\n",
        '{"sentence_good": "a b", "sentence_bad": "b a"}\r\n{"sentence_good": "c", "sentence_bad": "d"}\r\n',
    ],
)
def test_line_ends_and_a_header_are_no_text(tmp_path, text):
    (tmp_path / "x").write_text(text, newline="")
    assert read_pairs(tmp_path / "x") == [Pair("a b", "b a", "x", "x"), Pair("c", "d", "x", "x")]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("good\tbad\n", "expected pairs"),
        ("a\tb\na\tb\tc\n", "line 2: "),
        ("a\t\n", "line 1: "),
        ('{"sentence_good": "a", "sentence_bad": 3}\n', "line 1: "),
        ('{"sentence_good": "a", "sent\n', "line 1: "),
        ('{"sentence_good": "a", "sentence_bad": "\\ud83d"}\n', "line 1: "),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, text, problem):
    (tmp_path / "x").write_text(text)
    assert problem in refusal(read_pairs, tmp_path / "x")


def test_wilsons_interval():
    """8 of 10: Wilson (1927) gives .4902 to .9433."""
    found = accuracy([(True, False)] * 8 + [(False, False)] * 2)
    assert (round(found["low"], 2), round(found["high"], 2)) == (49.02, 94.33)
