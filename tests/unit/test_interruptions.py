"""A command that is ended by SIGTERM says so in one line, and its temporary files are removed."""

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
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    handled = {number: signal.signal(number, handler) for number, handler in usual.items()}
    monkeypatch.setattr(sys, "argv", ["/env/bin/fairseq-train"])
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    yield
    for number, handler in handled.items():
        signal.signal(number, handler)


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


class EndsItself:
    def __init__(self, number):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    "number, ends", [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_in_a_destructor_is_not_lost(command, number, ends):
    interruptions.apply()
    with pytest.raises(ends):
        EndsItself(number)
        time.sleep(30)
        pytest.fail("the signal was lost")


def test_sigterm_ends_the_processes_that_python_would_wait_for(command):
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
    "program, handled",
    [("/programs/train.py", signal.SIG_DFL), ("/env/bin/fairseq-train", signal.SIG_IGN)],
    ids=["another program", "a handler that is there"],
)
def test_what_is_not_ours_is_kept(command, monkeypatch, program, handled):
    monkeypatch.setattr(sys, "argv", [program])
    signal.signal(signal.SIGTERM, handled)
    interruptions.apply()
    assert signal.getsignal(signal.SIGTERM) == handled
