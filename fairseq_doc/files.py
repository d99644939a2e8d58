"""Reading and writing of text and small files; a failure is an error that names the file.

Input is a regular file, standard input or the shell's ``<(...)``, in UTF-8, plain or gzip. Output
goes into a temporary file in the same folder, which is flushed to disk, then renamed; a device
or a pipe, such as ``/dev/stdout``, is written in place.
"""

import codecs
import contextlib
import errno
import fcntl
import gzip
import logging
import os
import secrets
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from fairseq_doc.errors import FairseqDocError

MAX_LINE = 1 << 20  # bytes
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_STANDARD_OUTPUTS = {"/dev/stdout": 1, "/dev/stderr": 2}
_Path = str | os.PathLike[str]
_last_read: str | None = None

logger = logging.getLogger(__name__)


# ---- reading ----


def text_lines(path: _Path, max_line: int = MAX_LINE, errors: str = "strict") -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip, split at line feeds only, without a byte order
    mark. ``path`` may be a pipe, or ``-`` for standard input, see :func:`check_input`; ``max_line``
    is in bytes; ``errors`` is that of ``bytes.decode``."""
    with _opened(path) as (file, name):
        number = 1
        line = _without_mark(file.readline(max_line + 1), name, errors)
        while line:
            if len(line) > max_line and not line.endswith(b"\n"):
                raise FairseqDocError(
                    f"{name}: line {number} is longer than {max_line:,} bytes; expected text in "
                    "shorter lines: split it"
                )
            _note(name)  # each time: two files may be read in turns
            yield _decoded(line.removesuffix(b"\n"), name, number, errors)
            number += 1
            line = file.readline(max_line + 1)


def table_lines(path: _Path) -> Iterator[str]:
    """:func:`text_lines` of a table, JSON lines or a program's output, where lines may also end in
    CR LF."""
    return (line.removesuffix("\r") for line in text_lines(path))


def read_text(path: _Path) -> str:
    """The text of a small file, read as by :func:`text_lines`, but not from a pipe."""
    check_input(path, again=path != "-")
    with _opened(path) as (file, name):
        return _decoded(_without_mark(file.read(), name, "strict"), name, 1, "strict")


def check_input(path: _Path, again: bool = False) -> None:
    """Check that ``path``, or standard input for ``-``, can be read, before any work. A pipe must
    be one of the shell's, ``/dev/stdin`` or ``<(...)``: opening one without a writer would wait for
    ever. A file that is read ``again`` must be a regular file. Nothing is read."""
    if path == "-":
        if again:
            raise FairseqDocError("-: expected a file, since it is read more than once")
        return
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise FairseqDocError(f"cannot read {path}: {error.strerror}") from None
    if not is_file and (again or not os.fspath(path).startswith("/dev/")):
        got = "a folder" if os.path.isdir(path) else "a pipe or a device"
        raise FairseqDocError(f"{path}: expected a regular file; got {got}")
    if not os.access(path, os.R_OK):
        raise FairseqDocError(f"cannot read {path}: {os.strerror(errno.EACCES)}")
    _note(str(path))


def last_read() -> str | None:
    """The file that was read or checked last, in which an unexpected error may have its cause."""
    return _last_read


def _note(name: str) -> None:
    global _last_read
    _last_read = name


def _decoded(text: bytes, name: str, number: int, errors: str) -> str:
    """``text`` begins at line ``number`` of the file."""
    try:
        return text.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        before = text[: error.start]
        line, column = number + before.count(b"\n"), error.start - before.rfind(b"\n")
        raise FairseqDocError(
            f"{name}: line {line} is not UTF-8: byte {text[error.start]:#04x} at position "
            f"{column}; expected text in UTF-8"
        ) from None


def _without_mark(start: bytes, name: str, errors: str) -> bytes:
    """Remove the byte order mark of UTF-8; refuse that of UTF-16."""
    if errors == "strict" and start.startswith(_UTF_16):
        raise FairseqDocError(
            f"{name} is UTF-16; expected text in UTF-8: iconv -f UTF-16 -t UTF-8 converts it"
        )
    return start.removeprefix(codecs.BOM_UTF8)


@contextlib.contextmanager
def _opened(path: _Path) -> Iterator[tuple[IO[bytes], str]]:
    """Yields (the open file, or standard input for ``-``, decompressed; its name for errors)."""
    name = "standard input" if path == "-" else str(path)
    check_input(path)
    try:
        with contextlib.ExitStack() as stack:
            file: Any = sys.stdin.buffer if path == "-" else stack.enter_context(open(path, "rb"))
            _note(name)
            if file.peek(2).startswith(b"\x1f\x8b"):  # a pipe cannot be read twice
                file = gzip.GzipFile(fileobj=file)
            yield file, name
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FairseqDocError(f"{name} is damaged: {error}; copy it again") from None
    except OSError as error:
        raise FairseqDocError(f"cannot read {name}: {error.strerror}") from None


# ---- writing ----


def refuse_links(folder: Path) -> None:
    """Refuse a folder of trainings that holds a link, through which they would write elsewhere, or a
    pipe, which would block. The folder itself may be a link, such as one to a larger disk."""
    for path in folder.rglob("*"):
        if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir())):
            raise FairseqDocError(
                f"{folder}: expected no links, through which trainings would write elsewhere, and "
                f"no pipes; got {path}: remove it, or give another folder"
            )


def check_output(path: _Path, overwrite: bool = False) -> None:
    """Check, before any work, that ``path``, or the target of a symlink, can be written."""
    if os.path.isdir(path):
        raise FairseqDocError(f"{path}: expected a file to write; got a folder")
    if _is_in_place(path):
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise FairseqDocError(
            f"{path}: expected a file in a folder that exists and can be written to, {folder}"
        )
    if not overwrite:
        _refuse_existing(path)


@contextlib.contextmanager
def whole_file(path: _Path, overwrite: bool = True, binary: bool = False) -> Iterator[IO[Any]]:
    """A file to write, UTF-8 or binary, renamed to ``path`` once it is complete and on disk. On
    failure nothing is left behind, and an old file stays. A symlink stays; its target is replaced
    and keeps its permissions. Without ``overwrite`` an existing file is an error. A device or a
    pipe is written in place."""
    in_place = _is_in_place(path)
    if not in_place and not overwrite:
        _refuse_existing(path)
    try:
        opened: Any = _in_place(path, binary) if in_place else _renamed(path, binary)
        with opened as file:
            yield file
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except (OSError, RuntimeError) as error:
        # torch.save, which closes its archive, hides the error of the disk.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError):
            raise
        kept = "" if in_place else "; nothing was changed"
        raise FairseqDocError(f"cannot write {path}: {cause.strerror or cause}{kept}") from cause


def copy_file(source: _Path, destination: _Path) -> None:
    """Copy the contents of a file, as :func:`whole_file` writes."""
    check_input(source)
    with open(source, "rb") as read, whole_file(destination, binary=True) as written:
        shutil.copyfileobj(read, written, 1 << 20)


def write_lines(path: _Path, lines: Iterable[str], overwrite: bool = True) -> None:
    """Write lines, as :func:`whole_file` writes."""
    write_files({path: lines}, overwrite)


def write_files(contents: Mapping[Any, Iterable[str]], overwrite: bool = True) -> None:
    """Write the lines of {path: lines}: all files, or none if one of them cannot be written."""
    with contextlib.ExitStack() as files:
        for path, lines in contents.items():
            file = files.enter_context(whole_file(path, overwrite))
            file.writelines(f"{line}\n" for line in lines)
            file.flush()  # a full disk is noticed before the first file is renamed


def lock(path: _Path, message: str) -> IO[str]:
    """Take a lock until the returned file is closed or this process ends. ``path`` is a file for
    the lock alone, made if there is none; ``message`` is the error if another process holds it.
    Forked children do not inherit it, as they would with ``flock`` (or the package filelock): the
    loader processes of a killed training may outlive it."""
    file = open(path, "a")  # noqa: SIM115
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            file.close()
            raise FairseqDocError(message) from None
        logger.warning("%s cannot be locked: %s", path, error.strerror)  # some network drives
    return file


def flush(path: _Path) -> None:
    """Flush a file, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_existing(path: _Path) -> None:
    if os.path.exists(path):
        raise FairseqDocError(f"{path} exists; remove it, name another file, or give --overwrite")


