"""Exported models, run by onnxruntime, against the models themselves."""

import numpy as np
import onnx
import pytest
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.export import file as file_module
from fairseq_doc.export.contract import FORMS, INPUTS, LOG_PROBS, NLL, OUTPUTS, SENTENCE
from fairseq_doc.export.file import exported_file
from fairseq_doc.export.running import ExportedModel
from fairseq_doc.export.tokens import match_tokens
from fairseq_doc.models.lstm_melis_lm import LSTMMelisLanguageModel, LSTMMelisLanguageModelConfig

from ..conftest import random_tokens, small_dictionary, small_model
from ..evaluation.conftest import ensemble, peaked_model

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


MODELS = {
    "DOC of the embedding and the last layer": lambda: peaked_model(),
    "MoS": lambda: peaked_model(doc_components="0,0,3", doc_activation="linear"),
    "DOC of one component": lambda: peaked_model(doc_components="0,1,0"),
    "one softmax": lambda: peaked_model(**PLAIN),
    "untied": lambda: peaked_model(untie_output=True, component_dim=3),
    "Melis": lambda: melis(),
    "Melis, untied gates": lambda: melis(gates="untied", layers=2),
    "Melis, tied gates": lambda: melis(gates="tied", layers=3, untie_output=True),
    "Melis, DOC": lambda: melis(layers=2, doc_components="1,1,0,2"),
    "RHN": lambda: melis(cell="rhn", rhn_depth=3, layers=2),
    "RHN, tied": lambda: melis(cell="rhn", rhn_depth=2, gates="tied", embedding_ratio=1.0),
    "NAS": lambda: melis(cell="nas", layers=2, doc_components="0,1,0,1"),
}


def exported(model, form, **options):
    """The runnable model, and its parts."""
    made = exported_file(ensemble(model), form, **options)
    return ExportedModel(made.data), onnx.load_from_string(made.data), made


def truth(model, words):
    """log P of every word, (N, L, V), from zeros, in float64."""
    with torch.no_grad():
        return model.double().get_normalized_probs(model(words), log_probs=True).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_1000_words_with_the_carried_state(name):
    model = MODELS[name]()
    words = random_tokens(1, 1001, V)
    expected = truth(model, words)[0]
    run, _, made = exported(model, LOG_PROBS)
    state = run.zero_state(1)
    for at, word in enumerate(words[0, :-1].numpy()):
        log_probs, *state = run(np.array([[word]]), *state)
        np.testing.assert_allclose(log_probs[0], expected[at], rtol=0, atol=1e-5)
    assert made.difference < 1e-5
