import gzip
import os
import threading

import pytest

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output, text_lines, write_lines

LINES = [f"line {number}" for number in range(5000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.mark.parametrize("packed", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_every_line_is_read_compressed_or_not(kind, packed, tmp_path):
    if kind == "file":
        (tmp_path / "text").write_bytes(packed)
        assert list(text_lines(tmp_path / "text")) == LINES
        return
    ours, theirs = os.pipe()
    writer = threading.Thread(target=lambda: os.fdopen(theirs, "wb").write(packed))
    writer.start()
    assert list(text_lines(f"/dev/fd/{ours}")) == LINES
    writer.join()
    os.close(ours)


def test_a_damaged_archive_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress(TEXT)[:-20])
    with pytest.raises(FairseqDocError, match="text is damaged"):
        list(text_lines(tmp_path / "text"))


@pytest.mark.parametrize("place", ["missing/file", ".", "text/file"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(place, tmp_path):
    (tmp_path / "text").write_text("mine")
    with pytest.raises(FairseqDocError, match="expected a file in a folder that exists"):
        check_output(tmp_path / place, overwrite=True)


def test_an_output_that_exists_is_kept_unless_asked(tmp_path):
    (tmp_path / "text").write_text("mine")
    with pytest.raises(FairseqDocError, match="text exists; .* or give --overwrite"):
        check_output(tmp_path / "text")
    check_output(tmp_path / "text", overwrite=True)
    check_output(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_lines_are_written_whole_or_not_at_all(tmp_path):
    def some():
        yield "é"
        yield from some_failure

    some_failure = ["b"]
    write_lines(tmp_path / "text", some())
    assert (tmp_path / "text").read_text("utf-8") == "é\nb\n"
    some_failure = map(int, ["x"])
    with pytest.raises(ValueError, match="invalid literal"):
        write_lines(tmp_path / "text", some())
    assert (tmp_path / "text").read_text("utf-8") == "é\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
