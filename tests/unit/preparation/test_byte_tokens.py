import pytest
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation.byte_tokens import NAMES, text_of, tokens_of, unit_of


def dictionary_of(*symbols):
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


def test_bytes_have_256_names_and_the_line_feed_that_of_the_end_mark():
    assert len(set(NAMES)) == 256
    assert [NAMES[byte] for byte in b"\x00\na\xff"] == ["<0x00>", "</s>", "<0x61>", "<0xFF>"]


@pytest.mark.parametrize(
    "symbols, unit",
    [
        (["<0x61>"], "byte"),
        (["<0x61>", "<0xFF>"], "byte"),
        (["<0x61>", "a"], "word"),
        (["<0x61>", "<0x1>"], "word"),
        (["<0xff>"], "word"),
        ([], "word"),
        (["a", "b"], "word"),
    ],
)
def test_a_dictionary_is_of_bytes_where_every_symbol_names_one(symbols, unit):
    assert unit_of(dictionary_of(*symbols)) == unit


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


@pytest.mark.parametrize(
    "words, text",
    [
        ([], ""),
        (["a", "b"], "a b"),
        (["x", "a", "</s>", "b", "c"], "x a\nb c"),
        (["a", "</s>", "</s>", "b"], "a\n\nb"),
        (["a", "</s>"], "a\n"),
    ],
)
def test_words_have_blanks_between_them(words, text):
    assert text_of(words, "word") == text
    if "</s>" not in words:
        assert tokens_of(f" {text}\t", "word") == words
