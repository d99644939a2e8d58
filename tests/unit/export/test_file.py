"""Exported models, run by onnxruntime, against the models themselves."""

import numpy as np
import onnx
import pytest
import torch
from conftest import refusal
from onnx import TensorProto

from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.export.file import exported_file
from fairseq_doc.export.model import INPUTS, OUTPUTS
from fairseq_doc.export.tokens import FORMS, LOG_PROBS, SENTENCE, match_tokens, table_lines
from fairseq_doc.models.lstm_melis_lm import LSTMMelisLanguageModel, LSTMMelisLanguageModelConfig
from fairseq_doc.preparation.byte_text import make_dictionary

from ..conftest import random_tokens, small_dictionary
from ..evaluation.conftest import EOS, UNK, ensemble, index, peaked_model, with_bias

V = 20
PLAIN = {"plain_output": True, "layer_dims": "6,4", "doc_components": "0,0,1"}
MELIS = {"hidden_size": 8, "embedding_ratio": 0.5}


def melis(**settings):
    """A small model of Melis et al. whose probabilities are far from even."""
    cfg = LSTMMelisLanguageModelConfig(**{**MELIS, **settings})
    torch.manual_seed(0)
    task = type("Task", (), {"target_dictionary": small_dictionary(V)})
    model = LSTMMelisLanguageModel.build_model(cfg, task).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def biased_weights():
    model = peaked_model(doc_components="0,0,3", doc_weight_bias=True)
    torch.nn.init.normal_(model.decoder.output.mixture_weights.bias)
    return model


MODELS = {
    "DOC of the embedding and the last layer": peaked_model,
    "MoS": lambda: peaked_model(doc_components="0,0,3", doc_activation="linear"),
    "MoS with biased weights": biased_weights,
    "DOC of one component": lambda: peaked_model(doc_components="0,1,0"),
    "one softmax": lambda: peaked_model(**PLAIN),
    "untied": lambda: peaked_model(untie_output=True, component_dim=3),
    "Mogrifier": lambda: peaked_model(mogrifier_rounds=2),
    "Mogrifier of factors": lambda: peaked_model(mogrifier_rounds=5, mogrifier_rank=2),
    "Melis": melis,
    "Melis, untied gates": lambda: melis(gates="untied", layers=2),
    "Melis, tied gates": lambda: melis(gates="tied", layers=3, untie_output=True),
    "Melis, Mogrifier": lambda: melis(mogrifier_rounds=5, mogrifier_rank=2, layers=2),
    "Melis, Mogrifier, tied gates": lambda: melis(gates="tied", mogrifier_rounds=2),
    "Melis, DOC": lambda: melis(layers=2, doc_components="1,1,0,2"),
    "RHN": lambda: melis(cell="rhn", rhn_depth=3, layers=2),
    "RHN, tied": lambda: melis(cell="rhn", rhn_depth=2, gates="tied", embedding_ratio=1.0),
    "NAS": lambda: melis(cell="nas", layers=2, doc_components="0,1,0,1"),
}


def truth(model, words):
    """log P of every word, (N, L, V), from zeros, in float64."""
    with torch.no_grad():
        return model.double().get_normalized_probs(model(words), log_probs=True).numpy()


@pytest.mark.parametrize(
    "name", ["DOC of the embedding and the last layer", "Mogrifier", "Melis", "RHN", "NAS"]
)
def test_1000_words_with_the_carried_state(name):
    model = MODELS[name]()
    words = random_tokens(1, 1001, V)
    expected = truth(model, words)[0]
    run = exported_file(ensemble(model), LOG_PROBS)
    state = run.zero_state(1)
    for at, word in enumerate(words[0, :-1].numpy()):
        log_probs, *state = run(np.array([[word]]), *state)
        # A thousand steps in float32 add up their rounding, which differs from processor to processor.
        np.testing.assert_allclose(log_probs[0], expected[at], rtol=0, atol=1e-4)
    assert run.difference < 1e-5


def of_targets(log_probs, words):
    """log P of each word after the first, (N, L - 1)."""
    return np.take_along_axis(log_probs[:, :-1], words[:, 1:, None].numpy(), axis=2)[:, :, 0]


