import bz2
import gzip
import lzma

import numpy as np
import pytest
from conftest import refusal
from fairseq.data import data_utils
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.data.bptt_stream import load_stream
from fairseq_doc.preparation import byte_text
from fairseq_doc.preparation.byte_text import (
    binarise_bytes,
    check_not_packed,
    counts_of_bytes,
    lines_of,
    make_dictionary,
)
from fairseq_doc.preparation.text_form import NAMES

EVERY_BYTE = make_dictionary(np.ones(256, np.int64))
texts = st.lists(st.sampled_from([b"\n", b"a", b"b\xff", b"\r\n", b" \x00"]), min_size=1).map(
    b"".join
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files in it are written anew by every example."""
    return tmp_path_factory.mktemp("bytes")


@pytest.fixture(params=[1, 3, 1 << 22])
def chunk(request, monkeypatch):
    monkeypatch.setattr(byte_text, "CHUNK", request.param)


def of_bytes(text):
    return np.frombuffer(text, np.uint8)


def binarised(folder, text, dictionary=EVERY_BYTE):
    """(lines of the binarised text as tokens, what was counted)."""
    counted = binarise_bytes(of_bytes(text), folder / "split", dictionary)
    dataset = data_utils.load_indexed_dataset(str(folder / "split"), dictionary)
    return [line.tolist() for line in dataset], counted


@given(text=st.one_of(texts, st.binary(min_size=2)))
def test_any_bytes_come_back_from_the_stream(folder, text):
    binarise_bytes(of_bytes(text + b"\n."), folder / "split", EVERY_BYTE)
    stream = load_stream(str(folder / "split"), "split", EVERY_BYTE)
    byte_of = {EVERY_BYTE.index(name): byte for byte, name in enumerate(NAMES)}
    assert bytes(byte_of[token] for token in stream.tokens.tolist()) == text + b"\n."


@pytest.mark.parametrize("text", [b"a\n\nb", b"\n", b"a", b"ab\n", b"\n\n\nabcdefg\nh\n"])
def test_an_entry_is_a_line_with_its_end_mark_if_it_has_one(tmp_path, chunk, text):
    lines, counted = binarised(tmp_path, text)
    written = text.splitlines(keepends=True)
    assert lines == [[EVERY_BYTE.index(NAMES[byte]) for byte in line] for line in written]
    assert counted == (len(written), len(text), 0)
    assert [line.encode() for line in lines_of(of_bytes(text))] == written
    assert counts_of_bytes(of_bytes(text)).tolist() == [text.count(byte) for byte in range(256)]
    assert (lines[-1][-1] == EVERY_BYTE.eos()) == text.endswith(b"\n")


def test_bytes_outside_the_dictionary_are_unknown_and_counted(tmp_path, chunk):
    dictionary = make_dictionary(np.bincount(list(b"aab"), minlength=256))
    lines, counted = binarised(tmp_path, b"axb\ny\n", dictionary)
    assert lines == [[4, 3, 5, 2], [3, 2]] and counted == (2, 6, 2)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_is_refused_and_no_other(tmp_path, pack):
    path = tmp_path / "text"
    path.write_bytes(pack(b"text"))
    assert "text is compressed: unpack it" in refusal(check_not_packed, path)
    for text in (b"", b"P", b"PK", b"BZh9", b"a" + pack(b"text")):
        path.write_bytes(text)
        check_not_packed(path)
