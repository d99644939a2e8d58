"""No matrix product reaches oneDNN's reference kernel, which takes a thousand times as long.

oneDNN chooses its kernel by the operands' shapes and strides, and names it in its verbose log. (The
kernel of its LSTM, called ``ref`` too, multiplies by a fast product and is not counted.)
"""

import contextlib
import itertools
import re

import pytest
import torch

from fairseq_doc.modules import lstm
from fairseq_doc.ops import matmul

from ..conftest import random_tokens, small_model, small_translation_model
from ..models.luong import NEXT_WORDS, OPTIONS, SOURCES, TARGETS, generate, padded
from .test_matmul import STRIDES, numbers

# With oneDNN but without its operator these tests fail, and are not skipped.
pytestmark = [
    pytest.mark.cpu_only("oneDNN's products"),
    pytest.mark.skipif(
        not torch.backends.mkldnn.is_available(), reason="this torch carries no oneDNN"
    ),
]
# The log of torch 2.6's oneDNN 3.5 has no version (v1).
EXECUTED = re.compile(r"onednn_verbose,(?:v1,)?primitive,exec,cpu,(inner_product|matmul),([^,]*),")


@contextlib.contextmanager
def listed(capfd, kernels):
    """Append the names of oneDNN's kernels for the matrix products in a ``with`` block."""
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        yield
    kernels += [kernel for _, kernel in EXECUTED.findall(capfd.readouterr().out)]


def reference(kernels):
    return [name for name in kernels if "ref" in name]


def test_the_log_shows_the_reference_kernel(capfd):
    """Half of the columns of a wider matrix, as no caller may pass them on."""
    left, right, kernels = numbers(16, 48), numbers(24, 96)[:, :48], []
    with listed(capfd, kernels):
        torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
    assert reference(kernels) == kernels != [], "dense_operand is needed no more"


@pytest.fixture(params=matmul.BACKENDS)
def kernels(request, monkeypatch, capfd):
    """At the end no product has reached the reference kernel, and with oneDNN some were its.
    torch's own products are MKL's on x86-64, and may be oneDNN's elsewhere."""
    monkeypatch.setattr(matmul, "backend", lambda: request.param)
    kernels = []
    yield listed(capfd, kernels)
    assert reference(kernels) == []
    assert kernels or request.param == "torch"


@pytest.mark.parametrize("size", [(1, 7, 11), (16, 48, 24), (130, 260, 70)])
def test_products_of_any_strides(kernels, size):
    m, k, n = size
    with kernels:
        for left_form, right_form in itertools.product(STRIDES.values(), repeat=2):
            left, right = left_form(numbers(m, k)), right_form(numbers(n, k))
            matmul.matmul(left, right, numbers(n))
            matmul.add_matmul_(numbers(m, n), left, right)


def train_and_evaluate(model, target, *inputs):
    """Every product of a training step, of evaluation and of all words' probabilities."""
    model.train()
    model.token_nll(model(*inputs), target, 1).backward()
    model.eval()
    with torch.no_grad():
        output = model(*inputs)
        model.token_nll(output, target, 1)
        model.get_normalized_probs(output, log_probs=True)


LANGUAGE_MODELS = {
    "DOC": {"doc_components": "1,0,2,3"},
    "MoS": {"doc_components": "0,0,0,4"},
    "plain": {"doc_components": "0,0,0,1", "plain_output": True},
    "untied": {"untie_output": True, "component_dim": 24},
}


# With both backends products in bfloat16 are oneDNN's.
each_product = pytest.mark.parametrize(
    "kernels, precision",
    [("onednn", "float32"), ("torch", "float32"), ("onednn", "bfloat16")],
    indirect=["kernels"],
)


@each_product
@pytest.mark.parametrize("settings", LANGUAGE_MODELS.values(), ids=LANGUAGE_MODELS)
def test_language_models(monkeypatch, kernels, precision, settings):
    monkeypatch.setattr(lstm, "LEAST_WEIGHTS", 0)
    settings = {**settings, "matmul_precision": precision}
    widths = {"decoder_embed_dim": 48, "layer_dims": "64,56,48", "doc_components": "0,0,1,2"}
    model = small_model(n_words=200, **{**widths, **settings}).float()
    tokens = random_tokens(6, 13, n_words=200)
    with kernels:
        train_and_evaluate(model, tokens.roll(-1, 1), tokens)


@each_product
@pytest.mark.parametrize("option", OPTIONS)
def test_encoder_decoders(kernels, precision, option):
    widths = {"encoder_embed_dim": 32, "decoder_embed_dim": 32, "hidden_size": 32}
    settings = {**OPTIONS[option], **widths, "matmul_precision": precision}
    model = small_translation_model(scale=1.0, **settings).float()
    sources, targets = padded(SOURCES, "left"), padded(TARGETS)
    with kernels:
        train_and_evaluate(model, padded(NEXT_WORDS), sources, None, targets)
        generate([model], beam=3)
