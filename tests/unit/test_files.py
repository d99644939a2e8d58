import gzip
import io
import os
import stat
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from conftest import assert_refused, run

from fairseq_doc.files import (
    check_input,
    check_output,
    copy_file,
    last_read,
    lock,
    read_text,
    text_lines,
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
            buffer = io.BufferedReader(io.BytesIO(content))
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer))
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
    assert read_text(tmp_path / "text") == content.decode("utf-8-sig")


@pytest.mark.parametrize("read", [lambda path: list(text_lines(path)), read_text])
@pytest.mark.parametrize(
    "content, problem",
    [
        ("a\n".encode("utf-16"), "text is UTF-16; .*iconv -f UTF-16 -t UTF-8"),
        ("\ufeffa\n".encode("utf-16-be"), "text is UTF-16"),
        (b"a\nb\xffc\n", "text: line 2 is not UTF-8: byte 0xff at position 2"),
        (gzip.compress(TEXT, mtime=0)[:-20], "text is damaged"),
    ],
)
def test_other_encodings_are_refused_with_their_place(read, content, problem, tmp_path):
    (tmp_path / "text").write_bytes(content)
    assert_refused(problem, read, tmp_path / "text")


def test_a_line_that_is_too_long_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"12345\n12345\n12345")
    assert list(text_lines(tmp_path / "text", max_line=5)) == ["12345"] * 3
    assert_refused("line 1 is longer than 4 bytes", next, text_lines(tmp_path / "text", max_line=4))


def test_neither_a_file_nor_a_pipe_of_the_shell_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")  # which nobody writes to: opening it would wait for ever
    for name in ("folder", "fifo"):
        for read in (check_input, lambda path: next(text_lines(path)), read_text):
            assert_refused(f"{name}: expected a regular file", read, tmp_path / name)
    assert_refused("cannot read .*none: No such file", check_input, tmp_path / "none")
    for pipe in (piped(b"x"), "-"):
        assert_refused("expected a", check_input, pipe, again=True)


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
    assert (tmp_path / "text").read_text() == "mine"
    write_lines(tmp_path / "other", ["x"], overwrite=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "text"]


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


def test_the_file_that_was_read_last_is_known(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n")
    lines = [text_lines(tmp_path / name) for name in "ab"]
    for number in (0, 1, 0):
        next(lines[number])
        assert last_read() == str(tmp_path / "ab"[number])
    read_text(tmp_path / "b")
    assert last_read() == str(tmp_path / "b")