@pytest.mark.parametrize("name", MODELS)
def test_sentences_are_scored_as_the_package_scores_them(name):
    model = MODELS[name]()
    sentences = [["w3", "w0", "w15", "w3"], [], ["w7"]]
    score = score_text(ensemble(model), sentences)
    run = exported_file(ensemble(model), SENTENCE)
    x, lengths = np.zeros((3, 4), np.int64), np.array([4, 0, 1])
    for row, sentence in zip(x, sentences, strict=True):
        row[: len(sentence)] = [index(word) for word in sentence]
    (nll,) = run(x, lengths)
    expected = [sentence.log_prob for sentence in score.sentences]
    np.testing.assert_allclose(-nll, expected, rtol=0, atol=1e-5)
    (alone,) = run(x[1:2, :0], lengths[1:2])  # no words at all
    np.testing.assert_allclose(alone, nll[1:2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_file_holds_each_matrix_once_and_8_bits_are_nearly_the_same(name, int8):
    model = MODELS[name]()
    run = exported_file(ensemble(model), SENTENCE, int8=int8)
    values = onnx.load_from_string(run.data).graph.initializer
    held = [x for x in values if sorted([1, 1, *x.dims])[-2] > 1]
    parameters = [p for p in model.parameters() if p.dim() > 1]
    assert sum(np.prod(x.dims) for x in held) == sum(p.numel() for p in parameters)
    eight_bits = {TensorProto.INT8, TensorProto.UINT8}
    assert {x.data_type for x in held} <= (eight_bits if int8 else {TensorProto.FLOAT})
    if int8:
        words = random_tokens(1, 300, V)
        words[0, 0] = words[0, -1] = EOS
        expected = of_targets(truth(model, words), words).mean()
        (nll,) = run(words[:, 1:-1].numpy(), np.array([298]))
        assert -nll[0] / 299 == pytest.approx(expected, abs=0.05)
        assert run.difference > 1e-4  # 8 bits are fewer than 32


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["DOC of the embedding and the last layer", "RHN"])
def test_names_shapes_and_metadata(name, form):
    model = MODELS[name]()
    run = exported_file(ensemble(model), form)
    graph = onnx.load_from_string(run.data).graph
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert tuple(shapes) == INPUTS[form] + OUTPUTS[form]
    assert shapes["x"] == ["N", "L"]
    if form != SENTENCE:
        widest = 6 if name.startswith("DOC") else 8
        assert shapes["h0"] == shapes["c0"] == shapes["next_h0"] == [2, "N", widest]
        assert (run.metadata["num_layers"], run.metadata["hidden_size"]) == ("2", str(widest))
    expected = {"sos_id": "2", "eos_id": "2", "vocab_size": "20", "model_type": "rnnlm"}
    expected |= {"form": form, "unit": "word", "architecture": type(model).__name__}
    assert expected.items() <= run.metadata.items()


def test_a_narrow_layer_has_zeros_behind_its_numbers():
    """Nothing else is read there."""
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
    run = exported_file(ensemble(MODELS["RHN"]()), LOG_PROBS)  # it has no c, which stays as it is
    hidden, cell = run.zero_state(1)
    assert (run(np.array([[7]]), hidden, cell + 5)[2] == 5).all()


def test_a_word_that_is_nearly_impossible_has_a_finite_score():
    model = with_bias(peaked_model(), 9, -500.0)
    run = exported_file(ensemble(model), LOG_PROBS)
    log_probs = run(np.array([[7]]), *run.zero_state(1))[0]
    np.testing.assert_allclose(
        log_probs, truth(model, torch.tensor([[7]]))[0], rtol=1e-6, atol=1e-5
    )
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
    np.testing.assert_allclose(run(*inputs)[0][0], expected, rtol=0, atol=1e-5)


def test_bytes_as_tokens():
    dictionary = make_dictionary(np.ones(256))
    model = peaked_model(dictionary=dictionary)
    made = exported_file(ensemble(model, dictionary=dictionary), LOG_PROBS)
    assert made.metadata["unit"] == "byte" and made.difference < 1e-5
    lines = list(table_lines(dictionary))
    assert f"<0x61> {dictionary.index('<0x61>')}" in lines


def parts_derived_from_known_ones(model):
    for part in (model.decoder.lstm, model.decoder.output):
        part.__class__ = type(f"Own{type(part).__name__}", (type(part),), {})


def layers_that_compute_something_else(model):
    forward = model.decoder.lstm.forward
    model.decoder.lstm.forward = lambda x, state: forward(x * 1.1, state)


def diverged(model):
    with_bias(model, 9, float("nan"))


@pytest.mark.parametrize(
    "damage, problem",
    [
        (parts_derived_from_known_ones, "got OwnAWDLSTM, OwnMixtureOutput"),
        (layers_that_compute_something_else, "cannot export this model"),
        (diverged, "not finite"),
    ],
)
@pytest.mark.parametrize("int8", [False, True])
def test_a_model_that_cannot_be_exported(damage, problem, int8):
    model = peaked_model()
    damage(model)
    assert problem in refusal(exported_file, ensemble(model), int8=int8)
