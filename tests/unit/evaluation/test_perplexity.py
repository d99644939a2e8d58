import math

import pytest
from conftest import assert_refused
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_doc.adaptation.cache import GRIDS, CacheSettings
from fairseq_doc.adaptation.dynamic import DynamicSettings, grid
from fairseq_doc.evaluation import perplexity
from fairseq_doc.evaluation.perplexity import (
    TEMPERATURES,
    Evaluation,
    at_point,
    ends,
    evaluate,
    points_of,
    search,
)
from fairseq_doc.evaluation.scorer import ScorerSettings
from fairseq_doc.modules.mixture import NotFiniteError

from .conftest import ensemble, log_probs_by_hand, peaked_model

N, V = 121, 20


@settings(max_examples=15)
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


@given(st.floats(0.01, 709.7), st.integers(1, 10**6))
@example(710.0, 7)  # beyond float64
def test_perplexity_and_bits_are_of_the_mean(mean, tokens):
    result = Evaluation(mean * tokens, tokens)
    expected = math.inf if mean == 710 else pytest.approx(math.exp(mean), rel=1e-9)
    assert result.perplexity == expected
    assert result.bits * math.log(2) == pytest.approx(mean)


SETTINGS = ScorerSettings(dynamic=DynamicSettings(segment=5), statistics=[{}])
TOKENS, WINDOW = 1000, 100


@pytest.fixture
def nll_of(monkeypatch):
    """Let each token of a pair cost what a function of (rate, decay, the tokens before it) says."""

    def install(function):
        passes = []

        def evaluate_each(ensemble, split, candidates, tokens, give_up):
            (settings,) = candidates
            pair = settings.dynamic.rate, settings.dynamic.decay
            nll = scored = 0
            while scored < tokens:
                each = function(*pair, scored)
                if not math.isfinite(each):
                    raise NotFiniteError("inf")
                nll, scored = nll + WINDOW * each, scored + WINDOW
                if give_up(scored, nll):
                    break
            passes.append((pair, scored))
            return [Evaluation(nll, scored)]

        monkeypatch.setattr(perplexity, "evaluate_each", evaluate_each)
        return passes

    return install


def searched(remark=lambda line: None):
    return search(None, "valid", SETTINGS, "dynamic", tokens=TOKENS, remark=remark)


def test_the_best_pair_is_found_and_those_far_behind_are_given_up(nll_of):
    def cost(rate, decay, before):
        return 5 + 0.02 * abs(math.log(rate / 6e-5)) + 0.005 * abs(math.log(decay / 3e-3))

    passes, lines = nll_of(cost), []
    found = searched(lines.append)
    assert (found.settings.dynamic.rate, found.settings.dynamic.decay) == (6e-5, 3e-3)
    assert found.best.nll == pytest.approx(5 * TOKENS) and found.best.tokens == TOKENS
    assert [pair for pair, _ in passes] == grid(5) and len(lines) == len(grid(5))
    whole = {pair for pair, scored in passes if scored == TOKENS}
    assert len(found.tried) == len(whole) and len(found.given_up) == len(grid(5)) - len(whole) > 4
    # None of those given up is within 3 % of the best, and none before a fifth of the text.
    lost = {pair for pair, scored in passes if scored < TOKENS}
    assert all(cost(*pair, 0) > 5 + math.log(1.03) for pair in lost)
    assert set(found.given_up.values()) == {200}
    for line in lines:
        assert (line.split(": ")[1] in found.given_up) == ("given up" in line)
    assert found.at_ends == {}


def test_a_pair_that_is_worse_at_first_only_can_win(nll_of):
    """2 % behind at a fifth of the text, ahead at its end."""
    late = (4e-4, 1e-2)

    def cost(rate, decay, before):
        if (rate, decay) == late:
            return 5.02 if before < 300 else 4.9
        return 5.0

    nll_of(cost)
    found = searched()
    assert (found.settings.dynamic.rate, found.settings.dynamic.decay) == late
    assert found.at_ends == {"rate": "largest", "decay": "largest"}


def test_pairs_that_run_away_are_infinitely_bad(nll_of):
    nll_of(lambda rate, decay, before: math.inf if rate > 5e-5 else 6.0)
    found = searched()
    assert found.settings.dynamic.rate <= 3e-5
    assert sum(one.nll == math.inf for one in found.tried.values()) == sum(
        r > 5e-5 for r, _ in grid(5)
    )
    nll_of(lambda *pair: math.inf)
    problem = "no pair of rate and decay gave finite scores"
    assert_refused(problem, searched)


def test_temperatures_and_points_are_tried_in_one_pass(monkeypatch):
    """The published grid of temperatures: factors of the logits from 1.06 down to .8."""
    assert [1 / t for t in TEMPERATURES] == pytest.approx([1.06 - 0.02 * n for n in range(14)])
    cached = ScorerSettings(cache=CacheSettings(window=5, similarity="cosine"))
    settings = [at_point(cached, "cache", point) for point in points_of(cached, "cache")]
    assert [(one.cache.theta, one.cache.share) for one in settings] == list(GRIDS["cosine"])
    assert {one.cache.window for one in settings} == {5}

    def evaluate_each(ensemble, split, settings, columns):
        return [Evaluation(abs(one.temperature - 1.02), 10) for one in settings]

    monkeypatch.setattr(perplexity, "evaluate_each", evaluate_each)
    result = search(None, "valid", ScorerSettings(), "temperature")
    assert result.settings.temperature == 1 / 0.98 and list(result.tried)[3] == "1.0000"
    assert result.at_ends == {}


def test_ends_of_what_was_tried_are_named():
    points = points_of(ScorerSettings(cache=CacheSettings(window=5)), "cache")
    assert ends(points, {"theta": 1.0, "lambda": 0.1}) == {}
    at_ends = {"theta": "largest", "lambda": "smallest"}
    assert ends(points, {"theta": 256.0, "lambda": 0.01}) == at_ends
    rate = {"rate": 1e-5, "decay": 3e-3}
    assert ends(points_of(SETTINGS, "dynamic"), rate) == {"rate": "smallest"}
