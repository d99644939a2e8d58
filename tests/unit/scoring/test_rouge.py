import pytest
from conftest import refusal

from fairseq_doc.scoring.hypotheses import System, Undoing
from fairseq_doc.scoring.rouge import score_rouge


def system(*texts):
    return System("a.out", list(texts), Undoing("none", "none", "en"), None, 0)


def test_scores_are_in_percent():
    found = score_rouge([system("a dog runs", "two cats")], ["a dog runs", "two dogs"], 100)
    assert found["unstemmed"]["rouge1"][0]["f1"] == pytest.approx(75)


def test_a_line_that_would_take_memory_with_its_square_is_refused():
    long = "a-" * 5_001  # a word of many words
    message = refusal(score_rouge, [system("a", long)], ["a", "a"])
    assert message == "a.out: sentence 2 has 5,001 words; expected at most 5,000"
    message = refusal(score_rouge, [system("a")], [long])
    assert message.startswith("the references: sentence 1 has 5,001 words")
