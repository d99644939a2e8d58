import math

import pytest
import torch

from fairseq_doc.evaluation.hub_interface import PretrainedLanguageModel
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import SentenceScore, score_text
from fairseq_doc.preparation.text_form import TextForm

from ..conftest import random_tokens, write_split
from .conftest import ensemble, peaked_model


@pytest.fixture
def lm(tmp_path):
    write_split(tmp_path, "test", random_tokens(3, 20).tolist())
    plain = ensemble(peaked_model(seed=0), peaked_model(seed=1), folder=tmp_path)
    return PretrainedLanguageModel(plain.models, plain.task)


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_a_string_has_one_score_and_a_list_a_list_of_them(lm, state):
    sentences = ["w1 w2  w3", "w4 strange"]
    text = [sentence.split() for sentence in sentences]
    assert lm.score(sentences, state) == score_text(lm, text, state)
    score = lm.score(sentences[0], state)
    assert isinstance(score, SentenceScore)
    assert [score] == lm.score(sentences[:1], state)
    assert score.words == ["w1", "w2", "w3", "</s>"]


def test_surprisals_are_the_scores_in_bits_of_words_as_written(lm):
    lm.form = TextForm("word", "moses")  # in place of the data folder's
    text = "w1, w2"
    score = lm.score(text)
    bits = [-p / math.log(2) for p in score.word_log_probs]
    words, units = lm.surprisals(text), lm.surprisals([text], units=True)[0]
    assert [row.text for row in words] == ["w1,", "w2", "</s>"]
    assert [row.text for row in units] == ["w1", ",", "w2", "</s>"]
    assert [row.surprisal for row in units] == pytest.approx(bits)
    assert [row.surprisal for row in words] == pytest.approx([bits[0] + bits[1], *bits[2:]])
    assert lm.surprisals([text, "w3"], "carried")[0][0].surprisal is None


def test_empty_and_long_sentences(lm):
    assert lm.score("", empty_sentences=True).words == ["</s>"]
    assert len(lm.score("w1 " * 20_001, max_tokens=30_000).words) == 20_002  # of any length


def test_perplexity_and_samples_are_the_ensembles(lm):
    assert lm.to(torch.float64) is lm and lm.text(["w1", "w2", "</s>", "w3"]) == "w1 w2\nw3"
    assert lm.perplexity("test", 2) == evaluate(lm, "test", 2)
    assert lm.perplexity("test").tokens == 59
    settings = {"samples": 2, "temperature": 0.7, "top_k": 5, "seed": 3}
    assert lm.sample("w1 w2", 8, **settings) == sample_text(lm, ["w1", "w2"], 8, **settings)
    assert lm.sample(length=4) == sample_text(lm, [], 4)
