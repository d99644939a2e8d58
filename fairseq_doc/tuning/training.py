"""One training: its process, its folder, how it ended, and its value.

FOLDER/command.txt    the command line, quoted for a shell
FOLDER/log.txt        what it printed; a continued training appends
FOLDER/checkpoints/   its --save-dir
"""

import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.checkpoint_reading import check_file
from fairseq_doc.files import write_lines
from fairseq_doc.tuning import launch
from fairseq_doc.tuning.command import Command, program_for
from fairseq_doc.tuning.settings import Settings, option_words

COMMAND = "command.txt"
LOG = "log.txt"
CHECKPOINTS = "checkpoints"
STOP_AFTER = 20.0  # seconds between a request to end and the end
_TAIL = 1 << 16  # bytes of a log that say how a training ended
_END = 2_000  # characters of a log, in which a finished training says so
_DONE = re.compile(r"\bdone training in [\d.]+ seconds")
_DIVERGED = re.compile(
    r"FloatingPointError: gradients are Nan/Inf|Minimum loss scale reached|is not finite: .*diverged\?"
)


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        value: the best validation of the metric; the worst, infinite, where it diverged; None where it
            failed.
        problem: the last line of its log where it failed, else "".
    """

    value: float | None
    problem: str = ""


class Training:
    """A training in a folder of its own.

    Args:
        command: without the settings.
        settings: of this training.
        folder: its own; what an interrupted training left there is continued.
        program: the words that start it; None finds fairseq-train.
    """

    def __init__(
        self,
        command: Command,
        settings: Settings,
        folder: Path,
        program: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        self._command = command
        self._program = list(program or program_for(command.words))
        save_dir = ["--save-dir", str(folder / CHECKPOINTS)]
        self.words = [*command.words[1:], *option_words(settings), *save_dir]
        self._process: subprocess.Popen | None = None
        self._log: IO[bytes] | None = None
        self._started = 0.0

    def check_folder(self) -> None:
        """Let the folder be new, or of a training with the same words; the folder's own name may differ.

        Raises:
            FairseqDocError: a training with other words is there.
        """
        try:
            words = shlex.split((self.folder / COMMAND).read_text())[1:]
        except (OSError, ValueError):
            return
        own, other = _options(self.words[:-2]), _options(words[:-2])
        if set(own) != set(other):
            expected = " ".join(option for option in own if option not in other)
            got = " ".join(option for option in other if option not in own)
            raise FairseqDocError(
                f"{self.folder}: expected a training with {expected or 'no more options'}; got one with "
                f"{got or 'none of them'}: remove the folder, or give another --dir"
            )

    @property
    def seconds(self) -> float:
        """Since it was started here; 0 before."""
        return 0.0 if self._process is None else time.monotonic() - self._started

    def start(self, threads: int) -> None:
        """Start the process. It ends with this one, and the thread that starts it must live on.

        Args:
            threads: of the process, where OMP_NUM_THREADS is not set.

        Raises:
            FairseqDocError: the folder cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._log = open(self.folder / LOG, "ab")  # noqa: SIM115
        except OSError as error:
            raise FairseqDocError(f"cannot write {self.folder}: {error.strerror}") from None
        write_lines(self.folder / COMMAND, [shlex.join([self._command.words[0], *self.words])])
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*launcher, *self._program, *self.words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the training
        )
        self._started = time.monotonic()

    def poll(self) -> Outcome | None:
        """How it ended; None while it runs."""
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            return None
        self._close()
        return outcome_of(self.folder, self._command, status)

    def ask_to_end(self) -> None:
        """Ask the process, and those that it started, to end."""
        self._signal(signal.SIGTERM)

    def end(self, seconds: float = STOP_AFTER) -> None:
        """Wait for its end so long, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, seconds))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._close()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()


def threads_for(workers: int) -> int:
    """Threads of one of so many trainings at once."""
    return max(1, len(os.sched_getaffinity(0)) // workers)


def stop_all(trainings: Sequence[Training]) -> None:
    """End all of them, at once."""
    for training in trainings:
        training.ask_to_end()
    deadline = time.monotonic() + STOP_AFTER
    for training in trainings:
        training.end(deadline - time.monotonic())


def outcome_of(folder: Path, command: Command, status: int) -> Outcome:
    """How the training in a folder ended, by its exit status, its log and its checkpoints."""
    worst = -math.inf if command.maximize else math.inf
    if status == 0:
        try:
            value = best_value(folder / CHECKPOINTS, command.maximize)
        except FairseqDocError as error:
            return Outcome(None, str(error))
        return Outcome(worst if math.isnan(value) else value)
    tail = _tail(folder / LOG)
    if _DIVERGED.search(tail):
        return Outcome(worst)
    if status < 0:
        with contextlib.suppress(ValueError):
            return Outcome(None, f"it was ended by {signal.Signals(-status).name}")
    lines = [line.strip() for line in re.split(r"[\r\n]", tail) if line.strip()]
    return Outcome(None, lines[-1][:500] if lines else f"exit status {status}, nothing printed")


def earlier_outcome(folder: Path, command: Command) -> Outcome | None:
    """How a training ended whose process is gone, by its log; None where it was interrupted."""
    tail = _tail(folder / LOG)
    finished = _DONE.search(tail[-_END:]) is not None
    if not finished and not _DIVERGED.search(tail):
        return None
    outcome = outcome_of(folder, command, 0 if finished else 1)
    return None if outcome.value is None else outcome


def best_value(folder: Path, maximize: bool) -> float:
    """The best validation that fairseq kept in the checkpoints of a folder. No weights are read.

    Raises:
        FairseqDocError: no checkpoint, a damaged one, or one without a validation.
    """
    found = []
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        path = folder / name
        if not path.exists():
            continue
        check_file(path)
        try:
            state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            best = state["extra_state"].get("best")
            if best is not None:
                found.append(float(best))
        except Exception as error:  # a damaged file fails anywhere in its reader
            gist = " ".join(str(error).split())[:200]
            raise FairseqDocError(
                f"{path}: expected a checkpoint of fairseq-train; got another or a damaged file ({gist})"
            ) from None
    if not found:
        raise FairseqDocError(
            f"{folder}: expected a checkpoint with the best validation so far; got none: did the "
            "training validate and save?"
        )
    numbers = [value for value in found if not math.isnan(value)]
    if not numbers:
        return math.nan
    return max(numbers) if maximize else min(numbers)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a training that has ended. They are not followed if they are a link."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _options(words: Sequence[str]) -> list[str]:
    """Each option with its values, quoted for a shell."""
    options: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            options.append([])
        options[-1].append(word)
    return [shlex.join(option) for option in options]


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
