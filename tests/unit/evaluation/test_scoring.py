import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.scoring import (
    MAX_WORDS,
    batches_by_length,
    check_sentences,
    score_text,
)

from ..conftest import write_split
from .conftest import (
    EOS,
    KNOWN,
    ProgressSpy,
    encoded,
    ensemble,
    log_probs_by_hand,
    peaked_model,
)

VOCABULARY = st.sampled_from([*KNOWN, "strange", "Strange"])
texts = st.lists(st.lists(VOCABULARY, max_size=12), min_size=1, max_size=9)
MODELS = [peaked_model(seed=0), peaked_model(seed=1)]


def scores(*args, **kwargs):
    return [s.word_log_probs for s in score_text(ensemble(*MODELS), *args, **kwargs).sentences]


def close(expected):
    """To nested lists of numbers, within 1e-9."""
    return [pytest.approx(row, rel=0, abs=1e-9) for row in expected]


# Fresh


@given(texts)
def test_a_fresh_score_is_that_of_the_sentence_alone_after_an_end_mark(text):
    by_hand = [log_probs_by_hand(MODELS, [EOS, *encoded(words)]).tolist() for words in text]
    result = score_text(ensemble(*MODELS), text)
    assert [s.word_log_probs for s in result.sentences] == close(by_hand)
    assert [s.words for s in result.sentences] == [[*words, "</s>"] for words in text]
    totals = [sum(row) for row in by_hand]
    assert [s.log_prob for s in result.sentences] == pytest.approx(totals, rel=0, abs=1e-9)
    assert result.log_prob == pytest.approx(sum(totals), rel=0, abs=1e-8)
    assert result.tokens == sum(len(words) + 1 for words in text)


@settings(max_examples=25)
@given(st.data(), texts, st.integers(1, 40))
def test_neither_order_nor_company_nor_max_tokens_changes_a_score(data, text, max_tokens):
    order = data.draw(st.permutations(range(len(text))))
    company = data.draw(texts)
    alone = [scores([words])[0] for words in text]
    together = scores([text[i] for i in order] + company, max_tokens=max_tokens)
    assert together[: len(text)] == close([alone[i] for i in order])


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_a_sentence_longer_than_max_tokens_is_scored_whole(max_tokens):
    text = [["w1", "w2", "w3"] * 9, ["w1"], ["w2", "w3"] * 6]
    assert scores(text, max_tokens=max_tokens) == close(scores(text))


# Carried


@given(text=texts, max_tokens=st.integers(1, 40))
def test_a_carried_score_is_of_the_lines_as_one_text(text, max_tokens):
    stream = [index for words in text for index in encoded(words)]
    assume(len(stream) > 1)
    by_hand = [0.0] + log_probs_by_hand(MODELS, stream).tolist()
    result = score_text(ensemble(*MODELS), text, "carried", max_tokens)
    assert [len(s.word_log_probs) for s in result.sentences] == [len(words) + 1 for words in text]
    flat = [p for s in result.sentences for p in s.word_log_probs]
    assert flat == pytest.approx(by_hand, rel=0, abs=1e-9)
    assert result.tokens == len(stream) - 1


def test_carried_scores_add_up_to_the_evaluators(tmp_path):
    text = [["w1", "w2", "strange"], [], ["w3"], ["w4", "<unk>"] * 20, ["w5"]]
    write_split(tmp_path, "test", [encoded(words) for words in text])
    it = ensemble(*MODELS, folder=tmp_path)
    evaluation, scored = evaluate(it, "test"), score_text(it, text, "carried", max_tokens=7)
    assert scored.log_prob == pytest.approx(-evaluation.nll, rel=1e-12)
    assert scored.tokens == evaluation.tokens
    fresh = score_text(it, text)
    assert abs(fresh.log_prob - scored.log_prob) > 0.1  # or the state would not matter


# Unknown words


@given(texts)
def test_words_outside_the_dictionary_are_counted_and_named(text):
    result = score_text(ensemble(*MODELS), text)
    strangers = [[w for w in words if w in ("strange", "Strange")] for words in text]
    assert [s.unknown for s in result.sentences] == strangers
    flat = sum(strangers, [])
    assert dict(result.unknown) == {word: flat.count(word) for word in set(flat)}
    assert list(result.unknown.values()) == sorted(result.unknown.values(), reverse=True)


def test_an_unknown_word_has_the_score_of_unk_which_itself_is_none():
    strange, literal = (score_text(ensemble(*MODELS), [["w1", w]]) for w in ("strange", "<unk>"))
    assert strange.sentences[0].log_prob == literal.sentences[0].log_prob
    assert strange.unknown == {"strange": 1}
    assert not literal.unknown and literal.sentences[0].unknown == []


# Sentences that are refused


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_words_are_apart_by_any_blanks(state):
    lines = [" w1\tw2  w3 ", "w4\r"]
    assert check_sentences(lines, state) == [["w1", "w2", "w3"], ["w4"]]


@pytest.mark.parametrize("empty", ["", "  ", "\t\r"])
def test_an_empty_sentence_is_refused_by_its_number_unless_asked_for(empty):
    lines = ["w1", "w2", empty, "w3", empty]
    with pytest.raises(FairseqDocError, match="^text: line 3 is empty: .*--empty-lines"):
        check_sentences(lines, at="text: ")
    expected = [["w1"], ["w2"], [], ["w3"], []]
    assert check_sentences(lines, empty_sentences=True) == expected
    assert check_sentences(lines, "carried") == expected


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_no_sentence_is_refused(state):
    with pytest.raises(FairseqDocError, match="^text: expected at least one sentence, got none"):
        check_sentences([], state, empty_sentences=True, at="text: ")


def test_a_sentence_of_too_many_words_is_refused_by_its_number():
    lines = ["w1", "w1 " * 5, "w1 " * 6]
    assert check_sentences(lines, max_words=6) == check_sentences(lines, max_words=None)
    with pytest.raises(FairseqDocError, match="^line 3 has 6 words: .* at most 5"):
        check_sentences(lines, max_words=5)
    assert len(check_sentences(["w " * MAX_WORDS])[0]) == MAX_WORDS
    with pytest.raises(FairseqDocError, match=f"line 1 has {MAX_WORDS + 1:,} words"):
        check_sentences(["w " * (MAX_WORDS + 1)])


# Batches


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


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_progress_changes_nothing(state):
    text = [["w1", "w2"] * i for i in range(1, 9)]
    progress = ProgressSpy()
    shown = score_text(ensemble(*MODELS), text, state, 10, progress)
    assert shown == score_text(ensemble(*MODELS), text, state, 10)
    ((_, length),) = progress.seen
    assert length > 1


def test_a_model_in_single_precision_gives_like_scores():
    text = [["w1", "w2"], ["w3"] * 9]
    single = ensemble(peaked_model()).to(torch.float32)
    double = score_text(ensemble(peaked_model()), text).log_prob
    assert score_text(single, text).log_prob == pytest.approx(double, rel=1e-5)


@pytest.mark.parametrize(
    "text, settings, problem",
    [
        ([["w1"]], {"state": "Carried"}, "expected fresh or carried; got 'Carried'"),
        ([["w1"]], {"max_tokens": 0}, "--max-tokens must be at least 1; got 0"),
        ([[]], {"state": "carried"}, "at least 2 tokens"),
    ],
)
def test_settings_that_cannot_be_met(text, settings, problem):
    with pytest.raises(FairseqDocError, match=problem):
        score_text(ensemble(peaked_model()), text, **settings)
    if settings.get("state") == "Carried":
        with pytest.raises(FairseqDocError, match=problem):
            check_sentences(["w1"], **settings)
