import pytest
from conftest import assert_refused
from hypothesis import assume, given
from hypothesis import strategies as st

from fairseq_doc.adaptation.cache import CacheSettings
from fairseq_doc.evaluation.scorer import ScorerSettings
from fairseq_doc.evaluation.scoring import MAX_WORDS, batches_by_length, check_sentences, score_text

from .conftest import EOS, KNOWN, encoded, ensemble, log_probs_by_hand, peaked_model

VOCABULARY = st.sampled_from([*KNOWN, "strange", "Strange"])
texts = st.lists(st.lists(VOCABULARY, max_size=12), min_size=1, max_size=9)
CACHED = ScorerSettings(cache=CacheSettings(window=5))
MODELS = [peaked_model(seed=0), peaked_model(seed=1)]


def scores(*args, **kwargs):
    return [s.word_log_probs for s in score_text(ensemble(*MODELS), *args, **kwargs)]


def close(expected):
    """To nested lists of numbers, within 1e-9."""
    return [pytest.approx(row, rel=0, abs=1e-9) for row in expected]


@given(texts, st.integers(1, 40))
def test_a_fresh_score_is_that_of_the_sentence_alone_after_an_end_mark(text, max_tokens):
    by_hand = [log_probs_by_hand(MODELS, [EOS, *encoded(words)]).tolist() for words in text]
    result = score_text(ensemble(*MODELS), text, max_tokens=max_tokens)
    assert [s.word_log_probs for s in result] == close(by_hand)
    assert [s.words for s in result] == [[*words, "</s>"] for words in text]
    totals = [sum(row) for row in by_hand]
    assert [s.log_prob for s in result] == pytest.approx(totals, rel=0, abs=1e-9)
    assert [s.tokens for s in result] == [len(words) + 1 for words in text]


@given(text=texts, max_tokens=st.integers(1, 40))
def test_a_carried_score_is_of_the_lines_as_one_text(text, max_tokens):
    stream = [index for words in text for index in encoded(words)]
    assume(len(stream) > 1)
    by_hand = [0.0] + log_probs_by_hand(MODELS, stream).tolist()
    result = score_text(ensemble(*MODELS), text, "carried", max_tokens)
    assert [len(s.word_log_probs) for s in result] == [len(words) + 1 for words in text]
    flat = [p for s in result for p in s.word_log_probs]
    assert flat == pytest.approx(by_hand, rel=0, abs=1e-9)
    assert sum(s.tokens for s in result) == len(stream) - 1


@given(texts)
def test_words_outside_the_dictionary_are_counted_and_scored_as_unk(text):
    strangers = [[w for w in words if w in ("strange", "Strange")] for words in text]
    assert [s.unknown for s in score_text(ensemble(*MODELS), text)] == strangers
    as_unk = [[w if w in KNOWN else "<unk>" for w in words] for words in text]
    assert scores(as_unk) == close(scores(text))
    assert not any(s.unknown for s in score_text(ensemble(*MODELS), as_unk))


@pytest.mark.parametrize("options", [{"state": "carried"}, {"empty_sentences": True}])
def test_words_are_apart_by_any_blanks_and_lines_may_be_empty(options):
    lines = [" w1\tw2  w3 ", "", "w4\r", "\t\r"]
    assert check_sentences(lines, **options) == [["w1", "w2", "w3"], [], ["w4"], []]


@pytest.mark.parametrize(
    "lines, options, problem",
    [
        *(
            (["w1", empty], {}, "line 2 is empty: .*empty_sentences")
            for empty in ("", "  ", "\t\r")
        ),
        ([], {"state": "carried"}, "expected at least one sentence, got none"),
        (["w1", "w1 " * 6], {"max_words": 5}, "line 2 has 6 words: .* at most 5"),
        (["w " * (MAX_WORDS + 1)], {}, f"line 1 has {MAX_WORDS + 1:,} words"),
    ],
)
def test_sentences_that_are_refused(lines, options, problem):
    assert_refused(f"^text: {problem}", check_sentences, lines, at="text: ", **options)
    if "max_words" in options:
        assert check_sentences(lines, max_words=6) == check_sentences(lines, max_words=None)


@pytest.mark.parametrize(
    "text, options, problem",
    [
        ([["w1"]], {"state": "Carried"}, "state must be fresh or carried; got Carried"),
        ([[]], {"state": "carried"}, "at least 2 tokens"),
        ([["w1"]], {"settings": ScorerSettings(temperature=2)}, "at temperature 1"),
        ([["w1"]], {"settings": CACHED}, "expected state carried; got fresh"),
    ],
)
def test_settings_that_cannot_be_met(text, options, problem):
    assert_refused(problem, score_text, ensemble(peaked_model()), text, **options)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 100))
def test_batches_hold_every_sentence_once_and_at_most_max_tokens_with_padding(lengths, max_tokens):
    batches = batches_by_length(lengths, max_tokens)
    order = sum(batches, [])
    assert sorted(order) == list(range(len(lengths)))
    assert [(lengths[i], i) for i in order] == sorted((n, i) for i, n in enumerate(lengths))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= max_tokens
    for batch, after in zip(batches, batches[1:], strict=False):  # none could take one more
        assert (len(batch) + 1) * lengths[after[0]] > max_tokens
