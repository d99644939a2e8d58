import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.evaluation.weights import MixtureWeights, mixture_weights

from .conftest import ensemble, peaked_model

N = 120


def weights_of(text, model, **settings):
    return mixture_weights(ensemble(model, folder=text.folder, **settings), "test")


def clock(keep, seed=0):
    """A model whose last layer reads nothing: with the gates' biases alone,
    c_t = keep c_(t-1) + 1/2 tanh(b) and h_t = tanh(c_t) / 2, for keep = sigmoid of f's bias."""
    model = peaked_model(seed, doc_components="1,0,2")
    layer = model.decoder.lstm.layers[-1]
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        of_gates = layer.bias_ih_l0.view(4, -1)  # i, f, g, o
        of_gates[1] = torch.logit(torch.tensor(keep, dtype=torch.float64))
        of_gates[2] = torch.randn(of_gates.size(1), generator=rng, dtype=torch.float64)
    return model, np.tanh(layer.bias_ih_l0.detach().view(4, -1)[2].numpy())


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.97])
@pytest.mark.parametrize("window", [1, 10, 1000])
def test_weights_are_the_mean_of_known_ones_over_the_whole_text(text, keep, window):
    """c_t is a geometric series, so the weights change from token to token across the windows."""
    model, candidate = clock(keep)
    matrix = model.decoder.output.mixture_weights.weight.detach().numpy()
    total = np.zeros(3)
    for t in range(1, N + 1):
        c = candidate / 2 * sum(keep**i for i in range(t))
        powers = np.exp(matrix @ (np.tanh(c) / 2))
        total += powers / powers.sum()
    found = weights_of(text, model, eval_window=window)
    assert found.weights == pytest.approx((total / N).tolist(), rel=1e-9)
    assert found.layers == [0, 2, 2]
    assert found.tokens == N
    assert found.coefficient_of_variation > 1e-3


def test_even_weights_a_single_one_and_single_precision(text):
    model = peaked_model(doc_components="1,2,5")
    with torch.no_grad():
        model.decoder.output.mixture_weights.weight.zero_()
    found = weights_of(text, model)
    assert found.weights == pytest.approx([1 / 8] * 8, rel=1e-12)
    assert found.layers == [0, 1, 1, 2, 2, 2, 2, 2]
    assert found.coefficient_of_variation == pytest.approx(0, abs=1e-12)
    found = weights_of(text, peaked_model(doc_components="0,0,1"))
    assert (found.layers, found.weights, found.coefficient_of_variation) == ([2], [1.0], 0.0)
    double = weights_of(text, peaked_model())
    single = weights_of(text, peaked_model().to(torch.float32))
    assert single.weights == pytest.approx(double.weights, rel=1e-5)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.01, 1)), min_size=1, max_size=20))
def test_the_spread_is_numpys_and_layers_hold_the_sum_of_their_components(pairs):
    pairs.sort(key=lambda pair: pair[0])
    layers, weights = (list(x) for x in zip(*pairs, strict=True))
    weights = (np.array(weights) / sum(weights)).tolist()
    found = MixtureWeights(layers, weights, 1)
    assert found.coefficient_of_variation == pytest.approx(
        np.std(weights) / np.mean(weights), rel=1e-9, abs=1e-9
    )
    expected = {n: sum(w for m, w in zip(layers, weights, strict=True) if m == n) for n in layers}
    assert found.by_layer == pytest.approx(expected, rel=1e-12)
    assert list(found.by_layer) == sorted(expected)
