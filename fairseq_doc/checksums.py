"""SHA256SUMS: checksums of a prepared data folder, for ``sha256sum -c`` and :func:`check`."""

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
    try:
        with open(path, "rb") as file:
            while part := file.read(2**20):
                digest.update(part)
    except OSError as error:
        raise FairseqDocError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()


def write(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of these files of a folder into its SHA256SUMS."""
    write_lines(folder / NAME, lines_of(folder, names))


def lines_of(folder: Path, names: Iterable[str]) -> list[str]:
    """The lines of SHA256SUMS for these files of a folder."""
    return [f"{sha256_of(folder / name)}  {name}" for name in sorted(names)]


def add(folder: Path, names: Iterable[str]) -> None:
    """Add these files of a folder to its SHA256SUMS, if it has one."""
    if (folder / NAME).exists():
        digests = _read(folder / NAME) | {name: sha256_of(folder / name) for name in names}
        write_lines(folder / NAME, [f"{digests[name]}  {name}" for name in sorted(digests)])


def check(path: str | os.PathLike) -> None:
    """Raise ``FairseqDocError`` if a file's checksum is not the one in its folder's SHA256SUMS, or
    if a listed file is missing. Files that are not listed are not checked; an unchanged file is
    checked once per process."""
    path = Path(path)
    sums = path.with_name(NAME)
    if not sums.exists():
        return
    check_input(sums, again=True)
    if path.is_file():
        _check(path, sums, _version(path), _version(sums))
    elif not os.path.lexists(path) and path.name in _read(sums):
        raise FairseqDocError(f"{path} is missing, but {sums} lists it: prepare the data again")


@functools.lru_cache(maxsize=1024)
def _check(path: Path, sums: Path, *versions: tuple) -> None:  # versions are keys of the cache
    expected = _read(sums).get(path.name)
    if expected is not None and sha256_of(path) != expected:
        raise FairseqDocError(
            f"{path} is damaged or was changed after preparation: its SHA-256 differs from the one "
            f"in {sums}; prepare the data again or, if you changed the file yourself, remove its "
            "line there"
        )


def _read(sums: Path) -> dict[str, str]:
    """{name: SHA-256 in hexadecimal digits}."""
    digests = {}
    for number, line in enumerate(table_lines(sums), start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None:
            raise FairseqDocError(
                f"{sums}: line {number}: expected a SHA-256, two blanks and a file's name; got "
                f"{shown(line)}; prepare the data again"
            )
        digests[match[2]] = match[1]
    return digests


def _version(path: Path) -> tuple:
    """Changes when a file is written again."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
