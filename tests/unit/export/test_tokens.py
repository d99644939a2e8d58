import pytest
from conftest import refusal

from fairseq_doc.export.tokens import match_tokens, read_tokens

from ..conftest import small_dictionary

DICTIONARY = small_dictionary(8)  # four symbols of fairseq's, w0 .. w3


def test_lines_in_any_order_and_with_any_blanks(tmp_path):
    (tmp_path / "tokens").write_text("w1\t2\n</s>  0 \n\u2581a 1\r\n")
    assert read_tokens(tmp_path / "tokens") == ["</s>", "\u2581a", "w1"]


@pytest.mark.parametrize(
    "tokens, words, end, unknown",
    [
        (["<blk>", "<sos/eos>", "</s>", "w0", "w9"], [3, 2, 2, 4, 3], 1, ["<blk>", "w9"]),
        (["<blk>", "w0", "w1", "</s>"], [3, 4, 5, 2], 3, ["<blk>"]),
        (["<unk>", "w3", "<blk>"], [3, 7, 2], 2, []),
    ],
)
def test_the_words_of_tokens(tokens, words, end, unknown):
    table = match_tokens(tokens, DICTIONARY, "tokens")
    assert (table.words, table.end, table.unknown) == (words, end, unknown)
    assert not table.is_dictionary


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "expected one of <sos/eos>"),
        ("</s> 0\nb\n", "line 2: expected a token"),
        ("</s> 0\nb 1\nc 1\n", "line 3: expected a token"),
        ("</s> 0\nb 2\n", "1 is missing"),
        ("</s> 0\na 1\nb 2\nc 3\nw0 4\n", "3 of 5 are not in its dictionary, such as 'c'"),
    ],
)
def test_a_table_that_cannot_be_used(text, problem, tmp_path):
    path = tmp_path / "tokens"
    path.write_text(text)
    assert problem in refusal(lambda: match_tokens(read_tokens(path), DICTIONARY, path))
