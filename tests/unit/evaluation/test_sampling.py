import itertools
import math

import pytest
import torch
from conftest import assert_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.evaluation.sampling import draw, sample_text

from ..conftest import assert_close
from .conftest import EOS, UNK, ensemble, index, peaked_model, probs_by_hand, with_bias

BOS, PAD = 0, 1
NEVER = [BOS, PAD, UNK]
MODELS = [peaked_model(seed=0), peaked_model(seed=1)]


def sampled(prompt=(), length=6, models=MODELS, **settings):
    return sample_text(ensemble(*models), list(prompt), length, **settings)


def next_probs(context, models=MODELS, temperature=1.0):
    """(V,), the whole context read anew; without <s>, <pad> and <unk>."""
    probs = probs_by_hand(models, torch.tensor([context]), temperature)[0, -1]
    probs[NEVER] = 0
    return probs / probs.sum()


distributions = st.lists(st.integers(0, 8), min_size=2, max_size=9).filter(any)


@given(
    distributions,
    st.none() | st.integers(1, 12),
    st.none() | st.sampled_from([0.001, 0.23, 0.51, 0.77, 1.0]),
)
def test_frequencies_over_a_grid_are_the_probabilities(counts, top_k, top_p):
    """Over u = (i + 1/2) / n a word with probability p is drawn n p times up to rounding. With
    top_k these are the k most probable words with p / their sum; of equal ones the first. With
    top_p it is the fewest of them whose sum reaches it."""
    n = 2000
    grid = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    weights = torch.tensor(counts, dtype=torch.float64)
    log_probs = (weights / weights.sum()).log().repeat(n, 1)
    words = draw(log_probs + 3.0, grid, top_k, top_p)  # a constant changes nothing
    kept = sorted(range(len(counts)), key=lambda i: (-counts[i], i))[:top_k]
    if top_p is not None:
        whole = sum(counts[i] for i in kept)
        sums = itertools.accumulate(counts[i] for i in kept)
        kept = kept[: 1 + sum(s < top_p * whole for s in sums)]
    total = sum(counts[i] for i in kept)
    for word, count in enumerate(counts):
        expected = n * count / total if word in kept else 0
        assert abs((words == word).sum().item() - expected) <= (1 if expected else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_a_word_without_probability_is_never_drawn(u, dtype):
    n = 10_000
    log_probs = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=dtype)
    log_probs[::3] = -math.inf
    for top_k in (None, 5, n):
        word = draw(log_probs[None], torch.tensor([u], dtype=torch.float64), top_k).item()
        assert word % 3 != 0


@settings(max_examples=8)
@given(st.integers(0, 50), st.sampled_from([(), ("w1",), ("w2", "w3", "w2")]))
def test_a_sample_depends_on_its_seed_and_not_on_how_many_or_how_long_they_are(seed, prompt):
    many = sampled(prompt, length=12, samples=5, seed=seed)
    assert [len(text) for text in many] == [12] * 5 and len(set(map(tuple, many))) == 5
    for samples, length in ((1, 12), (3, 7)):
        texts = sampled(prompt, length, samples=samples, seed=seed)
        assert texts == [text[:length] for text in many[:samples]]
    assert sampled(prompt, length=12, samples=5, seed=seed + 1) != many


@pytest.mark.parametrize("seeds", [[0], [4, 5]])
@pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-6}, {"temperature": 1e-300}])
def test_top_1_and_a_very_small_temperature_are_greedy(seeds, settings):
    """At a temperature each model puts everything on its own best word, so either's may come."""
    models = [peaked_model(seed=seed) for seed in seeds]
    context = [EOS, EOS, UNK, index("w3")]
    text = sampled(("</s>", "strange", "w3"), 15, models, **settings)[0]
    for word in text:
        rivals = [models] if "top_k" in settings else [[model] for model in models]
        assert index(word) in {int(next_probs(context, own).argmax()) for own in rivals}
        context.append(index(word))
    assert len(set(text)) > 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_words_after_a_prompt_have_their_probabilities(temperature):
    """Counts of n draws with a fixed seed, each within five of its standard deviations."""
    n, prompt = 4000, ("w1", "w7")
    words = [text[0] for text in sampled(prompt, 1, samples=n, temperature=temperature)]
    for word, p in enumerate(next_probs([EOS, 5, 11], temperature=temperature).tolist()):
        count = sum(index(w) == word for w in words)
        assert abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("settings", [{}, {"top_k": 500}, {"temperature": 0.1}, {"top_p": 1e-9}])
def test_beginning_padding_and_unknown_are_never_drawn(settings):
    model = with_bias(peaked_model(seed=2), NEVER, 30.0)
    probs = probs_by_hand([model], torch.tensor([[EOS]]))[0, -1]
    assert_close(probs[NEVER].sum(), torch.tensor(1.0), atol=1e-6)
    words = {word for text in sampled((), 20, [model], samples=20, **settings) for word in text}
    assert words and not words & {"<s>", "<pad>", "<unk>"}
    texts = sampled((), 20, [model], samples=20, allow_unknown=True, **settings)
    assert {word for text in texts for word in text} == {"<unk>"}


@pytest.mark.parametrize(
    "name, value",
    [
        ("temperature", 0.0),
        ("temperature", math.nan),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.1),
    ],
)
def test_settings_out_of_their_range(name, value):
    assert_refused(f"^{name} must be .*; got {value}", sampled, **{name: value})


def test_a_model_that_has_diverged_is_refused():
    assert_refused("not finite", sampled, models=[with_bias(peaked_model(), 7, math.nan)])
