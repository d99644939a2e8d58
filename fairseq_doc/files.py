"""Reading and writing text."""

import contextlib
import gzip
import os
import sys
import zlib
from pathlib import Path

from fairseq_doc.errors import FairseqDocError

_GZIP = b"\x1f\x8b"


def text_lines(path):
    """The lines of a UTF-8 file, compressed by gzip or not, or of standard input where ``path`` is
    ``-``, one after another, split at line feeds alone, without them.

    Raises:
        FairseqDocError: no such file, a damaged one, or bytes that are no UTF-8, with their line.
    """
    name = "standard input" if path == "-" else path
    try:
        opened = contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb")
    except OSError as error:
        raise FairseqDocError(f"cannot read {name}: {error.strerror}") from None
    with opened as file:
        try:
            if path != "-" and file.peek(2)[:2] == _GZIP:
                file = gzip.open(file)
            for number, line in enumerate(file, start=1):
                try:
                    yield line.removesuffix(b"\n").decode("utf-8")
                except UnicodeDecodeError as error:
                    raise FairseqDocError(
                        f"{name}: line {number} is not UTF-8: byte {line[error.start]:#04x} at "
                        f"{error.start + 1}; expected text in UTF-8"
                    ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FairseqDocError(f"{name} is damaged: {error}; copy it again") from None


def check_output(path, overwrite=False):
    """Raise ``FairseqDocError`` where no file can be written to ``path``: before any work."""
    path = Path(path)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or path.is_dir():
        raise FairseqDocError(
            f"{path}: expected a file in a folder that exists and can be written to, {path.parent}"
        )
    if path.exists() and not overwrite:
        raise FairseqDocError(f"{path} exists; remove it, name another file, or give --overwrite")


def write_lines(path, lines):
    """Write lines beside ``path`` and move them there when they are whole; else nothing is left."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise
