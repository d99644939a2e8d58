from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation.text_form import NAMES, text_of, tokens_of, unit_of

from .conftest import dictionary_of


def test_bytes_have_256_names_and_the_line_feed_that_of_the_end_mark():
    assert len(set(NAMES)) == 256
    assert [NAMES[byte] for byte in b"\x00\na\xff"] == ["<0x00>", "</s>", "<0x61>", "<0xFF>"]


def test_a_dictionary_is_of_bytes_where_every_symbol_names_one():
    for symbols in (["<0x61>"], ["<0x61>", "<0xFF>"]):
        assert unit_of(dictionary_of(*symbols)) == "byte"
    for symbols in (["<0x61>", "a"], ["<0x61>", "<0x1>"], ["<0xff>"], [], ["a", "b"]):
        assert unit_of(dictionary_of(*symbols)) == "word"


@given(st.text())
def test_text_comes_back_from_its_bytes(text):
    tokens = tokens_of(text, "byte")
    assert len(tokens) == len(text.encode()) and text_of(tokens, "byte") == text


@given(st.binary())
def test_bytes_that_are_not_utf8_keep_their_names(data):
    assert tokens_of(data.decode("utf-8", "surrogateescape"), "byte") == [NAMES[b] for b in data]
    assert text_of([NAMES[b] for b in data], "byte") == data.decode("utf-8", "replace")


def test_what_names_no_byte_is_replaced():
    assert text_of(["<0x61>", "<unk>", "<0xC3>", "</s>"], "byte") == "a\ufffd\ufffd\n"


@given(st.lists(st.lists(st.sampled_from(["a", "bc", "a</s>", "<unk>"]))))
def test_words_have_blanks_between_them_and_lines_end_marks(lines):
    tokens = [token for line in lines for token in [*line, "</s>"]]
    assert text_of(tokens, "word") == "".join(" ".join(line) + "\n" for line in lines)
    for line in lines:
        assert text_of(line, "word") == " ".join(line)
        assert tokens_of(f" {' '.join(line)}\t", "word") == line
