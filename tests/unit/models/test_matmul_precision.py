"""``--matmul-precision`` of both models: where it arrives, what it changes."""

import pytest
import torch

from ..conftest import random_tokens, small_model, small_translation_model
from .test_lstm_melis_lm import small

pytestmark = pytest.mark.usefixtures("bfloat16_layers")


def language_model(make=small_model, **settings):
    model = make(**settings).float()
    tokens = random_tokens(3, 6)
    return model, tokens, lambda: model(tokens, window=0)


def translation_model(**settings):
    model = small_translation_model(**settings, scale=4.0).float()
    source, target = random_tokens(3, 5), random_tokens(3, 6, seed=1)
    source[1, :2] = 1  # padding
    return model, target, lambda: model(source, None, target)


MODELS = {
    "language model": (language_model, {}),
    "one softmax": (language_model, {"doc_components": "0,0,1"}),
    "mogrifier": (language_model, {"mogrifier_rounds": 3, "mogrifier_rank": 2}),
    "melis": (language_model, {"make": small}),
    "encoder-decoder": (translation_model, {}),
    "concat attention": (translation_model, {"attention_score": "concat"}),
    "no input feeding": (translation_model, {"no_input_feeding": True}),
}


def loss_and_gradients(model, target, forward):
    loss = model.token_nll(forward(), target, -100)
    return loss, torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_is_float32_up_to_rounding(name):
    make, settings = MODELS[name]
    loss, grads = loss_and_gradients(*make(**settings))
    found, found_grads = loss_and_gradients(*make(**settings, matmul_precision="bfloat16"))
    assert not torch.equal(found, loss)
    assert abs(found - loss) < 0.01 * loss
    for ours, exact in zip(found_grads, grads, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - exact).norm() <= 0.05 * exact.norm() + 1e-5


@pytest.mark.parametrize("name", ["language model", "mogrifier", "melis"])
def test_the_layers_below_the_mixture_have_it_too(name):
    make, settings = MODELS[name]
    (*_, exact), (*_, forward) = make(**settings), make(**settings, matmul_precision="bfloat16")
    assert not torch.equal(exact()[1]["undropped"], forward()[1]["undropped"])
