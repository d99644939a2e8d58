from unittest.mock import Mock

import pytest
import torch
from conftest import assert_refused
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_doc.evaluation.prefix_tree import sequence_log_probs, states_after
from fairseq_doc.evaluation.scoring import score_text

from .conftest import EOS, KNOWN, encoded, ensemble, log_probs_by_hand, peaked_model, with_bias

MODELS = [
    peaked_model(seed=0, mogrifier_rounds=3, mogrifier_rank=2),
    peaked_model(seed=1, layer_dims="3,7,4", doc_components="0,1,0,2"),
]

# Of few words, so that many sentences begin alike; some much longer than others; some twice.
FEW = st.sampled_from(["w0", "w1", "strange"])
sentences_alike = st.lists(
    st.lists(FEW, max_size=7)
    | st.lists(st.sampled_from([f"w{i}" for i in range(16)]), max_size=3)
    | st.tuples(st.lists(FEW, max_size=3), st.integers(1, 20)).map(lambda t: t[0] + ["w5"] * t[1]),
    min_size=1,
    max_size=12,
).flatmap(lambda chosen: st.permutations(chosen + chosen[: len(chosen) // 3]))


def one_by_one(models, sentences):
    return [s.log_prob for s in score_text(ensemble(*models), sentences)]


def score_prefix_tree(it, sentences):
    """log P of the sentences with their end marks."""
    return [row.sum() for row in sequence_log_probs(it, list(map(encoded, sentences)), EOS)]


def close(expected):
    return pytest.approx(expected, rel=0, abs=1e-10)


@pytest.mark.parametrize("models", [MODELS[:1], MODELS], ids=["one model", "an ensemble"])
@given(sentences=sentences_alike)
@example(sentences=[])
@example(sentences=[["w3"] * 120, ["w3"] * 119 + ["w4"], ["w3"]])
@example(sentences=[[], ["</s>"], ["</s>", "w0"], ["w0", "</s>", "w1"], ["w0"]])
def test_scores_are_those_of_the_sentences_one_by_one(models, sentences):
    scores = score_prefix_tree(ensemble(*models), sentences)
    assert scores == close(one_by_one(models, sentences))
    of_words = {}
    for words, score in zip(sentences, scores, strict=True):  # equal sentences, equal scores
        assert of_words.setdefault(tuple(encoded(words)), score) == score


@settings(max_examples=12)
@given(sentences_alike)
def test_each_distinct_prefix_is_read_once_and_scored_once_by_each_model(sentences):
    models = [peaked_model(seed=0), peaked_model(seed=1)]
    for model in models:
        model.forward, model.token_nll = Mock(wraps=model.forward), Mock(wraps=model.token_nll)
    score_prefix_tree(ensemble(*models), sentences)
    whole = [tuple(encoded(words)) for words in sentences]
    before_a_word = {words[:n] for words in whole for n in range(len(words))}
    with_a_word = {words[:n] for words in whole for n in range(1, len(words) + 1)}
    for model in models:
        read, scored = model.forward.call_args_list, model.token_nll.call_args_list
        assert sum(call.args[0].numel() for call in read) == len(before_a_word)
        assert sum(call.args[1].numel() for call in scored) == len(with_a_word)
        assert len(read) == max(map(len, whole))  # all sentences together, a token at a time


def test_a_word_without_probability_is_refused_where_it_occurs():
    model = with_bias(peaked_model(), KNOWN["w3"], -torch.inf)
    assert len(score_prefix_tree(ensemble(model), [["w0"], ["w2", "w4"]])) == 2
    assert_refused("not finite", score_prefix_tree, ensemble(model), [["w0"], ["w2", "w3"]])
    other = score_prefix_tree(ensemble(model, peaked_model(seed=1)), [["w2", "w3"]])
    assert other == close(one_by_one([model, peaked_model(seed=1)], [["w2", "w3"]]))


@settings(max_examples=10)
@given(st.lists(st.integers(4, 19), min_size=1, max_size=6), sentences_alike)
def test_sequences_go_on_from_a_carried_state(text, sentences):
    it = ensemble(*MODELS)
    sequences = [encoded(words) for words in sentences]
    states = states_after(it, [EOS, *text[:-1]])
    scores = sequence_log_probs(it, sequences, text[-1], states)
    for sequence, row in zip(sequences, scores, strict=True):
        by_hand = log_probs_by_hand(MODELS, [EOS, *text, *sequence])[len(text) :]
        assert row.tolist() == close(by_hand.tolist())
    after = states_after(it, text[-1:], states)  # and the states before are as they were
    whole = states_after(it, [EOS, *text])
    for layers, expected in zip(after, whole, strict=True):
        for layer, other in zip(layers, expected, strict=True):
            assert all(map(torch.allclose, layer, other))
