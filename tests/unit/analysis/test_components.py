import numpy as np
import pytest
import torch
from conftest import assert_refused
from fairseq.data import Dictionary
from hypothesis import assume, given
from hypothesis import strategies as st

from fairseq_doc.analysis.components import (
    MixtureWeights,
    Parts,
    TextComponents,
    by_frequency,
    mixture_parts,
    mixture_weights,
    summarise,
    text_components,
)
from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.modules.mixture import MixtureOutput

from ..conftest import assert_close, naive_probs, random_mixture, random_targets
from ..evaluation.conftest import EOS, KNOWN, ensemble, peaked_model, with_bias

texts = st.lists(
    st.lists(st.sampled_from([*KNOWN, "strange"]), min_size=1, max_size=9), min_size=1, max_size=6
)
MODEL = peaked_model(doc_components="1,0,3")


def mixture_of(n, counts, d, v, seed=0):
    """An output whose component vectors and weights are given, its parameters, and the four tensors
    of :func:`random_mixture`."""
    vectors, log_weights, weight, bias = random_mixture(n, sum(counts), d, v, seed, scale=2.0)
    output = MixtureOutput([d] * len(counts), counts, torch.nn.Parameter(weight)).double()
    with torch.no_grad():
        output.bias.copy_(bias)
    params = torch.cat([vectors.flatten(1), log_weights, torch.ones(n, 1)], dim=1)
    return output, params.double(), (vectors, log_weights, weight, bias)


def by_hand(mixture, groups, target):
    """Weights, posteriors, log P_g and P_g of every word; a part is a list of components."""
    vectors, log_weights, weight, bias = mixture
    weights = torch.stack([log_weights[:, g].exp().sum(1) for g in groups], dim=1)  # (N, G)
    within = [(vectors[:, g], log_weights[:, g].log_softmax(1)) for g in groups]
    every = torch.stack([naive_probs(*part, weight, bias) for part in within], dim=1)  # (N, G, V)
    probs = every[torch.arange(len(target)), :, target]
    joint = weights * probs
    return weights, joint / joint.sum(1, keepdim=True), probs.log(), every


def both(parts, counts):
    """(the parts of the components, [[0], [1], ...]), (those of the layers, the components of each)."""
    layers = [layer for layer, count in enumerate(counts) for _ in range(count)]
    of_layers = [[j for j, of in enumerate(layers) if of == n] for n in dict.fromkeys(layers)]
    count = len(layers)
    return [(parts[:, :count], [[j] for j in range(count)]), (parts[:, count:], of_layers)]


