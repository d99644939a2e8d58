import gzip
import io
import sys
from types import SimpleNamespace

import pytest
from conftest import refusal
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches.text_files import read_in_buffers

FORMAT = "expected '<token> <cnt> [flags]'"
GOOD = "the 12\nof 7\nmadeupword0000 0\n"


@pytest.fixture
def load(tmp_path):
    """Loads a dictionary of these bytes or of this text."""

    def load(contents):
        path = tmp_path / "dict.txt"
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return Dictionary.load(str(path))

    return load


def entries(dictionary):
    return list(zip(dictionary.symbols, dictionary.count, strict=True))[dictionary.nspecial :]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "with blank 3\n",
        "▁a -0\n▁b -1\n",  # of sentencepiece's vocabulary
        "a 1\nb 2\na 3 #fairseq:overwrite\n",
        "a 1  \nb 2\r\n",
        "\u00a0 4\n\u2028 5\n",
        "last 1",
    ],
)
def test_a_dictionary_means_what_it_means_to_fairseq(load, tmp_path, text):
    loaded, theirs = load(text), Dictionary()
    with open(tmp_path / "dict.txt", encoding="utf-8") as file:
        Dictionary.add_from_file.__wrapped__(theirs, file)
    assert entries(loaded) == entries(theirs) and loaded.indices == theirs.indices


def test_other_forms_of_a_dictionary(load, tmp_path):
    expected = load(GOOD)
    assert expected.index("madeupword0000") == 6
    with open(tmp_path / "dict.txt") as file:
        assert Dictionary.load(file).indices == expected.indices
    overwritten = load("the 12\n<unk> 3 #fairseq:overwrite\n")
    assert overwritten.index("<unk>") == overwritten.unk() == overwritten.index("nowhere")
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).indices == expected.indices
    assert load(gzip.compress(GOOD.encode())).indices == expected.indices


@pytest.mark.parametrize(
    "contents, facts",
    [
        (b"", ["got none"]),
        (b" 12\n", ["got none"]),
        ("the 12\nof\n", [f'{FORMAT}: "of']),
        ("the 12\nof 7\nthe 3\n", ["Duplicate word", "'the'"]),
    ],
)
def test_a_damaged_dictionary(load, tmp_path, contents, facts):
    error = refusal(load, contents)
    assert error.startswith(f"{tmp_path}/dict.txt") and len(error) < 400 + len(str(tmp_path))
    assert all(fact in error for fact in facts), error


def test_unknown_words_cannot_be_replaced():
    assert "--replace-unk needs the alignment" in refusal(utils.load_align_dict, "")
    assert utils.load_align_dict(None) is None


def codes(path):
    return SimpleNamespace(bpe_codes=str(path), bpe_separator="@@")


def test_codes_of_bpe(tmp_path):
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\nl\n")
    assert str(path) in refusal(SubwordNMTBPE, codes(path))
    path.write_text("#version: 0.2\nl o\nlo w</w>\n")
    assert SubwordNMTBPE(codes(path)).encode("low lot") == "low lo@@ t"
    model = SimpleNamespace(sentencepiece_model=str(path))
    assert str(path) in refusal(SentencepieceBPE, model)


@pytest.mark.parametrize(
    "size, buffers",
    [(1, [["a b"], ["c"], [""]]), (2, [["a b", "c"], [""]]), (9, [["a b", "c", ""]])],
)
def test_lines_come_in_buffers(tmp_path, monkeypatch, size, buffers):
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbfa\tb \r\n c\n\n")
    assert list(read_in_buffers(None, str(tmp_path / "in"), size)) == buffers
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"a b\nc\n\n")))
    )
    assert list(read_in_buffers(None, "-", size)) == buffers
