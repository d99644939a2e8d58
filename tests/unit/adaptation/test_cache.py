import math
from unittest import mock

import pytest
import torch
from conftest import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.adaptation import cache as module
from fairseq_doc.adaptation.cache import SIMILARITIES, CacheSettings, StreamCache
from fairseq_doc.evaluation.perplexity import evaluate, evaluate_each
from fairseq_doc.evaluation.scorer import ScorerSettings

from ..conftest import assert_close, random_tokens
from ..evaluation.conftest import ensemble, peaked_model

V = 9


def probs_of_cache(hidden, words, step, window, theta, similarity):
    """p_cache of every word at a step, (V,), term by term; None where nothing is remembered."""
    total = torch.zeros(V, dtype=torch.float64)
    for i in range(max(0, step - window), step):
        similar = hidden[i] @ hidden[step]
        if similarity == "cosine":
            similar = similar / (hidden[i].norm() * hidden[step].norm())
        total[words[i]] += math.exp(theta * similar)
    return total / total.sum() if step else None


@given(
    steps=st.integers(1, 25),
    window=st.integers(1, 12),
    theta=st.floats(0, 30),
    similarity=st.sampled_from(SIMILARITIES),
    share=st.floats(0, 0.99),
    parts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    block=st.sampled_from([1, 4 * 2 * 3 * (8 + 3), module.BLOCK_BYTES]),
    seed=st.integers(0, 99),
)
def test_probabilities_are_the_definitions(
    steps, window, theta, similarity, share, parts, block, seed
):
    """Whatever the windows in which the text comes, and the blocks in which they are taken, of
    targets and of all words."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, steps, 3, generator=rng, dtype=torch.float64)
    words = torch.randint(V, (2, steps), generator=rng)
    of_model = torch.randn(2, steps, V, generator=rng, dtype=torch.float64).softmax(-1)
    settings = CacheSettings(window=window, theta=theta, share=share, similarity=similarity)
    of_targets, of_words = StreamCache([settings]), StreamCache([settings])
    found, every = [], []
    start = 0
    while start < steps:
        part = slice(start, start + parts[start % len(parts)])
        h, target, log_probs = hidden[:, part], words[:, part], of_model[:, part].log()
        chosen = log_probs.gather(2, target[:, :, None]).squeeze(2)
        with mock.patch.object(module, "BLOCK_BYTES", block):
            found.append(of_targets.mix(chosen[None], h, target)[0])
        every.append(of_words.mix_all(log_probs, h, target))
        start = part.stop
    found, every = torch.cat(found, 1).exp(), torch.cat(every, 1).exp()
    for stream in range(2):
        for step in range(steps):
            expected = of_model[stream, step]
            of_cache = probs_of_cache(
                hidden[stream], words[stream], step, window, theta, similarity
            )
            if of_cache is not None:
                expected = (1 - share) * expected + share * of_cache
            assert_close(every[stream, step], expected, rtol=1e-9, atol=1e-12)
            word = words[stream, step]
            assert_close(found[stream, step], expected[word], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("theta", [0.0, 200.0])
def test_shares_sum_to_one_in_float32_too(theta, similarity):
    hidden = torch.randn(2, 30, 160, generator=torch.Generator().manual_seed(0))
    settings = CacheSettings(window=20, theta=theta, share=0.3, similarity=similarity)
    shares = StreamCache([settings]).attend(hidden, random_tokens(2, 30) % V)
    sums = shares.log_probs(V, theta).exp().sum(2)
    assert_close(sums[:, 1:], torch.ones(2, 29).double(), rtol=1e-6)
    assert_close(sums[:, 0], torch.zeros(2).double())


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_states_of_zeros_and_of_any_size(similarity):
    """A state without a direction is like all others; a large theta does not overflow."""
    hidden = torch.zeros(1, 4, 3)
    hidden[0, 2:] = 1e10
    words = torch.tensor([[1, 2, 3, 1]])
    settings = CacheSettings(window=9, theta=1e4, share=0.5, similarity=similarity)
    found = StreamCache([settings]).mix(torch.full((1, 1, 4), -1.0), hidden, words)
    half = 0.5 * math.exp(-1)
    expected = [math.exp(-1), half, half, half]  # none of the first three words comes again
    assert_close(found[0, 0].exp(), torch.tensor(expected).double(), rtol=1e-6)


def test_all_points_and_temperatures_in_one_pass(text):
    it = ensemble(peaked_model(), folder=text.folder)
    settings = [
        ScorerSettings(cache=CacheSettings(window=30, theta=theta, share=share), temperature=t)
        for t in (1.0, 1.3)
        for theta, share in ((1.0, 0.1), (8.0, 0.4), (1.0, 0.0))
    ]
    together = [e.nll for e in evaluate_each(it, "test", settings, columns=2)]
    alone = [evaluate(it, "test", 2, settings=one).nll for one in settings]
    assert together == pytest.approx(alone, rel=1e-9)
    assert together[2] == pytest.approx(evaluate(it, "test", columns=2).nll, rel=1e-9)


@pytest.mark.parametrize(
    "name, value",
    [("window", 0), ("theta", -1.0), ("theta", math.nan), ("share", -0.1), ("share", 1.0)],
)
def test_settings_that_cannot_be(name, value):
    assert_refused(f"cache.{name} must be", CacheSettings, **({"window": 5} | {name: value}))
