import math

import pytest
import torch
from conftest import assert_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.adaptation.cache import CacheSettings, StreamCache
from fairseq_doc.adaptation.dynamic import DynamicSettings
from fairseq_doc.evaluation.scorer import SampleSettings, ScorerSettings, scorer

from ..conftest import assert_close, random_tokens
from .conftest import ensemble, peaked_model, probs_by_hand, with_bias

B, T, V = 3, 9, 20
SOURCE, TARGET = random_tokens(B, T), random_tokens(B, T, seed=1)
cut_points = st.lists(st.integers(1, T - 1), max_size=T, unique=True).map(sorted)
TWO = SampleSettings(samples=2)


def token_log_probs(ensemble, source, target, window=0, *settings, **where):
    """log P of the targets of one window, (B, T) or (n,)."""
    with scorer(ensemble, *settings) as one:
        return one.log_probs(source, target, window, **where)[0]


def next_log_probs(ensemble, source, window=0, temperature=1.0):
    """log P of every word after a window, (B, V)."""
    with scorer(ensemble) as one:
        return one.next_log_probs(source, window, temperature)


def of_targets(probs):
    return probs.gather(-1, TARGET.unsqueeze(-1)).squeeze(-1).log()


def models_of(count):
    return [peaked_model(seed=seed) for seed in range(count)]


@pytest.mark.parametrize("n_models", [1, 2, 3])
@settings(max_examples=20)
@given(cuts=cut_points)
def test_probabilities_are_averaged_and_every_model_carries_its_own_state(n_models, cuts):
    """The windows do not matter; P by hand is computed for the whole text at once."""
    models = models_of(n_models)
    probs = probs_by_hand(models, SOURCE)
    windows = list(zip(*(x.tensor_split(cuts, dim=1) for x in (SOURCE, TARGET)), strict=True))
    parts = [token_log_probs(ensemble(*models), *w, i) for i, w in enumerate(windows)]
    assert_close(torch.cat(parts, dim=1), of_targets(probs))
    for i, (part, end) in enumerate(zip(windows, [*cuts, T], strict=True)):
        log_probs = next_log_probs(ensemble(*models), part[0], i)
        assert_close(log_probs, probs[:, end - 1].log())
    whole = token_log_probs(ensemble(*models), SOURCE, TARGET)  # window 0: from zeros again
    assert_close(whole, of_targets(probs))


@given(st.lists(st.booleans(), min_size=B * T, max_size=B * T))
def test_targets_at_some_steps_row_by_row(counts):
    both = ensemble(*models_of(2))
    counted = torch.tensor(counts).view(B, T)
    scores = token_log_probs(both, SOURCE, TARGET)
    some = token_log_probs(both, SOURCE, TARGET[counted], at=counted.nonzero(as_tuple=True))
    assert_close(some, scores[counted])


@given(st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.7, 30.0]), st.integers(1, 3))
def test_a_temperature_applies_to_each_model_and_the_average_comes_after(temperature, n_models):
    models = models_of(n_models)
    it, probs = ensemble(*models), probs_by_hand(models, SOURCE, temperature)
    log_probs = next_log_probs(it, SOURCE, 0, temperature)
    assert_close(log_probs.exp(), probs[:, -1])
    assert_close(log_probs.exp().sum(-1), torch.ones(B))
    scores = token_log_probs(it, SOURCE, TARGET, 0, ScorerSettings(temperature=temperature))
    assert_close(scores, of_targets(probs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_score_that_is_not_finite_is_an_error(value):
    broken = with_bias(peaked_model(seed=1), 5, value)
    models = [broken] if value == -math.inf else [peaked_model(seed=0), broken]
    target = torch.full_like(SOURCE, 6)
    target[1, 2] = 5
    problem = f"not finite: .* got {value}"
    assert_refused(problem, token_log_probs, ensemble(*models), SOURCE, target)


def test_scores_of_a_model_in_single_precision_are_added_up_in_double():
    model = peaked_model()
    expected = token_log_probs(ensemble(model), SOURCE, TARGET)
    scores = token_log_probs(ensemble(model).to(torch.float32), SOURCE, TARGET)
    assert next(model.parameters()).dtype == torch.float32 and scores.dtype == torch.float64
    assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_models_are_put_into_evaluation():
    it = ensemble(peaked_model(output_dropout=0.5).train())
    first, second = (token_log_probs(it, SOURCE, TARGET) for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("models", [1, 2])
@torch.no_grad()
def test_entropies_are_of_the_mixed_distribution(models):
    added = ScorerSettings(cache=CacheSettings(window=15, theta=2.0, share=0.2))
    tokens = random_tokens(1, 61)
    source, target = tokens[:, :-1], tokens[:, 1:]
    it = ensemble(*models_of(models))
    expected = token_log_probs(it, source, target, 0, added)
    probs = []
    for model in it.models:
        output = model(source)
        log_probs = model.get_normalized_probs(output, log_probs=True)
        hidden = output[1]["undropped"].transpose(0, 1)
        probs.append(StreamCache([added.cache]).mix_all(log_probs, hidden, target).exp())
    probs = torch.stack(probs).mean(0)
    with scorer(it, added) as one:
        parts = [
            one.with_entropies(source[:, :40], target[:, :40], 0),
            one.with_entropies(source[:, 40:], target[:, 40:], 1),
        ]
    log_probs, entropies = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    assert_close(log_probs, expected, rtol=1e-5, atol=1e-5)
    assert_close(entropies, torch.special.entr(probs).sum(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "kind, settings, name",
    [
        *((ScorerSettings, {"temperature": t}, "temperature") for t in (0.0, math.inf, math.nan)),
        (ScorerSettings, {"samples": TWO, "cache": CacheSettings(window=5)}, "samples"),
        (ScorerSettings, {"samples": TWO, "dynamic": DynamicSettings()}, "samples"),
        (SampleSettings, {"samples": 2, "dropout_scale": -1}, "dropout_scale"),
    ],
)
def test_settings_that_cannot_be(kind, settings, name):
    assert_refused(name, kind, **settings)
