import errno
import gzip
import io
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from conftest import assert_refused, run

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import (
    check_input,
    check_output,
    copy_file,
    last_read,
    lock,
    read_text,
    text_lines,
    whole_file,
    write_files,
    write_lines,
)

LINES = [f"line {number}" for number in range(5000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def piped(content):
    """The name of a pipe that somebody writes to."""
    ours, theirs = os.pipe()
    threading.Thread(target=lambda: os.fdopen(theirs, "wb").write(content), daemon=True).start()
    return f"/dev/fd/{ours}"


@pytest.fixture(params=["file", "pipe", "stdin"])
def given(request, tmp_path, monkeypatch):
    """Text by each of the ways in: {content} -> a name to read it by."""

    def make(content):
        if request.param == "pipe":
            return piped(content)
        if request.param == "stdin":
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
            return "-"
        path = tmp_path / "text"
        path.write_bytes(content)
        return path

    return make


@pytest.mark.parametrize("packed", [TEXT, gzip.compress(TEXT, mtime=0)], ids=["plain", "gzip"])
def test_every_line_is_read_compressed_or_not(packed, given):
    assert list(text_lines(given(packed))) == LINES


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "content, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\n\n\xc2\x85b", ["a\r", "", "\x85b"]),
        ("\ufeffthe first\n\ufeffsecond\n".encode(), ["the first", "\ufeffsecond"]),
        ("\ufeff".encode(), []),
    ],
)
def test_lines_end_at_line_feeds_and_a_byte_order_mark_is_no_text(content, lines, pack, tmp_path):
    (tmp_path / "text").write_bytes(pack(content))
    assert list(text_lines(tmp_path / "text")) == lines


@pytest.mark.parametrize(
    "content, problem",
    [
        *(
            (f"{mark}a\n".encode(code), f"text is {name}; .*iconv -f {name} -t UTF-8")
            for name, code, mark in (
                ("UTF-16", "utf-16", ""),
                ("UTF-16", "utf-16-be", "\ufeff"),
                ("UTF-32", "utf-32", ""),
                ("UTF-32", "utf-32-be", "\ufeff"),
            )
        ),
        (b"a\n\xffb\n", "text: line 2 is not UTF-8: byte 0xff at 1"),
        (gzip.compress(TEXT, mtime=0)[:-20], "text is damaged"),
    ],
)
def test_what_is_no_utf8_is_refused_with_its_place(content, problem, tmp_path):
    (tmp_path / "text").write_bytes(content)
    assert_refused(problem, list, text_lines(tmp_path / "text"))


def test_bytes_that_are_not_utf8_may_be_replaced(tmp_path):
    (tmp_path / "text").write_bytes(b"a\n\xffb\n")
    assert list(text_lines(tmp_path / "text", errors="replace")) == ["a", "\ufffdb"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_long_line_is_refused_before_it_is_in_memory(pack, tmp_path):
    (tmp_path / "text").write_bytes(pack(b"short\n" + b"x" * (40 << 20)))
    lines = text_lines(tmp_path / "text")
    assert next(lines) == "short"
    tracemalloc.start()
    assert_refused("line 2 is longer than 1,048,576 bytes; .*split it", next, lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


def test_the_longest_line_is_still_read(tmp_path):
    (tmp_path / "text").write_bytes(b"12345\n12345\n12345")
    assert list(text_lines(tmp_path / "text", max_line=5)) == ["12345"] * 3
    assert_refused("line 1 is longer than 4 bytes", next, text_lines(tmp_path / "text", max_line=4))


def test_neither_a_file_nor_a_pipe_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(tmp_path / "socket"))
    os.mkfifo(tmp_path / "fifo")  # which nobody writes to: opening it would wait for ever
    for path, kind in (
        (tmp_path / "folder", "a folder"),
        (tmp_path / "socket", "a socket"),
        (tmp_path / "fifo", "a pipe"),
        ("/dev/zero", "a device; - is standard input"),
    ):
        for read in (check_input, lambda path: next(text_lines(path)), lambda p: read_text(p, 9)):
            assert_refused(f"expected a .*file.*; got {kind}", read, path)
    bound.close()
    assert_refused("cannot read .*none: No such file", check_input, tmp_path / "none")


def test_a_small_file_is_read_whole(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress("\ufeffé\r\nb\n".encode()))
    assert read_text(tmp_path / "text", 100) == "é\r\nb\n"


def test_a_small_file_is_bounded_and_no_pipe(tmp_path):
    assert_refused("expected a regular file; got a pipe", read_text, piped(b"x"), 100)
    (tmp_path / "text").write_bytes(gzip.compress(bytes(10_000)))
    assert_refused("expected a file of at most 9,999 bytes", read_text, tmp_path / "text", 9_999)
    (tmp_path / "text").write_bytes(b"a\n\xff")
    assert_refused("line 2 is not UTF-8", read_text, tmp_path / "text", 100)


# ---- out ----


@pytest.mark.parametrize("place", ["missing/file", "text/file"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(place, tmp_path):
    (tmp_path / "text").write_text("mine")
    assert_refused("expected a file in a folder that exists", check_output, tmp_path / place, True)
    assert_refused("expected a file to write; got a folder", check_output, tmp_path, True)


def test_an_output_that_exists_is_kept_unless_asked(tmp_path):
    (tmp_path / "text").write_text("mine")
    problem = "text exists; .* or give --overwrite"
    assert_refused(problem, check_output, tmp_path / "text")
    assert_refused(problem, write_lines, tmp_path / "text", ["x"], overwrite=False)
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


def test_several_files_are_written_or_none(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    problem = "cannot write /dev/full"
    assert_refused(problem, write_files, {first: ["x"], "/dev/full": ["y"]})
    second.write_text("old\n")
    assert_refused("second exists", write_files, {first: ["x"], second: ["y"]}, overwrite=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("second", "old\n")]
    write_files({first: ["x"], second: ["y"]})
    assert (first.read_text(), second.read_text()) == ("x\n", "y\n")


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "target").write_text("old")
    (tmp_path / "link").symlink_to("there/target")
    (tmp_path / "dangling").symlink_to("there/new")
    for name, target in (("link", "target"), ("dangling", "new")):
        check_output(tmp_path / name, overwrite=True)
        write_lines(tmp_path / name, ["x"])
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / target).read_text() == "x\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "dangling", "link", "new", "target", "there"
    ]  # fmt: skip


def test_a_device_or_pipe_is_written_in_place(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "fifo").read_text()))
    ours, terminal = os.openpty()
    reader.start()
    for path in (os.ttyname(terminal), tmp_path / "fifo"):
        mode = os.stat(path).st_mode
        check_output(path)
        write_lines(path, ["x"], overwrite=False)
        assert os.stat(path).st_mode == mode
    reader.join()
    assert found == ["x\n"] and os.read(ours, 9) == b"x\r\n"
    os.close(ours)
    os.close(terminal)
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


