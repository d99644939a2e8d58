import copy
import math
import pickle

import pytest
import torch
from conftest import assert_refused
from torch import nn

from fairseq_doc.modules.mixture import MixtureOutput, at_temperature, parse_components

from ..conftest import assert_close, drop_factors
from ..device import ON_CPU, on_device

B, T, V, D = 3, 4, 11, 6
WIDTHS = [D, 7, 5]
LAST_D_WIDE = [3, 7, D]


def output_layer(components, seed=0, widths=WIDTHS, **settings):
    """With random biases too, in evaluation mode."""
    torch.manual_seed(seed)
    layer = MixtureOutput(widths, components, nn.Parameter(torch.randn(V, D)), **settings)
    for parameter in (layer.bias, *(p.bias for p in layer.projections.values())):
        nn.init.normal_(parameter)
    return on_device(layer.double().eval())


def layer_outputs(widths=WIDTHS, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(B, T, w, generator=rng, dtype=torch.float64) for w in widths]


def probabilities(layer, outputs):
    return layer.log_probs(layer(outputs)[0]).exp()


def test_parse_components():
    assert parse_components("0,0,5,15", 3) == [0, 0, 5, 15]
    assert parse_components(" 2, 0", 1) == [2, 0]


@pytest.mark.parametrize(
    "text",
    ["0,0,5,x", "0,0,5,1.5", "", "0,0,5,", None, "0,0,15", "0,0,0,5,15", "0,0,-5,15", "0,0,0,0"],
)
def test_component_lists_that_cannot_be(text):
    assert_refused(f"components {text}: expected 4 numbers", parse_components, text, 3)


def test_no_tokens_and_no_such_activation():
    layer, h = output_layer([1, 0, 2], dropout=0.5), [x[:, :0] for x in layer_outputs()]
    assert layer.log_probs(layer(h)[0]).shape == (len(h[0]), 0, len(layer.weight))
    assert_refused("activation must be .*; got relu", output_layer, [0, 0, 1], activation="relu")


@pytest.mark.parametrize("activation", ["tanh", "linear"])
@pytest.mark.parametrize(
    "components", [[1, 3, 2], [0, 0, 4], [1, 0, 0], [0, 1, 0], [0, 0, 1]], ids=str
)
def test_doc_is_its_equations(components, activation):
    """P = sum_j pi_j softmax(W k_j + b), k_j = tanh(W_j h^n + b_j), pi = softmax(W_pi h^N), the
    components in the layers' order; [0, 0, J] is a mixture of softmaxes (Yang et al., 2018)."""
    layer, h = output_layer(components, activation=activation), layer_outputs()
    function = torch.tanh if activation == "tanh" else nn.Identity()
    pi = torch.ones(B, T, 1)
    if sum(components) > 1:
        pi = (h[2] @ layer.mixture_weights.weight.t()).softmax(-1)
    expected, j = 0, 0
    for n, projection in layer.projections.items():
        parts = zip(projection.weight.split(D), projection.bias.split(D), strict=True)
        for weight, bias in parts:
            k = function(h[int(n)] @ weight.t() + bias)
            softmax = (k @ layer.weight.t() + layer.bias).softmax(-1)
            expected = expected + pi[..., j : j + 1] * softmax
            j += 1
    assert_close(probabilities(layer, h), expected)
    assert j == sum(components)
    assert list(layer.projections) == [str(n) for n, count in enumerate(components) if count]
    assert (layer.mixture_weights is None) == (j == 1)


def test_plain_output_is_a_softmax_of_the_last_layer():
    widths = [D, 7, D]
    layer = output_layer([0, 0, 1], widths=widths, project=False)
    h = layer_outputs(widths)
    assert_close(probabilities(layer, h), torch.softmax(h[2] @ layer.weight.t() + layer.bias, -1))
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}


