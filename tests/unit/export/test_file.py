"""Exported models, run by onnxruntime, against the models themselves."""

import numpy as np
import onnx
import pytest
import torch
from conftest import refusal
from onnx import TensorProto

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.export.file import exported_file
from fairseq_doc.export.tokens import FORMS, LOG_PROBS, SENTENCE, match_tokens
from fairseq_doc.preparation.byte_text import make_dictionary

from ..conftest import build, random_tokens, small_dictionary
from ..evaluation.conftest import EOS, UNK, encoded, ensemble, index, peaked_model, with_bias

V = 20


def melis(**settings):
    """A small model of Melis et al. whose probabilities are far from even."""
    settings = {"hidden_size": 8, "embedding_ratio": 0.5, **settings}
    model = build("lstm_melis_lm", V, **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def mixture_of_softmaxes():
    components = {"doc_components": "0,0,3", "doc_activation": "linear", "doc_weight_bias": True}
    model = peaked_model(**components)
    torch.nn.init.normal_(model.decoder.output.mixture_weights.bias)
    return model


MODELS = {
    "DOC": peaked_model,  # of the embedding and the last layer
    "MoS": mixture_of_softmaxes,
    "DOC of one component": lambda: peaked_model(doc_components="0,1,0"),
    "one softmax": lambda: peaked_model(
        plain_output=True, layer_dims="6,4", doc_components="0,0,1"
    ),
    "untied": lambda: peaked_model(untie_output=True, component_dim=3),
    "Mogrifier": lambda: peaked_model(mogrifier_rounds=2),
    "Mogrifier of factors": lambda: peaked_model(mogrifier_rounds=5, mogrifier_rank=2),
    "Melis": melis,
    "Melis, untied gates": lambda: melis(gates="untied", layers=2),
    "Melis, tied gates": lambda: melis(gates="tied", layers=3, untie_output=True),
    "Melis, Mogrifier": lambda: melis(mogrifier_rounds=5, mogrifier_rank=2, layers=2),
    "Melis, DOC": lambda: melis(layers=2, doc_components="1,1,0,2"),
    "RHN": lambda: melis(cell="rhn", rhn_depth=3, layers=2),
    "RHN, tied": lambda: melis(cell="rhn", rhn_depth=2, gates="tied", embedding_ratio=1.0),
    "NAS": lambda: melis(cell="nas", layers=2, doc_components="0,1,0,1"),
}


def truth(model, words):
    """log P of every word, (N, L, V), from zeros, in float64."""
    with torch.no_grad():
        return model.double().get_normalized_probs(model(words), log_probs=True).numpy()


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["DOC", "Mogrifier", "Melis", "RHN", "NAS"])
def test_1000_words_with_the_carried_state(name):
    model = MODELS[name]()
    words = random_tokens(1, 1001, V)
    expected = truth(model, words)[0]
    run = exported_file(ensemble(model), LOG_PROBS)
    state = run.zero_state(1)
    for at, word in enumerate(words[0, :-1].numpy()):
        log_probs, *state = run(np.array([[word]]), *state)
        # A thousand steps in float32 add up their rounding, which differs between processors.
        assert_close(log_probs[0], expected[at], 1e-4)
    assert run.difference < 1e-5


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_sentences_have_the_models_scores_and_each_matrix_is_stored_once(name, int8):
    model = MODELS[name]()
    sentences = [["w3", "w0", "w15", "w3"], [], ["w7"]]
    expected = np.array([sentence.log_prob for sentence in score_text(ensemble(model), sentences)])
    run = exported_file(ensemble(model), SENTENCE, int8=int8)
    x, lengths = np.zeros((3, 4), np.int64), np.array([4, 0, 1])
    for row, sentence in zip(x, sentences, strict=True):
        row[: len(sentence)] = encoded(sentence)[:-1]
    nll = np.concatenate([*run(x, lengths), *run(x[1:2, :0], lengths[1:2])])
    tokens = np.array([5, 1, 2, 1])
    assert_close(-nll / tokens, expected[[0, 1, 2, 1]] / tokens, 0.15 if int8 else 1e-5)
    assert (run.difference > 1e-4) == int8

    values = onnx.load_from_string(run.data).graph.initializer
    matrices = [x for x in values if sorted([1, 1, *x.dims])[-2] > 1]
    parameters = [p for p in model.parameters() if p.dim() > 1]
    assert sum(np.prod(x.dims) for x in matrices) == sum(p.numel() for p in parameters)
    types = {TensorProto.INT8, TensorProto.UINT8} if int8 else {TensorProto.FLOAT}
    assert {x.data_type for x in matrices} <= types


