"""Reading and writing text."""

import contextlib
import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from fairseq_doc.errors import FairseqDocError

_GZIP = b"\x1f\x8b"


def is_compressed(path: str | os.PathLike) -> bool:
    """Whether a file is compressed by gzip."""
    with open(path, "rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def text_lines(path: str | os.PathLike) -> Iterator[str]:
    """The lines of a UTF-8 file, compressed by gzip or not, or of standard input where ``path`` is
    ``-``, one after another, split only at line feeds, without them.

    Raises:
        FairseqDocError: no such file, a damaged one, or bytes that are not UTF-8, with their line.
    """
    name = "standard input" if path == "-" else path
    with _opened(path) as file:
        try:
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


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The bytes of a file, decompressed, or of standard input where ``path`` is ``-``."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
        start = file.peek(len(_GZIP))  # a pipe cannot be read twice
    except OSError as error:
        raise FairseqDocError(f"cannot read {path}: {error.strerror}") from None
    with file:
        if start.startswith(_GZIP):
            with gzip.open(file) as unpacked:
                yield unpacked
        else:
            yield file


def check_output(path: str | os.PathLike, overwrite: bool = False) -> None:
    """Raise ``FairseqDocError`` where no file can be written to ``path``; called before any work."""
    path = Path(path)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or path.is_dir():
        raise FairseqDocError(
            f"{path}: expected a file in a folder that exists and can be written to, {path.parent}"
        )
    if path.exists() and not overwrite:
        raise FairseqDocError(f"{path} exists; remove it, name another file, or give --overwrite")


def write_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Write lines to a file beside ``path`` and move it there when it is complete. Where that fails,
    nothing is left behind."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise
