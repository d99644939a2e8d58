"""Reading and writing of text and small files; a failure is an error that names the file.

Input is a regular file, a pipe that is open, such as standard input or the shell's ``<(...)``, in
UTF-8, plain or gzip. A line is bounded before it is in memory. Output goes into a temporary file in
the same folder, which is flushed to the disk, then renamed; all but regular files are written in
place.
"""

import codecs
import contextlib
import errno
import fcntl
import gzip
import io
import logging
import os
import re
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
_GZIP = b"\x1f\x8b"
_OTHER_MARKS = {  # in this order: UTF-32's begins with UTF-16's
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_Path = str | os.PathLike[str]
_last_read: str | None = None

logger = logging.getLogger(__name__)


# ---- in ----


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
    """:func:`text_lines` of a table, JSON lines or a program's output, where CR LF ends a line as
    LF does: a line end of the format is no text."""
    return (line.removesuffix("\r") for line in text_lines(path))


def read_text(path: _Path, max_bytes: int) -> str:
    """The text of a small file, read as by :func:`text_lines`; no pipe."""
    check_input(path, again=path != "-")
    with _opened(path) as (file, name):
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise FairseqDocError(
                f"{name}: expected a file of at most {max_bytes:,} bytes; got a longer one: is it "
                "the right one?"
            )
        lines = enumerate(_without_mark(data, name, "strict").split(b"\n"), start=1)
        return "\n".join(_decoded(line, name, number, "strict") for number, line in lines)


def check_input(path: _Path, again: bool = False) -> None:
    """Check that ``path``, or standard input for ``-``, can be read, before any work and before
    another library opens it. A pipe must be open already (``/dev/stdin``, ``<(...)``): a named one
    may have no writer, and opening it would wait for ever. None is accepted for a file that is read
    ``again``, since a pipe can be read only once. Nothing is read."""
    if path == "-":
        if again:
            raise FairseqDocError("-: expected a file, since it is read more than once")
        if sys.stdin is None:
            raise FairseqDocError("cannot read standard input: it is closed")
        return
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise FairseqDocError(f"cannot read {path}: {error.strerror}") from None
    is_open_pipe = stat.S_ISFIFO(mode) and _descriptor(path) is not None
    if not stat.S_ISREG(mode) and (again or not is_open_pipe):
        expected = "a regular file" if again else "a file or an open pipe, such as <(cat FILE)"
        hint = "; - is standard input" if stat.S_ISCHR(mode) else ""
        raise FairseqDocError(f"{path}: expected {expected}; got {_kind(mode)}{hint}")
    if not os.access(path, os.R_OK):
        raise FairseqDocError(f"cannot read {path}: {os.strerror(errno.EACCES)}")
    _note(str(path))


def last_read() -> str | None:
    """The file that was read or checked last, in which an unexpected error may have its cause."""
    return _last_read


def _note(name: str) -> None:
    global _last_read
    _last_read = name


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def _decoded(line: bytes, name: str, number: int, errors: str) -> str:
    try:
        return line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise FairseqDocError(
            f"{name}: line {number} is not UTF-8: byte {line[error.start]:#04x} at "
            f"{error.start + 1}; expected text in UTF-8"
        ) from None


def _without_mark(start: bytes, name: str, errors: str) -> bytes:
    """Remove the byte order mark of UTF-8; refuse those of other encodings."""
    for encoding, marks in _OTHER_MARKS.items():
        if errors == "strict" and start.startswith(marks):
            raise FairseqDocError(
                f"{name} is {encoding}; expected text in UTF-8: iconv -f {encoding} -t UTF-8 "
                "converts it"
            )
    return start.removeprefix(codecs.BOM_UTF8)


@contextlib.contextmanager
def _opened(path: _Path) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or standard input for ``-``, and decompress it; also its name. Every error is a
    ``FairseqDocError``."""
    name = "standard input" if path == "-" else str(path)
    check_input(path)
    try:
        with contextlib.ExitStack() as stack:
            file: Any = _standard_input() if path == "-" else stack.enter_context(open(path, "rb"))
            _note(name)
            compressed = file.peek(len(_GZIP)).startswith(_GZIP)  # a pipe cannot be read twice
            if compressed:
                file = gzip.GzipFile(fileobj=file)
            yield file, name
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FairseqDocError(f"{name} is damaged: {error}; copy it again") from None
    except OSError as error:
        raise FairseqDocError(f"cannot read {name}: {error.strerror}") from None


def _standard_input() -> Any:
    stdin: Any = getattr(sys.stdin, "buffer", None)  # none where a notebook replaced it
    if stdin is None:
        stdin = io.BytesIO(sys.stdin.read().encode())
    return stdin if hasattr(stdin, "peek") else io.BufferedReader(stdin)


# ---- out ----


def check_output(path: _Path, overwrite: bool = False) -> None:
    """Check, before any work, that ``path``, or the target of a symlink, can be written."""
    mode = _mode(path)
    if mode is not None and _descriptor(path) is not None:
        return
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
            raise FairseqDocError(f"{path}: expected a file to write; got {_kind(mode)}")
        if not os.access(path, os.W_OK):
            raise FairseqDocError(f"cannot write {path}: {os.strerror(errno.EACCES)}")
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise FairseqDocError(
            f"{path}: expected a file in a folder that exists and can be written to, {folder}"
        )
    if mode is not None and not overwrite:
        raise FairseqDocError(_exists(path))


@contextlib.contextmanager
def whole_file(path: _Path, overwrite: bool = True, binary: bool = False) -> Iterator[IO[Any]]:
    """A file to write, UTF-8 or binary, renamed to ``path`` once it is complete and on the disk. On
    failure nothing is left behind, and an old file stays. A symlink stays; its target is replaced
    and keeps its permissions. A device or a pipe is written in place. Without ``overwrite`` no
    existing file is replaced, not even one that appears meanwhile."""
    mode, number = _mode(path), _descriptor(path)
    in_place = mode is not None and (not stat.S_ISREG(mode) or number is not None)
    target = Path(os.path.realpath(path))
    # Not tempfile: a signal can come after it makes the file and before it returns the name.
    # save_dir_lock.py recognises such names as files of a killed run.
    new = target.parent / f".{target.name[:40]}.{secrets.token_hex(4)}.part"
    try:
        if in_place:
            own = os.open(path, os.O_WRONLY) if number is None else os.dup(number)
            with _file(own, binary) as file:
                yield file
        else:
            if mode is not None and not overwrite:
                raise FairseqDocError(_exists(path))
            with _moved_into_place(new, target, mode, overwrite, binary) as file:
                yield file
    except BrokenPipeError:  # the reader has enough
        raise
    except OSError as error:
        if error.filename is not None and str(error.filename) not in (str(path), str(new)):
            raise  # of another file that is open
        kept = "" if in_place else "; nothing was changed"
        raise FairseqDocError(f"cannot write {path}: {error.strerror or error}{kept}") from None


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
    """Take a lock until the returned file is closed or this process ends; a forked child has no
    part in it. ``path`` is a file for the lock alone, made if there is none; ``message`` is the
    error if another process holds the lock."""
    try:
        file = open(path, "a")  # noqa: SIM115
    except OSError as error:
        raise FairseqDocError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            file.close()
            raise FairseqDocError(message) from None
        logger.warning("%s cannot be locked: %s", path, error.strerror)  # some network disks
    return file


def _exists(path: _Path) -> str:
    return f"{path} exists; remove it, name another file, or give --overwrite"


def _mode(path: _Path) -> int | None:
    """The kind and permissions of what ``path`` names; None if it names nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FairseqDocError(f"cannot write {path}: {error.strerror}") from None


def _descriptor(path: _Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout or /dev/fd/63 names."""
    name = os.path.abspath(path)
    match = re.fullmatch(rf"/(?:dev|proc/(?:self|{os.getpid()}))/fd/(\d+)", name)
    return int(match[1]) if match else _STANDARD.get(name)


def _file(descriptor: int, binary: bool) -> IO[Any]:
    text: Any = {} if binary else {"encoding": "utf-8", "newline": "\n"}
    return os.fdopen(descriptor, "wb" if binary else "w", **text)


@contextlib.contextmanager
def _moved_into_place(
    new: Path, path: Path, old_mode: int | None, overwrite: bool, binary: bool
) -> Iterator[IO[Any]]:
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with _file(descriptor, binary) as file:
            yield file
            file.flush()
            if old_mode is not None:
                with contextlib.suppress(PermissionError):  # disks without permissions
                    os.fchmod(descriptor, stat.S_IMODE(old_mode))
            os.fsync(descriptor)
        if overwrite:
            os.replace(new, path)
        else:
            _move_to_a_free_name(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(new)
    with contextlib.suppress(OSError):  # some network disks cannot
        flush(path.parent)


def _move_to_a_free_name(new: Path, path: Path) -> None:
    try:
        os.link(new, path)  # the second name; the caller removes the first
    except FileExistsError:
        raise FairseqDocError(_exists(path)) from None
    except OSError:  # a disk without links
        if os.path.lexists(path):
            raise FairseqDocError(_exists(path)) from None
        os.replace(new, path)


def flush(path: _Path) -> None:
    """Put a file, or a folder's new names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
