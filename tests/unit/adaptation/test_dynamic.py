import math
from dataclasses import replace

import pytest
import torch
from conftest import assert_refused

from fairseq_doc.adaptation.cache import CacheSettings
from fairseq_doc.adaptation.dynamic import ADAPTED, DynamicSettings, adapted_names, grid
from fairseq_doc.adaptation.gradient_statistics import trained_parameters
from fairseq_doc.evaluation.perplexity import evaluate, evaluate_each
from fairseq_doc.evaluation.scorer import ScorerSettings, scorer

from ..conftest import assert_close, small_model
from ..evaluation.conftest import ensemble, nlls_by_hand, peaked_model


def statistics(model, seed=0):
    """Positive numbers for every parameter, of different sizes."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: (0.05 + 0.1 * torch.rand(p.shape, generator=rng)).to(p)
        for name, p in trained_parameters(model).items()
    }


def copies(model):
    return {name: p.detach().clone() for name, p in trained_parameters(model).items()}


def dynamic(*models, **settings):
    settings = {"segment": 4, "rate": 0.01, "decay": 0.02, **settings}
    of_models = [statistics(m) for m in models]
    return ScorerSettings(dynamic=DynamicSettings(**settings), statistics=of_models)


def by_hand(model, tokens, rate, decay, bound=1.5, epsilon=2e-5, segment=4, names=None):
    """The NLL of each target, and how many updates were shortened; the model's weights change as
    the equations say."""
    stats, trained = statistics(model), copies(model)
    names = list(stats) if names is None else names
    mean = sum(stats[name].sum() for name in names) / sum(stats[name].numel() for name in names)
    parameters, found, shortened = trained_parameters(model), [], 0
    flat_m = torch.cat([stats[name].flatten() for name in names])
    longest = bound * math.sqrt(100) * (flat_m / (flat_m + epsilon)).norm()
    for nll in nlls_by_hand(model, torch.tensor([tokens]), segment):
        found += nll[0].tolist()
        gradients = torch.autograd.grad(nll.mean(), [parameters[name] for name in names])
        length = (torch.cat([g.flatten() for g in gradients]) / (flat_m + epsilon)).norm()
        shortened += bool(length > longest)
        with torch.no_grad():
            for name, g in zip(names, gradients, strict=True):
                m, p = stats[name], parameters[name]
                d = torch.minimum(m / mean, torch.full_like(m, 1 / decay if decay else math.inf))
                p += -min(1, longest / length) * rate * g / (m + epsilon) + decay * d * (
                    trained[name] - p
                )
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(trained[name])
    return found, shortened


@pytest.mark.parametrize("decay", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("components", ["0,0,3", "1,1,2"])
def test_updates_are_those_of_the_equations(text, decay, components):
    model = peaked_model(doc_components=components)
    before = copies(model)
    it = ensemble(model, folder=text.folder)
    found = evaluate(it, "test", settings=dynamic(model, decay=decay))
    expected, _ = by_hand(model, text.tokens, 0.01, decay)
    assert found.nll == pytest.approx(sum(expected), rel=1e-4)
    assert found.tokens == 120 and found.left_out == 0
    assert found.nll != pytest.approx(evaluate(it, "test").nll, rel=1e-3)
    (part,) = evaluate_each(it, "test", [dynamic(model, decay=decay)], tokens=30)
    assert part.tokens == 32  # whole segments
    assert part.nll == pytest.approx(sum(expected[:32]), rel=1e-4)
    assert all(torch.equal(p, before[name]) for name, p in trained_parameters(model).items())
    assert all(p.requires_grad for p in model.parameters())
    assert not any(part.training for part in model.modules())


@pytest.mark.parametrize("adapt", ADAPTED)
def test_longer_updates_are_shortened(text, adapt):
    model = peaked_model()
    names = adapted_names(model, adapt)
    it, found = ensemble(model, folder=text.folder), {}
    for bound in (0.01, 0.02, math.inf):
        settings = dynamic(model, rate=0.1, adapt=adapt, bound=bound)
        found[bound] = evaluate(it, "test", settings=settings).nll
        expected, shortened = by_hand(model, text.tokens, 0.1, 0.02, bound, names=names)
        assert found[bound] == pytest.approx(sum(expected), rel=1e-4)
        assert (shortened > 0) == (bound < 1)
    assert len(set(found.values())) == 3
    assert all(p.requires_grad for p in model.parameters())


def in_segments(settings, models, tokens, segments, name="log_probs"):
    """log P of each token of a text after its first, in segments of four."""
    with scorer(ensemble(*models), settings) as one:
        parts = [
            getattr(one, name)(tokens[:, t : t + 4], tokens[:, t + 1 : t + 5], t // 4)[0].view(-1)
            for t in range(0, 4 * segments, 4)
        ]
    return torch.cat(parts)


def test_the_trained_weights_score_the_first_segment_and_come_back(text):
    model = peaked_model()
    tokens = torch.tensor(text.tokens)[None]
    learned = in_segments(dynamic(model, rate=1.0), [model], tokens, 2)
    static = in_segments(ScorerSettings(), [model], tokens, 2)
    assert_close(learned[:4], static[:4])
    assert (learned[4:] - static[4:]).abs().min() > 0.01
    before = copies(model)
    with pytest.raises(KeyboardInterrupt), scorer(ensemble(model), dynamic(model)) as one:
        one.log_probs(tokens[:, :4], tokens[:, 1:5], 0)
        assert not all(torch.equal(p, before[n]) for n, p in trained_parameters(model).items())
        raise KeyboardInterrupt
    assert all(torch.equal(p, before[n]) for n, p in trained_parameters(model).items())


def test_output_weights_alone():
    """Their updates are tested above."""
    model, one_softmax = peaked_model(), small_model(doc_components="0,0,1")
    output, parameters = model.decoder.output, trained_parameters(model)
    adapted = {id(parameters[name]) for name in adapted_names(model, "output-weights")}
    assert adapted == {id(output.bias), id(output.mixture_weights.weight)}
    (name,) = adapted_names(one_softmax, "output-weights")
    assert trained_parameters(one_softmax)[name] is one_softmax.decoder.output.bias


def test_each_member_follows_its_own_nll(text):
    """As it does alone; the average comes after. It learns with entropies too."""
    models = [peaked_model(seed) for seed in (0, 1)]
    tokens = torch.tensor(text.tokens)[None]
    one, other, together = (
        in_segments(dynamic(*some), some, tokens, 10) for some in (models[:1], models[1:], models)
    )
    assert_close(together.exp(), (one.exp() + other.exp()) / 2)
    again = in_segments(dynamic(*models), models, tokens, 10, "with_entropies")
    assert_close(again, together)


def test_with_a_cache_and_a_temperature(text):
    """They read what the model computes, and change nothing of what it learns."""
    model = peaked_model()
    it, usual = ensemble(model, folder=text.folder), dynamic(model)
    plain = evaluate(it, "test", settings=usual)
    caches = [CacheSettings(window=20, theta=2.0, share=share) for share in (0.0, 0.2)]
    for settings in (
        [replace(usual, cache=cache) for cache in caches],
        [replace(usual, temperature=temperature) for temperature in (1.0, 1.4)],
    ):
        same, other = evaluate_each(it, "test", settings)
        assert same.nll == pytest.approx(plain.nll, rel=1e-6)
        assert other.nll != pytest.approx(plain.nll, rel=1e-3)


def test_several_columns_are_refused(text):
    model = small_model().eval()
    it, problem = ensemble(model, folder=text.folder), "columns must be 1 .*; got 2"
    assert_refused(problem, evaluate, it, "test", 2, settings=dynamic(model))


@pytest.mark.parametrize(
    "name, value",
    [
        ("rate", 0.0),
        ("segment", 0),
        ("epsilon", 0.0),
        ("bound", math.nan),
        ("decay", 1.1),
        ("adapt", "some"),
    ],
)
def test_settings_that_cannot_be(name, value):
    assert_refused(f"dynamic.{name} must be .*; got {value}", DynamicSettings, **{name: value})


@pytest.mark.parametrize(
    "statistics, checkpoints, expected",
    [
        (None, "a.pt:b/c.pt", ["a.pt.100x5.npz", "b/c.pt.100x5.npz"]),
        ("x.npz:y.npz", "a.pt:b.pt", ["x.npz", "y.npz"]),
    ],
)
def test_each_model_has_a_file_of_statistics(statistics, checkpoints, expected):
    assert DynamicSettings(statistics=statistics).statistics_paths(checkpoints) == expected
    one = DynamicSettings(statistics="x.npz")
    assert_refused("dynamic.statistics", one.statistics_paths, checkpoints)


def test_the_grid_grows_with_the_segment():
    five, twenty = grid(5), grid(20)
    assert len(set(five)) == len(five) == len(twenty)
    assert twenty[0] == pytest.approx((4 * five[0][0], 4 * five[0][1]))
    assert all(decay <= 1 for _, decay in grid(1000))
    assert five[0] == (DynamicSettings().rate, DynamicSettings().decay)
