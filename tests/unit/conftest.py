"""Shared by unit tests: random mixtures and their truth, small models, a binarised text."""

import logging
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from hypothesis import settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fairseq_doc.models import lstm_melis_lm  # noqa: F401  # which registers
from fairseq_doc.models.lstm_doc_lm import (
    LSTMDocDecoder,
    LSTMDocLanguageModel,
    LSTMDocLanguageModelConfig,
)
from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc, LSTMLuongDocConfig
from fairseq_doc.modules import lstm
from fairseq_doc.ops import matmul

from .device import DEVICE, FOLDERS, ON_CPU, OnDevice, of_rounding, on_device

settings.register_profile("unit", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("unit")

NO_DROPOUT = {
    f"{place}_dropout": 0.0
    for place in ("embed", "input", "hidden", "output", "component", "weight")
}


def config_of(kind, **changes):
    """A config of a registered class, with fairseq's defaults for the values of other groups."""
    settings = kind(**changes)
    for name, value in vars(settings).items():
        if str(value).startswith("${"):
            group, option = value[2:-1].split(".")
            setattr(settings, name, getattr(FairseqConfig.__annotations__[group](), option))
    return settings


def random_mixture(n, j, d, v, seed=0, dtype=torch.float64, scale=1.0):
    """[components (N, J, d), log weights (N, J), output matrix (V, d), bias (V,)]."""
    rng = torch.Generator().manual_seed(seed)
    components, scores, weight, bias = (
        scale * torch.randn(*shape, generator=rng, dtype=torch.float64)
        for shape in ((n, j, d), (n, j), (v, d), (v,))
    )
    return [x.to(dtype) for x in (components, scores.log_softmax(-1), weight, bias)]


def random_targets(n, v, seed=0, ignored=()):
    """(N,) words, -100 where ``ignored``."""
    target = torch.randint(v, (n,), generator=torch.Generator().manual_seed(seed))
    target[list(ignored)] = -100
    return target


@st.composite
def mixtures_with_targets(draw):
    """(mixture, targets, ignored index, bytes of a chunk)."""
    n, j = draw(st.integers(0, 7)), draw(st.integers(1, 4))
    d, v = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 99))
    mixture = random_mixture(n, j, d, v, seed=seed)
    if draw(st.booleans()):
        mixture[3] = None
    if draw(st.booleans()):  # weights of exactly zero, except the first component's
        mixture[1][:, 1:] = torch.where(mixture[1][:, 1:] < -1.5, -torch.inf, mixture[1][:, 1:])
    target = random_targets(n, v, seed)
    ignore_index = draw(st.sampled_from([-100, 0, v - 1]))
    ignored = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    target[torch.tensor(ignored, dtype=bool)] = ignore_index
    return mixture, target, ignore_index, 4 * j * v * draw(st.integers(1, 8))


def naive_probs(components, log_weights, weight, bias):
    """P of every word, (N, V), token by token and component by component, never in log space."""
    rows = [weight.new_zeros(0, len(weight))]
    for vectors, pi in zip(components, log_weights.exp(), strict=True):
        probs = torch.zeros(())
        for vector, share in zip(vectors, pi, strict=True):
            powers = (weight @ vector + (0 if bias is None else bias)).exp()
            probs = probs + share * powers / powers.sum()
        rows.append(probs.unsqueeze(0))
    return torch.cat(rows)


def naive_nll(components, log_weights, weight, bias, target, ignore_index=-100, smoothing=0.0):
    """The cross entropy of every token, zero where it is ignored, as a list of scalars: the label
    is 1 - smoothing for the target, the rest in equal parts for the other words."""
    losses = []
    probs = naive_probs(components, log_weights, weight, bias)
    for row, y in zip(probs, target.tolist(), strict=True):
        loss = weight.new_zeros(())
        if y != ignore_index:
            loss = loss - (1 - smoothing) * row[y].log()
            for word in range(len(row)) if smoothing else ():
                if word != y:
                    loss = loss - smoothing / (len(row) - 1) * row[word].log()
        losses.append(loss)
    return losses


def relative_errors(found, truth):
    """The error of each tensor against the truth in float64, in the Euclidean norm."""
    errors = ((x.double() - y).norm() / y.norm() for x, y in zip(found, truth, strict=True))
    return torch.stack(list(errors))


def leaves(tensors):
    """Copies that ask for gradients."""
    return [None if x is None else x.detach().clone().requires_grad_() for x in tensors]


def gradients(loss, inputs):
    """d loss / d input for each input but None, zeros where the loss does not depend on it."""
    inputs = [x for x in inputs if x is not None]
    return torch.autograd.grad(loss, inputs, materialize_grads=True)


