"""fairseq_doc/export/tokens.py."""

import pytest
from conftest import refusal

from fairseq_doc.export.tokens import match_tokens, read_tokens, table_lines, table_of

from ..conftest import small_dictionary

DICTIONARY = small_dictionary(8)  # four symbols of fairseq's, w0 .. w3


def test_a_table_is_read_as_it_is_written(tmp_path):
    (tmp_path / "tokens").write_text("".join(f"{line}\n" for line in table_lines(DICTIONARY)))
    tokens = read_tokens(tmp_path / "tokens")
    assert tokens == ["<s>", "<pad>", "</s>", "<unk>", "w0", "w1", "w2", "w3"]
    table = match_tokens(tokens, DICTIONARY, "tokens")
    expected = table_of(DICTIONARY)
    assert (table.words, table.end, table.unknown) == (expected.words, expected.end, [])


def test_lines_in_any_order_and_with_any_blanks(tmp_path):
    (tmp_path / "tokens").write_text("w1\t2\n</s>  0 \n\u2581a 1\r\n")
    assert read_tokens(tmp_path / "tokens") == ["</s>", "\u2581a", "w1"]


@pytest.mark.parametrize(
    "tokens, end",
    [
        (["<blk>", "<sos/eos>", "</s>", "w0", "w1"], 1),
        (["<blk>", "w0", "w1", "</s>"], 3),
        (["w2", "w1", "<blk>"], 2),
    ],
)
def test_the_end_mark(tokens, end):
    table = match_tokens(tokens, DICTIONARY, "tokens")
    assert table.end == end and table.words[end] == DICTIONARY.eos() and not table.is_dictionary


def test_tokens_outside_the_dictionary():
    table = match_tokens(["<blk>", "<sos/eos>", "<unk>", "w3", "w9"], DICTIONARY, "tokens")
    assert table.unknown == ["<blk>", "w9"]
    assert table.words == [3, 2, 3, 7, 3]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "got 0 tokens"),
        ("a 0\nb\n", "line 2: expected a token and its number; got 'b'"),
        ("a 0\nb 1\nc 1\n", "line 3: number 1"),
        ("a 0\nb 2\n", "without gaps; got 2 tokens"),
    ],
)
def test_a_table_that_cannot_be_used(text, problem, tmp_path):
    (tmp_path / "tokens").write_text(text)
    assert problem in refusal(read_tokens, str(tmp_path / "tokens"))


def test_tokens_of_another_model():
    assert "expected one of <sos/eos>" in refusal(match_tokens, ["w0"], DICTIONARY, "tokens")
    tokens = ["</s>", "a", "b", "c", "w0"]
    message = refusal(match_tokens, tokens, DICTIONARY, "tokens")
    assert "3 of 5 are not in its dictionary, such as 'c'" in message
