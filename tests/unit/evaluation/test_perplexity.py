import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import windows_of
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate

from ..conftest import assert_close, small_model
from .conftest import ProgressSpy, ensemble, log_probs_by_hand, peaked_model

N, V = 121, 20


@settings(max_examples=25)
@given(columns=st.integers(1, N // 2), window=st.integers(1, 150), n_models=st.integers(1, 2))
def test_nll_is_the_sum_over_the_columns_each_read_as_one_text(text, columns, window, n_models):
    """Whatever the window; the part of the text that does not fill the columns is left out."""
    models = [peaked_model(seed=i) for i in range(n_models)]
    it = ensemble(*models, folder=text.folder, eval_window=window)
    result = evaluate(it, "test", columns)
    length = N // columns
    texts = [text.tokens[i * length : (i + 1) * length] for i in range(columns)]
    nll = -sum(log_probs_by_hand(models, column).sum().item() for column in texts)
    assert result.nll == pytest.approx(nll, rel=1e-9)
    assert result.tokens == columns * (length - 1)
    assert result.tokens + result.left_out + 1 == N


def test_one_column_is_the_default_and_leaves_nothing_out(text):
    model = peaked_model()
    result = evaluate(ensemble(model, folder=text.folder), "test")
    expected = -log_probs_by_hand([model], text.tokens).sum().item()
    assert (result.tokens, result.left_out) == (N - 1, 0)
    assert result.nll == pytest.approx(expected, rel=1e-9)
    assert result.perplexity == pytest.approx(math.exp(expected / (N - 1)), rel=1e-9)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(text):
    model = small_model()
    with torch.no_grad():
        model.decoder.embedding.zero_()
    result = evaluate(ensemble(model, folder=text.folder), "test", 5)
    assert result.perplexity == pytest.approx(V, rel=1e-12)
    assert result.bits == pytest.approx(math.log2(V), rel=1e-12)
    assert result.nll == pytest.approx(5 * (N // 5 - 1) * math.log(V), rel=1e-12)


def test_an_evaluation_repeats_itself(text):
    it = ensemble(peaked_model(), folder=text.folder)
    assert evaluate(it, "test") == evaluate(it, "test")


def test_progress_sees_every_window_and_the_name_of_the_split(text):
    progress = ProgressSpy()
    it = ensemble(peaked_model(), folder=text.folder, eval_window=10)
    assert evaluate(it, "test", progress=progress) == evaluate(it, "test")
    ((name, length),) = progress.seen
    assert "test" in name and length == math.ceil((N - 1) / 10)


def test_windows_are_the_text_in_order(text):
    it = ensemble(peaked_model(), folder=text.folder, eval_window=10)
    windows = list(windows_of(it, "test"))
    assert [w["net_input"]["window"] for w in windows] == list(range(len(windows)))
    source = torch.cat([w["net_input"]["src_tokens"] for w in windows], dim=1)
    assert source.tolist() == [text.tokens[:-1]]
    assert torch.cat([w["target"] for w in windows], dim=1).tolist() == [text.tokens[1:]]


def test_a_split_that_is_not_there_or_too_short(text):
    it = ensemble(peaked_model(), folder=text.folder)
    with pytest.raises(FairseqDocError, match="no binarised split 'valid'"):
        evaluate(it, "valid")
    with pytest.raises(FairseqDocError, match=f"{N} columns over the {N} tokens"):
        evaluate(it, "test", N)


# The figures


@given(st.floats(0.01, 600), st.integers(1, 10**6))
def test_perplexity_and_bits_are_of_the_mean(mean, tokens):
    result = Evaluation(mean * tokens, tokens)
    assert math.log(result.perplexity) == pytest.approx(mean, rel=1e-9, abs=1e-12)
    assert 2 ** (result.bits / 10) == pytest.approx(result.perplexity**0.1, rel=1e-9)


def test_a_perplexity_beyond_float64_is_infinite():
    largest = torch.finfo(torch.float64).max
    assert Evaluation(7 * math.log(largest) * (1 - 1e-12), 7).perplexity < math.inf
    over = Evaluation(7 * 710.0, 7)  # log(largest) = 709.78
    assert over.perplexity == math.inf
    assert_close(over.bits, 710 / math.log(2))
