"""The sizes of a text as written, whatever it is cut into."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation import byte_text, raw_counts
from fairseq_doc.preparation.corpora import LanguageModelText
from fairseq_doc.preparation.language_model import prepare
from fairseq_doc.preparation.raw_counts import RawCounts, count, with_line_ends

TEXT = "Ein B\u00e4r, l\u00e4uft\t\u00fcber  <unk> Br\u00fccken.\n\nZur\u00fcck\u00a0geht er\n"
COUNTS = RawCounts(lines=3, words=9, characters=len(TEXT), bytes=len(TEXT.encode()), tokens=0)
FORMS = {
    "words": {},
    "moses": {"tokenizer": "moses"},
    "units": {"tokenizer": "moses", "bpe": "subword_nmt", "merges": 5},
    "sentencepiece": {"tokenizer": "moses", "bpe": "sentencepiece", "merges": 40},
    "bytes": {"unit": "byte"},
}


@given(st.text("ab \n\t\u00e4\u3000\udcff"))
def test_lines_are_counted_as_the_whole_text(text):
    data = text.encode("utf-8", "surrogateescape")
    lines = data.splitlines(keepends=True)
    found = count(byte_text.lines_of(np.frombuffer(data, np.uint8)), 7)
    assert found == RawCounts(len(lines), len(text.split()), len(text), len(data), 7)


def test_a_carriage_return_at_a_lines_end_is_text_for_bytes_alone():
    lines = ["a\r", "b\rc"]
    assert "".join(with_line_ends(lines, "word")) == "a\nb\rc\n"
    assert "".join(with_line_ends(lines, "byte")) == "a\r\nb\rc\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [True, False], ids=["one file", "three files"])
def test_every_form_of_a_text_has_its_counts(tmp_path, form, cut):
    text = TEXT if FORMS[form].get("tokenizer") else TEXT.replace("\u00a0", " ")
    source = tmp_path / "text"
    if cut:
        source.write_text(text * 3)
    else:
        source.mkdir()
        for split in ("train", "valid", "test"):
            (source / f"{split}.txt").write_text(text)
    split = "34,33,33" if cut else None
    prepare(
        LanguageModelText("text", source, split=split, **FORMS[form]), tmp_path / "bin", say=str
    )
    found = [raw_counts.read(str(tmp_path / "bin"), name) for name in ("train", "valid", "test")]
    found = [replace(one, tokens=0) for one in found]
    expected = replace(COUNTS, characters=len(text), bytes=len(text.encode()))
    assert found == [expected] * 3
    assert raw_counts.read(f"{tmp_path / 'bin'}:other", "valid").tokens > COUNTS.lines
