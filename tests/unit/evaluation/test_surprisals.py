"""Scores of words and spans are sums over their tokens."""

import math

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.evaluation.surprisals import SpanScore, score_spans, spans_of, table, without_marks
from fairseq_doc.preparation.text_form import WORDS

from .conftest import ensemble, peaked_model

MODELS = ensemble(peaked_model(1))
TEXT = [["w1", "w2", "strange", "w3"], ["w4", "w1"]]


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_parts_are_sums_over_their_tokens(state):
    """Parts of three tokens, of none and of one; bits by hand."""
    score = score_text(MODELS, TEXT, state, entropies=True)[0]
    spans = list(score_spans([("a", 3), ("", 0), ("b", 1)], score, MODELS.dictionary))
    bits = [-p / math.log(2) for p in score.word_log_probs]
    entropies = [entropy / math.log(2) for entropy in score.word_entropies]
    first = (sum(bits[:3]), entropies[0]) if state == "fresh" else (None, None)
    expected = [
        SpanScore("a", *first, unknown=True, tokens=3),
        SpanScore("", None, None, unknown=False, tokens=0),
        SpanScore("b", bits[3], entropies[3], unknown=False, tokens=1),
        SpanScore("</s>", bits[4], entropies[4], unknown=False, tokens=1),
    ]
    assert [vars(part) for part in spans] == [pytest.approx(vars(part)) for part in expected]


@given(st.lists(st.lists(st.sampled_from(["w1", "w2", "a|"]), max_size=3), min_size=2, max_size=5))
def test_spans_keep_their_places_and_their_words(spans):
    line = " # ".join(map(" ".join, spans))
    (plain, other), (counts, one) = without_marks([line, "w1  w2 "], "#")
    assert plain.split() == sum(spans, []) and counts == [len(span) for span in spans]
    assert (other, one) == ("w1  w2 ", [2])  # as it was
    (found,) = spans_of(WORDS, [plain], [plain.split()], [counts])
    assert found == [(" ".join(span), len(span)) for span in spans]


@pytest.mark.parametrize(
    "lines, mark, problem",
    [
        (["a b", "c"], "|", "expected | between spans; no line has it"),
        (["a | b", "a|b"], "|", "line 2: expected | between blanks; got 'a|b'"),
        (["a || b | c"], "|", "line 1: expected | between blanks; got '||'"),
    ],
)
def test_marks_that_are_refused(lines, mark, problem):
    assert problem in refusal(without_marks, lines, mark)


def test_the_table():
    rows = [vars(SpanScore("a,", 2.5, 1 / 3, False, 2)), vars(SpanScore("b", None, None, True, 1))]
    assert table([rows, rows[:1]]).split("\n") == [
        "line\tposition\tword\tsurprisal\tentropy\tunknown\ttokens",
        "1\t1\ta,\t2.500000\t0.333333\t0\t2",
        "1\t2\tb\tNA\tNA\t1\t1",
        "2\t1\ta,\t2.500000\t0.333333\t0\t2",
    ]
