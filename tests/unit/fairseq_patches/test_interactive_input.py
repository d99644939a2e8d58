import io
import sys
from types import SimpleNamespace

import pytest
from conftest import refusal

from fairseq_doc.fairseq_patches import interactive_input
from fairseq_doc.fairseq_patches.interactive_input import read_in_buffers


@pytest.mark.parametrize(
    "size, buffers",
    [(1, [["a b"], ["c"], [""]]), (2, [["a b", "c"], [""]]), (9, [["a b", "c", ""]])],
)
def test_lines_come_in_buffers(tmp_path, size, buffers):
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbfa b \r\n c\n\n")
    assert list(read_in_buffers(str(tmp_path / "in"), size)) == buffers


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a b\nc")))
    assert list(read_in_buffers("-", 9)) == [["a b", "c"]]


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "in").write_bytes(b"a b\nc \xff d\n")
    buffers = read_in_buffers(str(tmp_path / "in"), 1)
    assert next(buffers) == ["a b"]
    assert "in: line 2 is not UTF-8: byte 0xff at 3" in refusal(next, buffers)


def test_the_command_reads_so(monkeypatch):
    for name in ("fairseq_cli.interactive", "__main__"):
        with monkeypatch.context() as patch:
            module = SimpleNamespace(buffered_read=None)
            patch.setitem(sys.modules, name, module)
            interactive_input.apply()
            assert module.buffered_read is read_in_buffers
