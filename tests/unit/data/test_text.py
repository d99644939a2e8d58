import gzip
import os
import threading

import pytest

from fairseq_doc.data.text import text_lines
from fairseq_doc.errors import FairseqDocError

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


def test_a_damaged_archive_is_told(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress(TEXT)[:-20])
    with pytest.raises(FairseqDocError, match="text is damaged: .*; copy it again$"):
        list(text_lines(tmp_path / "text"))
