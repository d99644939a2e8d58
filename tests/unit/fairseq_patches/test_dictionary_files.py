import gzip

import pytest
from conftest import refusal
from fairseq.data import Dictionary

from fairseq_doc import (
    checksums,
    registration,  # noqa: F401
)

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
    loaded = load(text)
    theirs = Dictionary()
    with open(tmp_path / "dict.txt", encoding="utf-8") as file:
        Dictionary.add_from_file.__wrapped__(theirs, file)
    assert entries(loaded) == entries(theirs) and loaded.indices == theirs.indices
    assert "madeupword0000" not in text or loaded.index("madeupword0000") == 6


def test_a_byte_order_mark_is_no_part_of_the_first_word(load):
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).indices == load(GOOD).indices


def test_a_dictionary_compressed_by_gzip(load):
    packed = gzip.compress(GOOD.encode())
    assert load(packed).indices == load(GOOD).indices
    assert "dict.txt is damaged" in refusal(load, packed[:-9])


@pytest.mark.parametrize(
    "contents, facts",
    [
        (b"", ["got none"]),
        (b" 12\n", ["got none"]),
        (b"\x93\xfa\x00\x01", ["line 1 is not UTF-8", "0x93"]),
        (GOOD.encode("utf-16"), ["is UTF-16", "iconv"]),
        (GOOD.encode() + "né 1\n".encode("latin-1"), ["line 4 is not UTF-8", "0xe9"]),
        ("the 12\nof\n", [f'{FORMAT}: "of']),
        ("the\t12\n", [FORMAT]),
        ("the 1.5\n", [f'{FORMAT}: "the"']),
        ("the 12\n\nof 7\n", [FORMAT]),
        ("the 12\nof 7\nthe 3\n", ["Duplicate word", "'the'"]),
        ("<unk> 3\n", ["Duplicate word"]),
        ("the 12 #fairseq:over\n", [FORMAT]),
        ("the " + 5000 * "5" + "\n", [FORMAT]),
        ("x" * 3 * 2**20, ["line 1 is longer than"]),
    ],
)
def test_a_damaged_dictionary(load, tmp_path, contents, facts):
    error = refusal(load, contents)
    assert error.startswith(f"{tmp_path}/dict.txt") and len(error) < 400 + len(str(tmp_path))
    assert all(fact in error for fact in facts), error


def test_no_dictionary(tmp_path):
    assert f"cannot read {tmp_path}/dict.txt: No such file" in refusal(
        Dictionary.load, f"{tmp_path}/dict.txt"
    )
    assert "a folder" in refusal(Dictionary.load, str(tmp_path))


def test_a_dictionary_that_changed_after_it_was_prepared(load, tmp_path):
    load(GOOD)
    checksums.write(tmp_path, ["dict.txt"])
    load(GOOD)
    assert "was changed after it was prepared" in refusal(load, GOOD.replace("of", "or"))


def test_an_open_file_and_a_dictionary_with_a_header_are_fairseqs(tmp_path):
    class WithHeader(Dictionary):
        def _load_meta(self, lines):
            return 1

    (tmp_path / "dict.txt").write_text(f"header\n{GOOD}")
    assert entries(WithHeader.load(str(tmp_path / "dict.txt")))[0] == ("the", 12)
    (tmp_path / "dict.txt").write_text(GOOD)
    with open(tmp_path / "dict.txt") as file:
        assert len(entries(Dictionary.load(file))) == 3