def test_mixture_params_are_the_vectors_the_log_weights_and_a_one():
    layer = output_layer([1, 0, 2])
    params, log_weights = layer(layer_outputs())
    assert params.shape == (B, T, 3 * D + 4)
    assert_close(params[..., 3 * D : -1], log_weights)
    assert (params[..., -1] == 1).all()
    assert_close(log_weights.exp().sum(-1), torch.ones(B, T))
    expected = [params[..., : 3 * D].reshape(B * T, 3, D), log_weights.view(B * T, 3)]
    assert_close(list(layer.unpack(params)), [*expected, layer.weight, layer.bias])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_is_the_targets_log_probability(reduction):
    layer = output_layer([1, 0, 2])
    params, _ = layer(layer_outputs())
    target = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))
    target[1, 2] = 7
    losses = -layer.log_probs(params).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    losses[target == 7] = 0
    counted = (target != 7).sum()
    expected = {"none": losses.flatten(), "sum": losses.sum(), "mean": losses.sum() / counted}
    assert_close(layer.nll(params, target, 7, reduction), expected[reduction])


@pytest.mark.parametrize("locked", [True, False])
def test_component_dropout(locked):
    """One mask a stream for all times and components, or one an entry; not of the weights."""
    layer = output_layer([1, 2, 1], dropout=0.5, locked=locked)
    h = [x.repeat(40, 1, 1) for x in layer_outputs()]
    kept, expected = layer(h)
    params, log_weights = layer.train()(h)
    factors = drop_factors(params[..., : 4 * D], kept[..., : 4 * D], 0.5).view(-1, T, 4, D)
    assert abs((factors == 0).double().mean() - 0.5) < 0.06
    assert not torch.equal(factors[0], factors[1])
    for axis in (1, 2):
        assert torch.equal(factors, factors.narrow(axis, 0, 1).expand_as(factors)) == locked
    assert_close(log_weights, expected)


def test_too_few_layer_outputs():
    layer, h = output_layer([1, 0, 2]), layer_outputs()
    assert_refused("3 layers", layer, h[1:])
    layer([h[0], None, h[2]])  # layer 1 gives no component


def test_an_output_can_be_pickled_and_copied():
    for activation in ("tanh", "linear"):
        layer = output_layer([1, 0, 2], activation=activation)
        expected = probabilities(layer, layer_outputs())
        for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            assert_close(probabilities(other, layer_outputs()), expected)


# A mixture that replaces a trained softmax


def replacement(components=(0, 0, 4), noise=0.01, with_bias=True, seed=0):
    """W, b (or None) and the mixture that replaces them, in float64."""
    torch.manual_seed(seed)
    weight = nn.Parameter(torch.randn(V, D, dtype=torch.float64))
    bias = torch.randn(V, dtype=torch.float64) if with_bias else None
    layer = MixtureOutput.replacing(weight, bias, LAST_D_WIDE, components, noise)
    return weight, bias, on_device(layer)


def log_softmax(weight, bias, h):
    return nn.functional.linear(h, weight, bias).log_softmax(-1)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("components", [[0, 0, 4], [0, 0, 1]])
def test_without_noise_a_mixture_is_the_softmax_it_replaces(components, with_bias):
    weight, bias, layer = replacement(components, noise=0.0, with_bias=with_bias)
    params, log_weights = layer(layer_outputs(LAST_D_WIDE))
    assert_close(layer.log_probs(params), log_softmax(weight, bias, layer_outputs(LAST_D_WIDE)[-1]))
    assert_close(log_weights, torch.full_like(log_weights, -math.log(sum(components))))
    assert layer.weight is weight and layer.bias is not bias
    assert {p.dtype for p in layer.parameters()} == {weight.dtype}


def test_with_noise_the_components_differ_by_its_size():
    """|k_j - h| is about noise |h|, so log P changes by about the noise."""
    weight, bias, layer = replacement(noise=0.01)
    h = layer_outputs(LAST_D_WIDE)
    vectors = layer.unpack(layer(h)[0]).components
    last = h[-1].reshape(-1, 1, D)
    sizes = (vectors - last).norm(dim=-1) / last.norm(dim=-1)  # (B T, J)
    assert 0.005 < sizes.mean() < 0.02
    change = (layer.log_probs(layer(h)[0]) - log_softmax(weight, bias, h[-1])).abs().max()
    assert 0 < change < 0.2


