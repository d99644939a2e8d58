"""Embeddings as text and back; models that begin with them."""

import pytest
import torch
from conftest import assert_refused
from fairseq.utils import parse_embedding
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.files import write_lines
from fairseq_doc.modules.embedding_file import embedding_lines, load_embedding_file

from ..conftest import assert_close, build, small_dictionary

pytestmark = pytest.mark.cpu_only("files, read before a model is moved")


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


@pytest.mark.parametrize(
    "text, problem",
    [
        ("w1 1 2 3\nw2 1 2 3\n", "got no header"),
        ("1 4\nw1 1 2 3 4\n", "expected 3 numbers per word.*; got 4"),
        ("1 3\nw1 1 2\n", "line 2: expected 3 numbers; got 2 for 'w1'"),
        ("2 3\nw1 1 2 3\n", "expected 2 words .*; got 1"),
        ("2 3\nw1 1 2 3\nw2 1 2 x\n", "line 3: expected finite numbers; got '1 2 x'"),
        ("1 3\nw1 1 1e39 3\n", "line 2: expected finite numbers"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, text, problem):
    (tmp_path / "v").write_text(text)
    embedding, dictionary = torch.zeros(9, 3), small_dictionary(9)
    assert_refused(problem, load_embedding_file, embedding, str(tmp_path / "v"), dictionary)


def test_a_word_may_have_blanks(tmp_path):
    """As in GloVe's largest file."""
    (tmp_path / "v").write_text("2 3\n. . . 1 2 3\nw1 4 5 6\n")
    embedding, dictionary = torch.zeros(9, 3), small_dictionary(9)
    load_embedding_file(embedding, str(tmp_path / "v"), dictionary)
    assert embedding[dictionary.index("w1")].tolist() == [4, 5, 6] and embedding.sum() == 15


NARROW = {
    "lstm_doc_lm": {"decoder_embed_dim": 3, "layer_dims": "4", "doc_components": "1,2"},
    "lstm_melis_lm": {"hidden_size": 3, "embedding_ratio": 1.0},
    "lstm_luong_doc": {"encoder_embed_dim": 3, "decoder_embed_dim": 3, "hidden_size": 5},
}
TIED = ["decoder.embedding", "decoder.output.weight"]


@pytest.mark.parametrize(
    "arch, side, settings, names",
    [
        *((arch, "decoder", {}, TIED) for arch in ("lstm_doc_lm", "lstm_melis_lm")),
        ("lstm_doc_lm", "decoder", {"untie_output": True}, TIED[:1]),
        ("lstm_melis_lm", "decoder", {"untie_output": True}, TIED[:1]),
        ("lstm_luong_doc", "decoder", {}, TIED[:1]),
        ("lstm_luong_doc", "encoder", {}, ["encoder.embedding"]),
        ("lstm_luong_doc", "encoder", {"share_all_embeddings": True}, ["encoder.embedding", *TIED]),
    ],
)
def test_a_model_begins_with_the_rows_of_a_file(tmp_path, arch, side, settings, names):
    """Other rows, other parameters and the random numbers drawn are as without it."""
    (tmp_path / "v").write_text("2 3\nw1 1 2 3\nstranger 9 9 9\n")
    settings = {**NARROW[arch], **settings}
    model = build(arch, 9, **settings, **{f"{side}_embed_path": str(tmp_path / "v")})
    expected = build(arch, 9, **settings).state_dict()
    for name in names:
        expected[name][small_dictionary(9).index("w1")] = torch.tensor([1.0, 2.0, 3.0])
    assert_close(model.state_dict(), expected, rtol=0, atol=0)
    assert model.get_parameter(names[0]).requires_grad
