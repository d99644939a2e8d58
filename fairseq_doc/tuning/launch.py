"""Start a program that is killed with its parent: ``python -I -S launch.py PARENT PROGRAM ...``.
The options skip what site-packages would import."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of Linux; it survives the exec below

if __name__ == "__main__":
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew
        sys.exit(128 + signal.SIGKILL)
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.exit(f"cannot start {program[0]}: {error.strerror}")