@pytest.mark.parametrize("redirected", ["file", "pipe"])
def test_standard_output_is_written_in_place(redirected, tmp_path):
    """Between what is printed before and after, also where it goes into a file."""
    code = (
        "from fairseq_doc.files import *; print('before', flush=True)\n"
        "check_output('/dev/stdout'); write_lines('/dev/stdout', ['x'], overwrite=False); print('after')"
    )
    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=out if redirected == "file" else subprocess.PIPE,
            check=True,
        )
    printed = done.stdout or (tmp_path / "out").read_bytes()
    assert printed == b"before\nx\nafter\n"


def test_permissions_are_the_umasks_or_the_old_files(tmp_path):
    old = os.umask(0o027)
    try:
        write_lines(tmp_path / "new", ["x"])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    write_lines(tmp_path / "new", ["y"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept_unless_asked(links, tmp_path, monkeypatch):
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links")))
    write_lines(tmp_path / "first", ["mine"], overwrite=False)
    with pytest.raises(FairseqDocError, match="text exists"):
        with whole_file(tmp_path / "text", overwrite=False) as file:
            file.write("mine")
            (tmp_path / "text").write_text("another's")
    assert (tmp_path / "text").read_text() == "another's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "text"]


def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path):
    (tmp_path / "text").write_text("old")
    code = (
        "import resource, signal, sys; from fairseq_doc.files import *\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for name in ('text', 'new', '/dev/full'):\n"
        "    try: write_lines(name, ['x' * 60_000] * 3)\n"
        "    except FairseqDocError as error: print(error)\n"
    )
    assert run([sys.executable, "-c", code], tmp_path).splitlines() == [
        "cannot write text: File too large; nothing was changed",
        "cannot write new: File too large; nothing was changed",
        "cannot write /dev/full: No space left on device",
    ]
    assert (tmp_path / "text").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_copy_is_written_as_every_other_file(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 10_000)
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert_refused("cannot read .*none: No such file", copy_file, tmp_path / "none", tmp_path / "b")
    missing = tmp_path / "missing" / "c"
    assert_refused("cannot write .*c: No such file", copy_file, tmp_path / "a", missing)


def test_a_lock_is_one_process_s_and_no_childs(tmp_path):
    path = tmp_path / "lock"
    code = "import sys; from fairseq_doc.files import lock; lock(sys.argv[1], 'taken')"

    def another():
        return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)

    held = lock(path, "taken")
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert another().stderr.strip().endswith("FairseqDocError: taken")
        held.close()
        assert another().returncode == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert_refused(
        "cannot write .*lock: No such file", lock, tmp_path / "missing" / "lock", "taken"
    )


def test_the_file_that_was_read_last_is_known(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n")
    for _ in zip(text_lines(tmp_path / "a"), text_lines(tmp_path / "b"), strict=True):
        assert last_read() == str(tmp_path / "b")
    lines = [text_lines(tmp_path / name) for name in "ab"]
    for number in (0, 1, 0):
        next(lines[number])
        assert last_read() == str(tmp_path / "ab"[number])
    read_text(tmp_path / "b", 9)
    assert last_read() == str(tmp_path / "b")