def test_components_grow_from_a_projection_with_a_small_weight_of_lower_layers():
    layer = output_layer([1, 0, 3], seed=1, weight_bias=True)
    single = output_layer([0, 0, 1], seed=1)
    layer.bias.data.copy_(single.bias)
    trained = single.projections["2"]
    layer.grow_from(trained.weight, trained.bias, noise=0.0, lower_weight=0.1)
    h = layer_outputs()
    lower = MixtureOutput(WIDTHS, [1, 0, 0], layer.weight)
    lower.bias, lower.projections["0"] = layer.bias, layer.projections["0"]
    expected = 0.9 * probabilities(single, h) + 0.1 * probabilities(lower, h)
    assert_close(probabilities(layer, h), expected)


PLAIN_OUTPUT = "components 0,0,1 and a last layer of width 6"


@pytest.mark.parametrize(
    "widths, components, settings, problem",
    [
        *((WIDTHS, c, {}, "as many numbers") for c in ([1, 2], [0] * 3)),
        (WIDTHS, [1, -1, 2], {}, "none negative"),
        (WIDTHS, [0, 0, 1], {"project": False}, PLAIN_OUTPUT),
        (LAST_D_WIDE, [0, 0, 2], {"project": False}, PLAIN_OUTPUT),
        (LAST_D_WIDE, [1, 0, 1], {"project": False}, PLAIN_OUTPUT),
        (LAST_D_WIDE, [0, 1, 2], {"noise": 0.01}, "components of the last layer only"),
        (WIDTHS, [0, 0, 2], {"noise": 0.01}, "and a width of 5"),
        (LAST_D_WIDE, [0, 0, 2], {"noise": -0.01}, "at least 0 and finite; got -0.01"),
    ],
)
def test_outputs_that_cannot_be(widths, components, settings, problem):
    weight = nn.Parameter(torch.randn(V, D))
    settings = {"widths": widths, "components": components, "weight": weight, **settings}
    make = MixtureOutput
    if "noise" in settings:
        make, settings = MixtureOutput.replacing, {"bias": None, **settings}
    assert_refused(problem, make, **settings)


# Temperature


def powers(probs, temperature):
    """P^(1/T), renormalised."""
    powers = probs ** (1 / temperature)
    return powers / powers.sum(-1, keepdim=True)


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 10.0])
def test_at_temperature_of_words_without_probability(temperature):
    log_probs = torch.tensor([[0.2, 0.0, 0.8], [0.0, 0.0, 1.0]], dtype=torch.float64).log()
    found = at_temperature(log_probs, 1 / temperature)
    assert_close(found.exp(), powers(log_probs.exp(), temperature))
    assert (found[log_probs == -torch.inf] == -torch.inf).all()


def test_at_temperature_of_extremes():
    """So cold that only the top is left, shared alike; so hot that all are alike. Differences are
    taken before they are multiplied: float32 at T = 1e-30 too."""
    log_probs = torch.tensor([-700.0, -700.0, -701.0, -9e4])
    found = at_temperature(log_probs, 1e30)
    assert found.dtype == (torch.float64 if ON_CPU else torch.float32)
    assert_close(found.exp().tolist(), [0.5, 0.5, 0.0, 0.0])
    assert_close(at_temperature(log_probs, 1e-30).exp().tolist(), [0.25] * 4)


@pytest.mark.parametrize("temperature", [[0.01] * B, [10.0] * B, [0.5, 1.0, 2.0]])
def test_mixture_params_divided_by_a_temperature(temperature):
    """As fairseq's generator does it, to the last step; of each row its own."""
    layer, temperature = output_layer([1, 0, 2]), torch.tensor(temperature)[:, None, None].double()
    params, _ = layer(layer_outputs())
    probs = layer.log_probs(params).exp()
    found = layer.log_probs(params[:, -1:] / temperature)
    assert_close(found.exp(), powers(probs, temperature)[:, -1:])
