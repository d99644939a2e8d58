"""Models that start as a trained one with a single component."""

import math

import pytest
import torch
from conftest import refusal

from .. import conftest
from ..conftest import build, random_tokens

V = 20
LM = {"decoder_embed_dim": 6, "layer_dims": "5,7,6"}
MELIS = {"hidden_size": 6, "embedding_ratio": 1.0, "layers": 2}
LUONG = {"encoder_embed_dim": 6, "decoder_embed_dim": 6, "hidden_size": 6}
PLAIN = {"doc_components": "0,0,0,1", "plain_output": True}
LINEAR = {"doc_activation": "linear"}
LOWER = {"doc_components": "1,0,2,3", "doc_weight_bias": True}


def log_probs(model):
    words = random_tokens(3, 5, V)
    more = (None, words) if hasattr(model, "encoder") else ()
    return conftest.log_probs(model.eval(), words, *more)


def saved(model, preset, settings, folder):
    """A checkpoint with what a training saves."""
    cfg = {"_name": preset, "doc_activation": "tanh", **settings}
    state = {
        "model": model.state_dict(),
        "cfg": {"model": cfg, "task": {"_name": "any"}},
        "args": None,
        "extra_state": {"train_iterator": {"epoch": 1}},
        "optimizer_history": [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
    }
    torch.save(state, folder / "trained.pt")
    return str(folder / "trained.pt")


def trained_and_grown(folder, preset, shape, single, grown, noise=0.0, **settings):
    trained = build(preset, V, seed=1, **shape, **single)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.normal_()
    path = saved(trained, preset, {**shape, **single}, folder)
    grown = {**shape, "grow_from": path, "grow_noise": noise, **grown, **settings}
    return trained, build(preset, V, seed=2, **grown)


PAIRS = [
    ("lstm_doc_lm", LM, PLAIN, {**LINEAR, "doc_components": "0,0,0,4"}),
    ("lstm_doc_lm", LM, {"doc_components": "0,0,0,1"}, {"doc_components": "0,0,0,4"}),
    ("lstm_melis_lm", MELIS, {"doc_components": "0,0,0,1"}, {"doc_components": "0,0,0,2"}),
    ("lstm_melis_lm", MELIS, {}, {**LINEAR, "doc_components": "0,0,0,2"}),
    ("lstm_luong_doc", LUONG, PLAIN, {**LINEAR, "doc_components": "0,0,0,2"}),
    ("lstm_luong_doc", LUONG, PLAIN, {**LINEAR, "doc_components": "0,0,0,1"}),
]


@pytest.mark.parametrize("preset, shape, single, grown", PAIRS)
def test_a_grown_mixture_starts_as_the_trained_model(preset, shape, single, grown, tmp_path):
    trained, model = trained_and_grown(tmp_path, preset, shape, single, grown)
    torch.testing.assert_close(log_probs(model), log_probs(trained), rtol=1e-4, atol=1e-4)
    _, noisy = trained_and_grown(tmp_path, preset, shape, single, grown, noise=0.1)
    change = (log_probs(noisy) - log_probs(trained)).abs().max()
    assert 1e-3 < change < 20


@pytest.mark.parametrize("preset, shape", [("lstm_doc_lm", LM), ("lstm_luong_doc", LUONG)])
def test_components_of_lower_layers_start_with_a_small_weight(preset, shape, tmp_path):
    """P >= (1 - w) P of the trained model, which is close where all components agree."""
    grown = {**LINEAR, **LOWER, "grow_lower_weight": 0.02}
    trained, model = trained_and_grown(tmp_path, preset, shape, PLAIN, grown)
    before, after = log_probs(trained), log_probs(model)
    assert (after - before).min() > math.log(0.98) - 1e-4
    weights = model.decoder.output.mixture_weights.bias.exp()
    torch.testing.assert_close(weights[:3].sum().item(), 0.02)
    torch.testing.assert_close(weights[3:], torch.full((3,), 0.98 / 3))
    assert not model.decoder.output.mixture_weights.weight.any()


def test_a_bias_does_not_favour_a_component(tmp_path):
    grown = {**LINEAR, "doc_components": "0,0,0,3", "doc_weight_bias": True}
    _, model = trained_and_grown(tmp_path, "lstm_luong_doc", LUONG, PLAIN, grown)
    assert not any(p.any() for p in model.decoder.output.mixture_weights.parameters())


@pytest.mark.parametrize(
    "single, changes, problem",
    [
        (PLAIN, {}, "give --doc-activation linear"),
        ({"doc_components": "0,0,0,1"}, LINEAR, "give --doc-activation tanh"),
        ({"doc_components": "0,0,0,2"}, LINEAR, "a single component, of its last layer"),
        ({"doc_components": "0,1,0,0"}, LINEAR, "a single component, of its last layer"),
        (PLAIN, {**LINEAR, "doc_components": "0,0,2,1"}, "set weight_bias"),
        (PLAIN, {**LINEAR, "doc_components": "0,0,2,0"}, "at least one of that layer"),
        (PLAIN, {**LINEAR, "layer_dims": "8,7,6"}, "a different size"),
        (PLAIN, {**LINEAR, "grow_from": "nowhere.pt"}, "nowhere.pt"),
        (PLAIN, {"grow_from": None, "grow_noise": 0.1}, "--grow-noise needs --grow-from"),
        (PLAIN, {**LINEAR, "grow_lower_weight": 0.1}, "--grow-lower-weight needs components of"),
        (PLAIN, {**LINEAR, "decoder_embed_path": "x"}, "combined with --decoder-embed-path"),
        (PLAIN, {**LINEAR, "grow_noise": -1.0}, "grow_noise must be at least 0; got -1"),
    ],
)
def test_models_that_cannot_grow(single, changes, problem, tmp_path):
    trained = build("lstm_doc_lm", V, **LM, **single)
    path = saved(trained, "lstm_doc_lm", {**LM, **single}, tmp_path)
    grown = {**LM, "grow_from": path, "doc_components": "0,0,0,4", **changes}
    assert problem in refusal(build, "lstm_doc_lm", V, **grown)
