"""What a GPU does, checked without one: nothing waits for it, no two devices are mixed, and the
branches that only a GPU takes give the same numbers.

torch's fake tensors have shapes, a device and no numbers: reading one, a boolean index, or a branch by
a value raises an error. On a GPU each of these would wait until everything before it is computed. Their
device here is ``meta``, which is not the CPU: a torch without CUDA cannot differentiate fake tensors of
the device ``cuda``.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_doc.criterions.doc_cross_entropy import DocCrossEntropyConfig, DocCrossEntropyCriterion
from fairseq_doc.models import lstm_luong_doc
from fairseq_doc.modules import bilstm, mixture
from fairseq_doc.ops import chunked_loss, matmul, mixture_log_probs, mixture_nll, reference
from fairseq_doc.ops.mixture import Mixture

from ..conftest import (
    NO_DROPOUT,
    assert_close,
    config_of,
    gradients,
    leaves,
    random_mixture,
    random_targets,
    random_tokens,
    small_dictionary,
    small_model,
    small_translation_model,
)

DROPOUTS = dict.fromkeys(NO_DROPOUT, 0.2)
LANGUAGE_MODELS = {
    "DOC": DROPOUTS,
    "one softmax": {**DROPOUTS, "doc_components": "0,0,1"},
    "bfloat16": {**DROPOUTS, "matmul_precision": "bfloat16"},
    "mogrifier": {**DROPOUTS, "mogrifier_rounds": 3, "mogrifier_rank": 2},
}
PAD = 1
FAKE = torch.device("meta")
COPIES = torch.ops.aten._to_copy, torch.ops.aten.copy_


class NoCopies(TorchDispatchMode):
    """Refuses copies between devices, which wait until they are made."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if operation._overloadpacket in COPIES:
            devices = {x.device.type for x in (*args, result) if isinstance(x, torch.Tensor)}
            if len(devices) > 1:
                raise RuntimeError(f"expected no copy between devices; got {devices}")
        return result


@pytest.fixture
def fake_gpu(monkeypatch):
    """A context in which a wait for the fake device, or a mix with another, is an error."""
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)
    # autocast, which is off, knows no such device.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **settings: contextlib.nullcontext())

    @contextlib.contextmanager
    def faked():
        with FakeTensorMode(allow_non_fake_inputs=True), NoCopies():
            yield

    return faked


def fake_tokens(time=6):
    return torch.zeros(3, time, dtype=torch.long, device=FAKE)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The branches of a GPU, on this processor."""
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)
    monkeypatch.setattr(matmul, "_ONEDNN_PACK", None)
    branching = mixture_nll, chunked_loss, mixture_log_probs
    for module in (*branching, mixture, bilstm, lstm_luong_doc):
        monkeypatch.setattr(module, "is_on_cpu", lambda tensor: False)


def check_never_waits(model, inputs, target, **penalties):
    """Training steps with every form of the loss, evaluation, and all words' probabilities."""
    model.train()
    task = SimpleNamespace(target_dictionary=small_dictionary())
    sample = {"net_input": inputs, "target": target, "ntokens": 18}
    losses = [model.token_nll(model(**inputs), target, PAD, "none").sum()]
    for smoothing in (0.0, 0.1):
        settings = {"doc_balance": "published", "doc_lambda": 0.001, "label_smoothing": smoothing}
        cfg = config_of(DocCrossEntropyConfig, **settings, **penalties)
        losses.append(DocCrossEntropyCriterion(task, cfg)(model, sample)[0])
    for loss in losses:
        torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    model.eval()
    with torch.no_grad():
        output = model(**inputs)
        model.token_nll(output, target, PAD, "none")
        assert model.get_normalized_probs(output, log_probs=True).shape == (3, 6, 20)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_never_waits(fake_gpu, name):
    model = small_model(**LANGUAGE_MODELS[name]).float().to(FAKE)
    with fake_gpu():
        tokens = fake_tokens()
        inputs = {"src_tokens": tokens, "window": 0}
        check_never_waits(model, inputs, tokens, ar_alpha=2.0, tar_beta=1.0)


ENCODER_DECODERS = {
    "input feeding": {},
    "concat attention": {"attention_score": "concat"},
    "no input feeding": {"no_input_feeding": True},
    "mixed directions": {"mix_directions": True},
    "bfloat16": {"matmul_precision": "bfloat16"},
}


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_an_encoder_decoder_never_waits(fake_gpu, name):
    model = small_translation_model(**ENCODER_DECODERS[name], dropout=0.2).float().to(FAKE)
    with fake_gpu():
        target = fake_tokens()
        inputs = {"src_tokens": fake_tokens(5), "src_lengths": None, "prev_output_tokens": target}
        check_never_waits(model, inputs, target)


@pytest.mark.parametrize(
    "does, error",
    [
        (lambda x: bool(x.any()), DataDependentOutputException),
        (lambda x: x[x > 0], DynamicOutputShapeException),
        (lambda x: torch.zeros(6, device="cpu").to(x.device), RuntimeError),
        (lambda x: x + torch.zeros(6, device="cpu"), RuntimeError),
    ],
)
def test_a_wait_and_a_mix_of_devices_are_noticed(fake_gpu, does, error):
    with fake_gpu(), pytest.raises(error):
        does(fake_tokens())


@pytest.mark.parametrize("kind", ["sum", "none", "smoothed"])
@pytest.mark.parametrize("ignored", [(), (0, 4), range(7)], ids=["none", "some", "all"])
def test_ignored_targets_that_take_part(as_on_a_gpu, kind, ignored):
    """The word 2, which they are given, has no probability in one of them."""
    mixture, target = random_mixture(7, 3, 4, 6), random_targets(7, 6, ignored=ignored)
    mixture[3][0] = -1e4
    results = []
    for form in (mixture_nll, reference):
        inputs = leaves(mixture)
        nll = None
        if kind == "smoothed":
            loss, nll = form.smoothed_mixture_nll(Mixture(*inputs), target, 0.1)
        else:
            loss = form.mixture_nll(Mixture(*inputs), target, reduction=kind)
        upstream = torch.linspace(1, 2, loss.numel(), dtype=loss.dtype).view_as(loss)
        results.append([loss, nll, *gradients((loss * upstream).sum(), inputs)])
    assert_close(*results)


@pytest.mark.parametrize("j", [1, 3])
def test_probabilities_of_all_words(as_on_a_gpu, j):
    mixture = Mixture(*random_mixture(7, j, 4, 6))
    found = mixture_log_probs.mixture_log_probs(mixture)
    assert_close(found, reference.mixture_log_probs(mixture))


@pytest.mark.parametrize("name", ENCODER_DECODERS)
@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_an_encoder_decoder_gives_the_same(request, name, side):
    model = small_translation_model(**ENCODER_DECODERS[name])
    source, target = random_tokens(3, 5), random_tokens(3, 6, seed=1)
    if side != "none":
        for tokens in (source, target):
            tokens[1] = torch.cat([tokens.new_full((2,), PAD), tokens[1, 2:]])
            if side == "right":
                tokens[1] = tokens[1].roll(-2)
    expected = outcome(model, source, target)
    request.getfixturevalue("as_on_a_gpu")
    assert_close(outcome(model, source, target), expected, rtol=1e-6, atol=1e-7)


def outcome(model, source, target):
    output = model(source, None, target)
    loss = model.token_nll(output, target, PAD)
    log_probs = model.get_normalized_probs(output, log_probs=True)
    return [loss, log_probs, *gradients(loss, list(model.parameters()))]
