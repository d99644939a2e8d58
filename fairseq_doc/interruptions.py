"""SIGTERM, which cluster schedulers send, ends a command with one line and no temporary files.
Neither it nor Ctrl-C is lost.

This file imports neither torch nor fairseq, so that it works while a command imports them."""

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


def how_it_ended(ended: str) -> str:
    """The line that says how a command ended and how to continue it."""
    trains = "train" in Path(sys.argv[0]).name
    remedy = "; the same command continues from the last checkpoint" if trains else ""
    return f"fairseq_doc: {ended}{remedy}"


def apply() -> None:
    """Unless the command has a handler for SIGTERM, make it exit by an exception, so that files are
    closed and removed. The exit status is 143, as a shell reports this signal. In a destructor or a
    weak reference's callback Python drops that exception and Ctrl-C's; then the signal is repeated."""
    handled = signal.getsignal(signal.SIGTERM)
    if not runs_a_command(sys.argv) or handled != signal.SIG_DFL:
        return
    process = os.getpid()

    def handler(number, frame):
        if os.getpid() != process:  # a child, such as one that loads data
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second SIGTERM kills the process
        for child in multiprocessing.active_children():  # Python waits for them at its exit
            child.terminate()
        os.write(2, f"{how_it_ended('terminated')}\n".encode())  # print may have been interrupted
        raise SystemExit(128 + number)

    def repeat(dropped, show=sys.unraisablehook):
        error, number = dropped.exc_value, signal.SIGINT
        if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            number = signal.SIGTERM
            signal.signal(number, handler)
        elif not isinstance(error, KeyboardInterrupt) or os.getpid() != process:
            return show(dropped)
        threading.Timer(0.01, os.kill, [process, number]).start()

    signal.signal(signal.SIGTERM, handler)
    sys.unraisablehook = repeat
