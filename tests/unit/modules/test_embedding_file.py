"""Embeddings as text and back; tests of the encoder-decoder's building have the damaged files."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.utils import parse_embedding
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.models import lstm_doc_lm, lstm_melis_lm  # noqa: F401  # which register
from fairseq_doc.modules.embedding_file import embedding_lines, load_embedding_file

from ..conftest import small_dictionary

LANGUAGE_MODELS = {
    "lstm_doc_lm": {"decoder_embed_dim": 3, "layer_dims": "4", "doc_components": "1,2"},
    "lstm_melis_lm": {"hidden_size": 3, "embedding_ratio": 1.0},
}


def build(arch, n_words=9, **settings):
    torch.manual_seed(0)
    cfg = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
    cfg = OmegaConf.merge(cfg, LANGUAGE_MODELS[arch], settings)
    task = SimpleNamespace(target_dictionary=small_dictionary(n_words))
    return MODEL_REGISTRY[arch].build_model(cfg, task)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=8, max_size=8))
def test_round_trip_to_the_bit(tmp_path_factory, numbers):
    """By this package's reader and by fairseq's."""
    dictionary, path = small_dictionary(4), tmp_path_factory.mktemp("round") / "v"
    matrix, read = torch.tensor(numbers).view(4, 2), torch.zeros(4, 2)
    write_lines(path, embedding_lines(matrix, dictionary))
    load_embedding_file(read, str(path), dictionary)
    assert torch.equal(read, matrix)
    by_fairseq = parse_embedding(str(path))
    assert torch.equal(torch.stack([by_fairseq[word] for word in dictionary.symbols]), matrix)


@pytest.mark.parametrize("arch", LANGUAGE_MODELS)
@pytest.mark.parametrize("untied", [False, True])
def test_a_language_model_begins_with_the_rows_of_a_file(arch, untied, tmp_path):
    """Other rows, other parameters and the random numbers drawn are as without it."""
    path = tmp_path / "v"
    path.write_text("2 3\nw1 1 2 3\nstranger 9 9 9\n")
    model = build(arch, untie_output=untied, decoder_embed_path=str(path))
    expected = build(arch, untie_output=untied).state_dict()
    row = small_dictionary(9).index("w1")
    for name in ["embedding"] if untied else ["embedding", "output.weight"]:
        expected[f"decoder.{name}"][row] = torch.tensor([1.0, 2.0, 3.0])
    found = model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert model.decoder.embedding.requires_grad


@pytest.mark.parametrize("arch", LANGUAGE_MODELS)
@pytest.mark.parametrize(
    "text, problem",
    [("1 4\nw1 1 2 3 4\n", "expected 3 numbers a word"), ("w1 1 2 3\n", "got no header")],
)
def test_files_that_do_not_fit_a_language_model(arch, text, problem, tmp_path):
    (tmp_path / "v").write_text(text)
    with pytest.raises(FairseqDocError, match=problem):
        build(arch, decoder_embed_path=str(tmp_path / "v"))
