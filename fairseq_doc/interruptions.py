"""Ctrl-C and SIGTERM end a command in one line, and its temporary files are removed.

fairseq prints a traceback after Ctrl-C, and a SIGTERM, as cluster schedulers send it, ends the process
inside whatever it does. This file imports neither torch nor fairseq, so that a command is ready for both while
it imports them.
"""

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path


def runs_a_command(argv: list[str]) -> bool:
    """Whether a command line starts ``fairseq-...`` or a module of ``fairseq_cli``."""
    program = Path(argv[0]) if argv else Path()
    return program.name.startswith("fairseq-") or program.parent.name == "fairseq_cli"


def apply() -> None:
    """Install the hook and the handler where this process runs one of fairseq's commands."""
    if not runs_a_command(sys.argv):
        return
    print_interruptions_in_one_line()
    handled = signal.getsignal(signal.SIGTERM)
    if handled == signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        _end_on_sigterm()


def print_interruptions_in_one_line() -> None:
    """After Ctrl-C. The exit status stays that of SIGINT."""
    previous = sys.excepthook

    def hook(kind, error, traceback):
        if issubclass(kind, KeyboardInterrupt):
            print(_message("interrupted"), file=sys.stderr)
        else:
            previous(kind, error, traceback)

    sys.excepthook = hook


def _end_on_sigterm():
    """Leave by an exception, so that files are closed and removed. The exit status is 143, as a shell
    gives it for the signal."""
    process = os.getpid()

    def handler(number, frame):
        if os.getpid() != process:  # a child, such as one that loads data
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        for child in multiprocessing.active_children():  # Python waits for them at its exit
            child.terminate()
        os.write(2, f"{_message('terminated')}\n".encode())  # print may be at work already
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, handler)


def _message(ended):
    remedy = ""
    if "train" in Path(sys.argv[0]).name:
        remedy = "; the same command continues from the last checkpoint"
    return f"fairseq_doc: {ended}{remedy}"