STATE = [2, "N", 6]
SHAPES = {
    LOG_PROBS: [("x", ["N", "L"]), ("h0", STATE), ("c0", STATE)]
    + [("log_softmax", ["N", V]), ("next_h0", STATE), ("next_c0", STATE)],
    SENTENCE: [("x", ["N", "L"]), ("x_lens", ["N"]), ("nll", ["N"])],
}


@pytest.mark.parametrize("form", FORMS)
def test_names_shapes_and_metadata(form):
    run = exported_file(ensemble(peaked_model()), form)
    graph = onnx.load_from_string(run.data).graph
    shapes = [
        (one.name, [x.dim_param or x.dim_value for x in one.type.tensor_type.shape.dim])
        for one in (*graph.input, *graph.output)
    ]
    assert shapes == SHAPES[form]
    expected = {"num_layers": "2", "hidden_size": "6", "vocab_size": "20", "embedding_dim": "4"}
    expected |= {"model_type": "rnnlm", "version": "1", "sos_id": "2", "eos_id": "2"}
    expected |= {"form": form, "unit": "word", "architecture": "LSTMDocLanguageModel"}
    assert expected.items() <= run.metadata.items()


def test_a_narrow_layer_is_padded_with_zeros_that_are_not_read():
    run = exported_file(ensemble(peaked_model()), LOG_PROBS)  # widths 6 and 5
    x = np.array([[7], [9]])
    _, *state = run(x, *run.zero_state(2))
    for part in state:
        assert (part[1, :, 5] == 0).all() and (part[0] != 0).all() and (part[1, :, :5] != 0).all()
    expected = run(x, *state)
    for part in state:
        part[1, :, 5] = 3
    for found, other in zip(run(x, *state), expected, strict=True):
        np.testing.assert_array_equal(found, other)


def test_an_rhn_returns_c_unchanged():
    run = exported_file(ensemble(MODELS["RHN"]()), LOG_PROBS)
    hidden, cell = run.zero_state(1)
    assert (run(np.array([[7]]), hidden, cell + 5)[2] == 5).all()


def test_words_that_are_nearly_impossible_for_some_components_have_finite_scores():
    model = with_bias(peaked_model(), 9, -500.0)
    with torch.no_grad():
        model.decoder.output.weight.mul_(40)
    run = exported_file(ensemble(model), LOG_PROBS)
    log_probs = run(np.array([[7]]), *run.zero_state(1))[0]
    assert_close(log_probs, truth(model, torch.tensor([[7]]))[0], 1e-3)
    assert log_probs[0, 9] < -400


@pytest.mark.parametrize("form", FORMS)
def test_the_tokens_of_a_recogniser(form):
    model, dictionary = peaked_model(), small_dictionary(V)
    tokens = ["<blk>", "<sos/eos>", "<unk>", "w9", "w4", "w0", "no word"]
    table = match_tokens(tokens, dictionary, "tokens.txt")
    run = exported_file(ensemble(model), form, table=table)
    assert (run.metadata["sos_id"], run.metadata["vocab_size"]) == ("1", "7")
    words = [EOS, index("w4"), UNK, index("w0")]  # tokens 1, 4, 6 and 5; </s> is last and first
    rows = truth(model, torch.tensor([words]))[0]
    total = sum(rows[at, word] for at, word in enumerate([*words[1:], EOS]))
    x, state = np.array([[1, 4, 6, 5]]), run.zero_state(1)
    inputs, expected = {
        SENTENCE: ((x[:, 1:], np.array([3])), -total),
        LOG_PROBS: ((x, *state), rows[3, table.words]),
    }[form]
    assert_close(run(*inputs)[0][0], expected)


def test_bytes_as_tokens():
    dictionary = make_dictionary(np.ones(256))
    model = peaked_model(dictionary=dictionary)
    made = exported_file(ensemble(model, dictionary=dictionary), LOG_PROBS)
    assert made.metadata["unit"] == "byte" and made.difference < 1e-5


def computes_something_else(model):
    forward = model.decoder.lstm.forward
    model.decoder.lstm.forward = lambda x, state: forward(x * 1.1, state)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "damage", [computes_something_else, lambda model: with_bias(model, 9, float("nan"))]
)
def test_a_file_that_differs_from_the_model_is_refused(damage, form):
    model = peaked_model()
    damage(model)
    assert "cannot be exported" in refusal(exported_file, ensemble(model), form, int8=True)