def _is_in_place(path: _Path) -> bool:
    """Whether ``path`` is a device or a pipe. Standard output is never replaced, even where it goes
    into a file."""
    is_other = os.path.exists(path) and not os.path.isfile(path)
    return is_other or os.fspath(path) in _STANDARD_OUTPUTS


def _in_place(path: _Path, binary: bool) -> IO[Any]:
    number = _STANDARD_OUTPUTS.get(os.fspath(path))
    return _open(path if number is None else os.dup(number), "w", binary)


def _open(file: _Path | int, mode: str, binary: bool) -> IO[Any]:
    text: Any = {} if binary else {"encoding": "utf-8", "newline": "\n"}
    return open(file, f"{mode}b" if binary else mode, **text)


@contextlib.contextmanager
def _renamed(path: _Path, binary: bool) -> Iterator[IO[Any]]:
    target = Path(os.path.realpath(path))
    # save_dir_lock.py recognises such names as files of a killed run.
    new = target.parent / f".{target.name[:40]}.{secrets.token_hex(4)}.part"
    try:
        with _open(new, "x", binary) as file:
            yield file
            file.flush()
            if target.exists():
                with contextlib.suppress(PermissionError):  # drives without permissions
                    shutil.copymode(target, new)
            os.fsync(file.fileno())
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some network drives cannot
        flush(target.parent)
