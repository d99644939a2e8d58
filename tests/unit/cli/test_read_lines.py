import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.cli.arguments import read_lines
from fairseq_doc.errors import FairseqDocError


def from_file(folder, content):
    (folder / "text").write_bytes(content)
    return read_lines(str(folder / "text"))


@pytest.fixture(params=["file", "standard input"])
def read(request, tmp_path, monkeypatch):
    """bytes -> lines, from either source."""

    def from_standard_input(content):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        return read_lines("-")

    if request.param == "file":
        return lambda content: from_file(tmp_path, content)
    return from_standard_input


@pytest.mark.parametrize(
    "content, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a\r", "b\r"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\x0bb\x0cc\x1cd\n", ["a\x0bb\x0cc\x1cd"]),
        ("a\u2028b\u2029c\x85d\ne\n".encode(), ["a\u2028b\u2029c\x85d", "e"]),
        ("für\nstraße".encode(), ["für", "straße"]),
    ],
)
def test_lines_end_with_a_line_feed_and_nothing_else(read, content, lines):
    assert read(content) == lines


@given(lines=st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), min_size=1))
def test_lines_are_read_as_they_were_written(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    content = "".join(line + "\n" for line in lines).encode()
    assert from_file(folder, content) == lines
    if lines[-1]:
        assert from_file(folder, content[:-1]) == lines


@pytest.mark.parametrize(
    "content, words",
    [
        (b"a\nb\xffc\n", "line 2 is not UTF-8: byte 0xff at 2"),
        (b"\xe4\n", "line 1 is not UTF-8: byte 0xe4 at 1"),
        (b"a\n\nabc\xc3\nb", "line 3 is not UTF-8: byte 0xc3 at 4"),
        ("a\u2028b\n".encode() + b"\x80", "line 2 is not UTF-8: byte 0x80 at 1"),
    ],
)
def test_bytes_that_are_not_utf_8_are_refused_with_their_line(read, content, words):
    with pytest.raises(FairseqDocError, match=words) as caught:
        read(content)
    assert "\n" not in str(caught.value)
    assert str(caught.value).split(": ")[0].endswith(("standard input", "text"))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(FairseqDocError, match="cannot read .*/none: No such file or directory"):
        read_lines(str(tmp_path / "none"))
    with pytest.raises(FairseqDocError, match="expected a file or a pipe; got a folder"):
        read_lines(str(tmp_path))
