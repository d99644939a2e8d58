"""A command that is interrupted says so in one line, and its temporary files are removed."""

import multiprocessing
import os
import signal
import sys
import time

import pytest

from fairseq_doc import interruptions
from fairseq_doc.files import whole_file


@pytest.fixture
def command(monkeypatch):
    """This process as ``fairseq-train``, with the handlers of a process that has none."""
    handled = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", ["/env/bin/fairseq-train"])
    yield
    signal.signal(signal.SIGTERM, handled)


def test_sigterm_leaves_by_an_exception_and_removes_the_unfinished_file(command, tmp_path, capfd):
    interruptions.apply()
    with pytest.raises(SystemExit) as ended, whole_file(tmp_path / "a.pt", binary=True) as file:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []
    message = "fairseq_doc: terminated; the same command continues from the last checkpoint\n"
    assert capfd.readouterr() == ("", message)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # a second one ends it at once


def test_sigterm_ends_the_processes_that_python_would_wait_for(command):
    """As fairseq starts them, one a GPU."""
    interruptions.apply()
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(100,))
    child.start()
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    child.join(30)
    assert child.exitcode == -signal.SIGTERM


def test_a_child_ends_without_a_word(command, capfd):
    interruptions.apply()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "program, message",
    [
        ("fairseq-train", "fairseq_doc: interrupted; the same command continues from the last"),
        ("fairseq-generate", "fairseq_doc: interrupted\n"),
    ],
)
def test_ctrl_c_is_one_line(command, monkeypatch, capsys, program, message):
    passed = []
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys, "excepthook", lambda *args: passed.append(args))
    interruptions.apply()
    error = KeyboardInterrupt()
    sys.excepthook(KeyboardInterrupt, error, None)
    printed, said = capsys.readouterr()
    assert printed == "" and said.startswith(message) and said.count("\n") == 1
    sys.excepthook(OSError, OSError(), None)
    assert [kind for kind, _, _ in passed] == [OSError]


def test_other_programs_keep_their_handlers(command, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/programs/train.py"])
    before = sys.excepthook
    interruptions.apply()
    assert sys.excepthook is before and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_that_is_there_is_kept(command):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    interruptions.apply()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