@given(
    n=st.integers(1, 6),
    counts=st.sampled_from([[0, 2], [1, 1], [2, 0, 3], [0, 1, 4]]),
    v=st.integers(2, 9),
    n_words=st.integers(0, 10),
    tokens_a_chunk=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_parts_are_those_of_the_plain_formula(n, counts, v, n_words, tokens_a_chunk, seed):
    output, params, mixture = mixture_of(n, counts, 3, v, seed)
    target = random_targets(n, v, seed)
    chunk_bytes = 4 * sum(counts) * v * tokens_a_chunk
    found = mixture_parts(output, params, target, n_words, chunk_bytes=chunk_bytes)
    for parts, groups in both(found, counts):
        weights, posteriors, log_probs, every = by_hand(mixture, groups, target)
        assert_close(parts.tensors[:3], [weights, posteriors, log_probs])
        assert parts.words.tolist() == every.topk(min(n_words, v), 2).indices.tolist()
        assert_close(parts.log_prob.exp(), (weights * log_probs.exp()).sum(1))


def test_a_model_in_single_precision_has_shares_that_sum_to_one():
    output, params, _ = mixture_of(50, [3, 5], 4, 30)
    target = random_targets(50, 30)
    exact = mixture_parts(output, params, target)
    single = mixture_parts(output.float(), params.float(), target)
    assert_close(single.posteriors, exact.posteriors, rtol=1e-4, atol=1e-5)
    for parts, _ in both(single, [3, 5]):
        assert_close(parts.weights.sum(1), torch.ones(50), rtol=0, atol=1e-12)
        assert_close(parts.posteriors.sum(1), torch.ones(50), rtol=0, atol=1e-12)


@given(texts, st.sampled_from(["fresh", "carried"]), st.integers(1, 30))
def test_the_words_and_their_log_probs_are_those_of_score(tokenized, state, max_tokens):
    assume(state == "fresh" or sum(map(len, tokenized)) > 0)
    it = ensemble(MODEL)
    scored = score_text(it, tokenized, state)
    found = text_components(it, tokenized, state, 2, max_tokens)
    for sentence, expected in zip(found.sentences, scored, strict=True):
        unscored = len(expected.words) - expected.tokens
        assert (sentence.words, sentence.first) == (expected.words[unscored:], unscored + 1)
        log_probs = expected.word_log_probs[unscored:]
        for parts, _ in both(sentence.parts, [1, 0, 3]):
            assert parts.log_prob.tolist() == pytest.approx(log_probs, rel=0, abs=1e-9)
    total = sum(sentence.log_prob for sentence in scored)
    assert found.log_prob == pytest.approx(total, rel=0, abs=1e-9)
    words = [word for sentence in found.sentences for word in sentence.words]
    known = [word if word in KNOWN else "<unk>" for word in words]
    assert [found.dictionary[index] for index in found.tokens.tolist()] == known
    posteriors = torch.cat([sentence.parts.posteriors for sentence in found.sentences])
    assert_close(found.parts.posteriors, posteriors)
    assert found.component_layers == [0, 2, 2, 2] and found.layer_numbers == [0, 2]


@pytest.mark.parametrize(
    "model, message",
    [
        (peaked_model(doc_components="0,0,1"), "expected a model with several components"),
        (with_bias(peaked_model(), EOS, torch.nan), "a score is not finite"),
    ],
)
def test_what_cannot_be_shown_is_refused(model, message):
    assert_refused(message, text_components, ensemble(model), [["w1"]])


def text_of(words, weights, posteriors, counts=None):
    """A text of given tokens and one component a layer: with given shares of the first, ``log_probs`` of
    -1 and -3."""
    dictionary = Dictionary()
    for word in counts or sorted(set(words) - {"</s>", "<unk>"}):
        dictionary.add_symbol(word, (counts or {}).get(word, 1))
    tokens = torch.tensor([dictionary.index(word) for word in words])
    shares = [
        torch.tensor([[x, 1 - x] * 2 for x in of], dtype=torch.float64)
        for of in (weights, posteriors)
    ]
    log_probs = torch.tensor([[-1.0, -3.0] * 2] * len(words), dtype=torch.float64)
    parts = Parts(*shares, log_probs, torch.zeros(len(words), 4, 0))
    return TextComponents([1, 2], [], tokens, parts, dictionary)


def test_a_part_is_summarised_by_its_means_and_by_the_words_that_are_due_to_it():
    words = ["a", "b", "a", "c", "b", "d"]
    weights = [0.5, 0.4, 0.3, 0.4, 0.6, 0.2]
    posteriors = [0.9, 0.5, 0.7, 0.99, 0.1, 0.0]
    text = text_of(words, weights, posteriors)
    first, second, *layers = summarise(text, min_count=1, n_words=9)
    assert layers == [first, second]
    assert (first["weight"], first["posterior"]) == pytest.approx((0.4, 3.19 / 6))
    assert (second["weight"], second["posterior"]) == pytest.approx((0.6, 1 - 3.19 / 6))
    assert (first["log_prob"], second["log_prob"]) == (-1, -3)
    # a .8, b .3, c .99 and d 0 against a mean weight of .4; of the second part 1 minus these, .6
    assert first["words"] == [
        {"word": "c", "count": 1, "weight": pytest.approx(0.4), "posterior": pytest.approx(0.99)},
        {"word": "a", "count": 2, "weight": pytest.approx(0.4), "posterior": pytest.approx(0.8)},
    ]
    assert [share["word"] for share in second["words"]] == ["d", "b"]
    frequent = summarise(text, min_count=2, n_words=9)
    assert [[share["word"] for share in part["words"]] for part in frequent] == [["a"], ["b"]] * 2
    assert [len(part["words"]) for part in summarise(text, 1, n_words=1)] == [1] * 4
    assert [part["words"] for part in summarise(text, 3, 9)] == [[]] * 4


def test_kinds_of_words_follow_the_counts_of_the_training_text():
    counts = {f"x{i}": i for i in range(1, 121)}  # x120 is the most frequent
    words = ["</s>", "x120", "x111", "x110", "x21", "x20", "<unk>", "x1"]
    text = text_of(words, [0.1 * i for i in range(8)], [0.5] * 8, counts)
    found = [
        (kind["kind"], kind["tokens"], kind["layers"][0]["weight"]) for kind in by_frequency(text)
    ]
    assert found == [
        ("end mark </s>", 1, 0),
        ("unknown <unk>", 1, pytest.approx(0.6)),
        ("words 1 to 10", 2, pytest.approx(0.15)),
        ("words 11 to 100", 2, pytest.approx(0.35)),
        ("words 101 to 1,000", 2, pytest.approx(0.6)),
    ]
    assert all(layer["posterior"] == 0.5 for kind in by_frequency(text) for layer in kind["layers"])
    text = text_of(words, [0.1 * i for i in range(8)], [0.5] * 8, dict.fromkeys(counts, 1))
    assert [kind["kind"] for kind in by_frequency(text)][2:] == ["other words"]  # as imported


@pytest.mark.parametrize(
    "counts, layers", [("1,0,2", [0, 2, 2]), ("1,2,2", [0, 1, 1, 2, 2]), ("0,0,1", [2])]
)
@pytest.mark.parametrize("window", [1, 10, 1000])
@torch.no_grad()
def test_mean_weights_are_of_the_whole_text_read_as_one(text, counts, layers, window):
    model = peaked_model(doc_components=counts)
    log_weights = model(torch.tensor([text.tokens[:-1]]))[1]["log_weights"][0]
    it = ensemble(model, folder=text.folder, eval_window=window)
    found = mixture_weights(it, "test")
    assert found.weights == pytest.approx(log_weights.exp().mean(0).tolist(), rel=1e-9)
    assert (found.layers, found.tokens) == (layers, len(text.tokens) - 1)
    single = mixture_weights(it.to(torch.float32), "test")
    assert single.weights == pytest.approx(found.weights, rel=1e-5)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.01, 1)), min_size=1, max_size=20))
def test_the_spread_is_numpys_and_layers_hold_the_sum_of_their_components(pairs):
    layers, weights = zip(*sorted(pairs), strict=True)
    found = MixtureWeights(list(layers), list(weights), 1)
    spread = np.std(weights) / np.mean(weights)
    assert found.coefficient_of_variation == pytest.approx(spread, rel=1e-9, abs=1e-9)
    expected = {n: sum(w for m, w in pairs if m == n) for n in layers}
    assert found.by_layer == pytest.approx(expected, rel=1e-12)
    assert list(found.by_layer) == sorted(expected)
