"""SHA256SUMS: checksums of the files of a data folder, for ``sha256sum -c`` and :func:`check`."""

import functools
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, table_lines, write_lines

NAME = "SHA256SUMS"


def sha256_of(path: str | os.PathLike) -> str:
    """The SHA-256 of a regular file, in hexadecimal digits."""
    check_input(path, again=True)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def write(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of these files of a folder into its SHA256SUMS."""
    write_lines(folder / NAME, lines_of(folder, names))


def lines_of(folder: Path, names: Iterable[str]) -> list[str]:
    """The lines of SHA256SUMS for these files of a folder."""
    return [f"{sha256_of(folder / name)}  {name}" for name in sorted(names)]


def check(path: str | os.PathLike) -> None:
    """Raise ``FairseqDocError`` if a file's checksum is not the one in its folder's SHA256SUMS, or
    if a listed file is missing. Files that are not listed are not checked; an unchanged file is
    read once per process."""
    path = Path(path)
    sums = path.with_name(NAME)
    expected = _read(sums).get(path.name) if sums.exists() else None
    if expected is None:
        return
    if not path.exists():
        raise FairseqDocError(f"{path} is missing, but {sums} lists it: prepare the data again")
    status = path.stat()
    if _sha256_of_version(path, status.st_ino, status.st_size, status.st_mtime_ns) != expected:
        raise FairseqDocError(
            f"{path} is damaged or was changed after preparation: its SHA-256 differs from the one "
            f"in {sums}; prepare the data again or, if you changed the file yourself, remove its "
            "line there"
        )


@functools.lru_cache(maxsize=1024)
def _sha256_of_version(path: Path, *version: int) -> str:
    """``version`` changes when the file is written again."""
    return sha256_of(path)


def _read(sums: Path) -> dict[str, str]:
    """{name: SHA-256 in hexadecimal digits}."""
    digests = {}
    for number, line in enumerate(table_lines(sums), start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None:
            raise FairseqDocError(
                f"{sums}: line {number}: expected a SHA-256, two spaces and a file's name; got "
                f"{shown(line)}; prepare the data again"
            )
        digests[match[2]] = match[1]
    return digests