def assert_close(actual, expected, rtol=1e-9, atol=1e-9):
    """As torch's, at float64's accuracy, also over lists and between numbers and tensors."""
    least = of_rounding(actual, expected)
    rtol, atol = max(rtol, least), max(atol, least)
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, check_dtype=False)


def drop_factors(dropped, whole, p):
    """By what dropout multiplied each entry of ``whole``: 0 or 1 / (1 - p), and both occur."""
    factors = (dropped / whole).round(decimals=9)
    assert set(factors.unique().tolist()) == {0.0, round(1 / (1 - p), 9)}
    return factors


def small_dictionary(n_words=20, prefix="w"):
    """``n_words`` words in all, fairseq's four symbols among them."""
    dictionary = Dictionary()
    for i in range(n_words - len(dictionary)):
        dictionary.add_symbol(f"{prefix}{i}")
    return dictionary


def small_model(n_words=20, seed=0, dictionary=None, **settings):
    """A model of two narrow layers without dropout, in training mode, in float64."""
    cfg = {"decoder_embed_dim": 4, "layer_dims": "6,5", "doc_components": "1,0,2", **NO_DROPOUT}
    torch.manual_seed(seed)
    decoder = LSTMDocDecoder(
        LSTMDocLanguageModelConfig(**{**cfg, **settings}), dictionary or small_dictionary(n_words)
    )
    return on_device(LSTMDocLanguageModel(decoder).double())


def small_translation_model(n_words=20, seed=0, scale=16.0, dictionaries=None, **settings):
    """An encoder-decoder of two narrow layers a side without dropout, in training mode, in float64;
    its parameters ``scale`` times as large as they start, so that probabilities are far from even."""
    cfg = {
        "encoder_embed_dim": 3,
        "decoder_embed_dim": 4,
        "hidden_size": 5,
        "doc_components": "1,0,1,2",
        "dropout": 0.0,
    }
    source, target = dictionaries or (small_dictionary(n_words, "s"), small_dictionary(n_words))
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    torch.manual_seed(seed)
    model = LSTMLuongDoc.build_model(LSTMLuongDocConfig(**{**cfg, **settings}), task).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return on_device(model)


def build(preset, n_words=20, seed=0, **settings):
    """A model with a preset's settings, as fairseq builds it; one dictionary for both sides."""
    dictionary = small_dictionary(n_words)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    cfg = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[preset]())
    torch.manual_seed(seed)
    return MODEL_REGISTRY[preset].build_model(OmegaConf.merge(cfg, settings), task)


def log_probs(model, *arguments, **named):
    """log P of every word, (B, T, V)."""
    return model.get_normalized_probs(model(*arguments, **named), log_probs=True)


def random_tokens(batch, time, n_words=20, seed=0):
    """(B, T) words without fairseq's four symbols."""
    return torch.randint(4, n_words, (batch, time), generator=torch.Generator().manual_seed(seed))


def write_split(folder, split, lines, n_words=20, impl="mmap"):
    """Binarise ``lines``, lists of word indices, as fairseq-preprocess does."""
    path = f"{folder}/{split}"
    builder = indexed_dataset.make_builder(f"{path}.bin", impl=impl, vocab_size=n_words)
    for line in lines:
        builder.add_item(torch.tensor(line, dtype=torch.int32))
    builder.finalize(f"{path}.idx")
    return path


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """``folder`` with a split ``test`` of 121 tokens in lines of ragged lengths; its ``tokens``."""
    folder = tmp_path_factory.mktemp("text")
    stream = random_tokens(1, 121)[0]
    write_split(folder, "test", [x.tolist() for x in stream.tensor_split([1, 17, 18, 60, 100])])
    return SimpleNamespace(folder=folder, tokens=stream.tolist())


def pytest_collection_modifyitems(items):
    """Skip the tests marked ``cpu_only(reason)`` on another device."""
    for item in items:
        marker = item.get_closest_marker("cpu_only")
        if marker is not None and not ON_CPU:
            item.add_marker(pytest.mark.skip(reason=f"only on a CPU: {marker.args[0]}"))


@pytest.fixture(autouse=True)
def device(request):
    """The device of the test; see ``device.py``."""
    if ON_CPU or request.path.parent.name not in FOLDERS:
        yield torch.device("cpu")
        return
    # TF32, cuDNN's default for an LSTM, has ten bits of a float32's 23.
    with OnDevice(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield DEVICE


@pytest.fixture
def bfloat16_layers(monkeypatch):
    """LSTM layers of any size may have bfloat16 products, and the processor is fast at them."""
    monkeypatch.setattr(lstm, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)


@pytest.fixture
def logging_of_its_own(monkeypatch):
    """``main`` configures the logging of the process; this confines it to the test."""
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    yield
    root.setLevel(level)
