import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import average_log_probs, load_ensemble

from ..conftest import assert_close, random_tokens
from .conftest import ensemble, peaked_model, probs_by_hand, with_bias

B, T, V = 3, 9, 20
SOURCE, TARGET = random_tokens(B, T), random_tokens(B, T, seed=1)
cut_points = st.lists(st.integers(1, T - 1), max_size=T, unique=True).map(sorted)


def of_targets(probs, target=TARGET):
    return probs.gather(-1, target.unsqueeze(-1)).log().flatten()


def models_of(count):
    return [peaked_model(seed=seed) for seed in range(count)]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_an_ensemble_of_a_model_with_itself_is_the_model(copies):
    model = peaked_model(seed=4)
    both = ensemble(*(peaked_model(seed=4) for _ in range(copies)))
    probs = model.get_normalized_probs(model(SOURCE), log_probs=False).detach()
    assert_close(both.token_log_probs(SOURCE, TARGET, 0), of_targets(probs))
    assert_close(both.next_log_probs(SOURCE, 0), probs[:, -1].log())


@pytest.mark.parametrize("n_models", [2, 3])
@settings(max_examples=20)
@given(cuts=cut_points)
def test_probabilities_are_averaged_and_every_model_carries_its_own_state(n_models, cuts):
    """In whatever windows the text comes; P by hand is of the whole text at once."""
    models = models_of(n_models)
    probs = probs_by_hand(models, SOURCE)
    windows = list(zip(*(x.tensor_split(cuts, dim=1) for x in (SOURCE, TARGET)), strict=True))
    parts = [ensemble(*models).token_log_probs(*w, i).view(B, -1) for i, w in enumerate(windows)]
    assert_close(torch.cat(parts, dim=1).flatten(), of_targets(probs))

    for i, (part, end) in enumerate(zip(windows, [*cuts, T], strict=True)):
        actual = ensemble(*models).next_log_probs(part[0], i)
        assert_close(actual, probs[:, end - 1].log())


def test_models_of_other_architectures_may_be_averaged():
    models = [
        peaked_model(),
        peaked_model(layer_dims="3,7,4", doc_components="0,0,0,1", plain_output=True),
        peaked_model(untie_output=True, component_dim=3),
    ]
    expected = of_targets(probs_by_hand(models, SOURCE))
    assert_close(ensemble(*models).token_log_probs(SOURCE, TARGET, 0), expected)


def test_the_order_of_the_models_does_not_matter():
    scores = [
        ensemble(*(peaked_model(seed=i) for i in seeds)).token_log_probs(SOURCE, TARGET, 0)
        for seeds in ((0, 1, 2), (2, 0, 1))
    ]
    assert_close(*scores)


@given(st.lists(st.booleans(), min_size=B * T, max_size=B * T))
def test_targets_that_do_not_count_are_left_out_row_by_row(counts):
    both = ensemble(*models_of(2))
    counted = torch.tensor(counts).view(B, T)
    scores = both.token_log_probs(SOURCE, TARGET, 0).view(B, T)
    assert_close(both.token_log_probs(SOURCE, TARGET, 0, counted), scores[counted])
    elsewhere = TARGET.where(counted, torch.tensor(0))
    assert_close(both.token_log_probs(SOURCE, elsewhere, 0, counted), scores[counted])


def test_window_zero_starts_every_model_from_zeros():
    both = ensemble(*models_of(2))
    first = both.token_log_probs(SOURCE, TARGET, 0)
    assert (both.token_log_probs(SOURCE, TARGET, 1) - first).abs().max() > 1e-3
    assert_close(both.token_log_probs(SOURCE, TARGET, 0), first)


@given(st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.7, 30.0]), st.integers(1, 3))
def test_a_temperature_is_taken_of_each_model_and_the_average_after(temperature, n_models):
    models = models_of(n_models)
    log_probs = ensemble(*models).next_log_probs(SOURCE, 0, temperature)
    assert_close(log_probs.exp(), probs_by_hand(models, SOURCE, temperature)[:, -1])
    assert_close(log_probs.exp().sum(-1), torch.ones(B))


def test_tempering_the_average_would_be_something_else():
    """So the test above distinguishes the two."""
    models = models_of(2)
    powers = probs_by_hand(models, SOURCE)[:, -1] ** 2
    other = powers / powers.sum(-1, keepdim=True)
    assert (other - ensemble(*models).next_log_probs(SOURCE, 0, 0.5).exp()).abs().max() > 1e-2


four_logs = st.lists(st.floats(-800, 0), min_size=4, max_size=4)


@given(st.lists(four_logs, min_size=1, max_size=5))
def test_average_log_probs_is_the_log_of_the_mean(values):
    """Also where the probabilities themselves would be zero in float64."""
    rows = torch.tensor(values, dtype=torch.float64)
    top = rows.max(0).values
    expected = (rows - top).exp().mean(0).log() + top
    assert_close(average_log_probs(list(rows)), expected)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_score_that_is_not_finite_is_an_error(value):
    broken = with_bias(peaked_model(seed=1), 5, value)
    models = [broken] if value == -math.inf else [peaked_model(seed=0), broken]
    target = torch.full_like(SOURCE, 6)
    target[1, 2] = 5
    with pytest.raises(FairseqDocError, match=f"not finite: .* got {value}"):
        ensemble(*models).token_log_probs(SOURCE, target, 0)


def test_a_word_that_one_of_two_models_rules_out_has_half_the_others_probability():
    one, other = models_of(2)
    with_bias(other, 5, -math.inf)
    target = torch.full_like(SOURCE, 5)
    expected = of_targets(probs_by_hand([one], SOURCE) / 2, target)
    assert_close(ensemble(one, other).token_log_probs(SOURCE, target, 0), expected)


def test_scores_of_a_model_in_single_precision_are_added_up_in_double():
    model = peaked_model()
    expected = ensemble(model).token_log_probs(SOURCE, TARGET, 0)
    single = ensemble(model).to(torch.float32)
    assert next(single.models[0].parameters()).dtype == torch.float32
    scores = single.token_log_probs(SOURCE, TARGET, 0)
    assert scores.dtype == torch.float64
    assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_models_are_put_into_evaluation():
    model = peaked_model(output_dropout=0.5).train()
    first, second = (ensemble(model).token_log_probs(SOURCE, TARGET, 0) for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)


def test_single_is_the_only_model():
    model = peaked_model()
    assert ensemble(model).single is model
    with pytest.raises(FairseqDocError, match="expected one checkpoint, .*; got 2"):
        _ = ensemble(model, peaked_model(seed=1)).single


def test_dictionary_and_device_are_the_models():
    it = ensemble(peaked_model())
    assert it.dictionary is it.task.dictionary
    assert it.device == torch.device("cpu")


def test_a_checkpoint_that_is_not_there(tmp_path):
    path = f"{tmp_path}/none.pt"
    for paths in (path, [path]):
        with pytest.raises(FairseqDocError, match="no checkpoint at .*/none.pt"):
            load_ensemble(paths, tmp_path)
