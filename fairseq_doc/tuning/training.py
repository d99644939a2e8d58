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
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.checkpoint_reading import check_file, clear_errors
from fairseq_doc.files import write_lines
from fairseq_doc.tuning import launch
from fairseq_doc.tuning.command import Command, program_for
from fairseq_doc.tuning.limits import why_not_longer
from fairseq_doc.tuning.settings import Settings, differences, duration, number, option_words

COMMAND, LOG, CHECKPOINTS = "command.txt", "log.txt", "checkpoints"
POLL = 0.1  # seconds between looks at the trainings
STOP_AFTER = 20.0  # seconds between a request to end and the end
_TAIL = 1 << 16  # bytes of a log that say how a training ended
_CONTINUED = "fairseq_doc: continued with larger limits"  # a line of a log
_END = 2_000  # characters of a log, in which a finished training says so
_DONE = re.compile(r"\bdone training in [\d.]+ seconds")
_DIVERGED = re.compile(
    r"FloatingPointError: gradients are Nan/Inf|Minimum loss scale reached|"
    r"is not finite: .*diverged\?"
)


@dataclass(frozen=True)
class Outcome:
    """The best validation, infinite if it diverged; None if it failed, and the log's last line."""

    value: float | None
    problem: str = ""


class Training:
    """A training in a folder of its own. One that was interrupted there is continued."""

    def __init__(self, command: Command, settings: Settings, folder: Path) -> None:
        self.folder = folder
        self._command = command
        self._settings = [*command.words[1:], *option_words(settings)]
        self._process: subprocess.Popen | None = None
        self._earlier: Outcome | None = None
        self._started = 0.0
        self.stamped = 0.0  # seconds at the last time stamp, of the tuner

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def seconds(self) -> float:
        """Since it was started here; 0 before."""
        return 0.0 if self._process is None else time.monotonic() - self._started

    def check_folder(self) -> None:
        """Refuse a folder with a training of other options, except for smaller limits; the folder
        may have been moved."""
        words = self._earlier_words()
        reason = why_not_longer(self._command.args, self._settings, words)
        if reason is not None and (others := differences(self._settings, words)):
            raise FairseqDocError(
                f"{self.folder}: expected a training with {others[0]}; got one with {others[1]}: "
                f"{reason}{'; ' if reason else ''}remove the folder, or give another --dir"
            )

    def _earlier_words(self) -> list[str]:
        """The words of the folder's command, or this one's if it has none."""
        try:
            return shlex.split((self.folder / COMMAND).read_text())[1:-2]
        except (OSError, ValueError):
            return self._settings

    @property
    def _is_longer(self) -> bool:
        """Whether the folder's training had smaller limits."""
        return differences(self._settings, self._earlier_words()) is not None

    def start(self, workers: int, again: bool = True) -> None:
        """Start the process, one of ``workers`` that share the cores unless OMP_NUM_THREADS is set.
        It is killed when the thread that starts it ends. Nothing starts ``again`` that finished in
        an earlier process."""
        self._earlier = self.earlier_outcome() if again else None
        if self._earlier is not None:
            return
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        words = [*self._settings, "--save-dir", str(self.folder / CHECKPOINTS)]
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._is_longer:  # the log must not say any more that the training is done
                with open(self.log, "a") as log_file:
                    print(_CONTINUED, file=log_file)
            write_lines(self.folder / COMMAND, [shlex.join([self._command.words[0], *words])])
            with open(self.log, "ab") as log:
                self._process = subprocess.Popen(
                    [*launcher, *program_for(self._command.words), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={"OMP_NUM_THREADS": str(threads), **os.environ},
                    start_new_session=True,  # Ctrl-C reaches this process alone, which stops it
                )
        except OSError as error:
            raise FairseqDocError(f"cannot write {self.folder}: {error.strerror}") from None
        self._started = time.monotonic()

    def poll(self) -> Outcome | None:
        """How it ended; None while it runs."""
        if self._process is None:
            return self._earlier
        status = self._process.poll()
        return None if status is None else self.outcome(status)

    def outcome(self, status: int) -> Outcome:
        """How it ended, by its exit status, its log and its checkpoints."""
        worst = -math.inf if self._command.maximize else math.inf
        if status == 0:
            try:
                value = best_value(self.folder / CHECKPOINTS, self._command.maximize)
            except FairseqDocError as error:
                return Outcome(None, str(error))
            return Outcome(worst if math.isnan(value) else value)
        tail = _tail(self.log)
        if _DIVERGED.search(tail):
            return Outcome(worst)
        if status < 0:
            with contextlib.suppress(ValueError):
                return Outcome(None, f"it was ended by {signal.Signals(-status).name}")
        lines = [line.strip() for line in re.split(r"[\r\n]", tail) if line.strip()]
        return Outcome(None, lines[-1][:500] if lines else f"exit status {status}, nothing printed")

    def earlier_outcome(self) -> Outcome | None:
        """How it ended in an earlier process, by its log; None if that was interrupted, failed or
        had smaller limits."""
        tail = _tail(self.log).rpartition(_CONTINUED)[2]
        finished = _DONE.search(tail[-_END:]) is not None and not self._is_longer
        if not finished and not _DIVERGED.search(tail):
            return None
        outcome = self.outcome(0 if finished else 1)
        return None if outcome.value is None else outcome


def folder_of(folder: Path, name: str, seed: int) -> Path:
    """The folder of a training of :func:`train_seeds`."""
    return folder / f"{name}-seed{seed}"


def train_seeds(
    commands: Mapping[str, Command],
    seeds: int,
    workers: int,
    folder: Path,
    remark: Callable[[str], None],
) -> dict[str, dict[int, float]]:
    """{name: {seed: the best validation, infinite if it diverged}} of each command, trained with
    the seeds 1 to ``seeds``, which also replace ``{seed}`` in its words. Finished trainings are not
    repeated; a failure is a ``FairseqDocError``. ``remark`` takes a line for each that ends."""
    left = []
    for seed in range(1, seeds + 1):
        for name, command in commands.items():
            words = tuple(word.replace("{seed}", str(seed)) for word in command.words)
            place = folder_of(folder, name, seed)
            training = Training(replace(command, words=words), {"seed": seed}, place)
            training.check_folder()
            left.append((name, seed, training))
    values: dict[str, dict[int, float]] = {name: {} for name in commands}
    running: list[tuple[str, int, Training]] = []
    try:
        while left or running:
            while left and len(running) < workers:
                running.append(left.pop(0))
                running[-1][2].start(workers)
            for name, seed, training in list(running):
                outcome = training.poll()
                if outcome is None:
                    continue
                running.remove((name, seed, training))
                if outcome.value is None:
                    raise FairseqDocError(
                        f"{name}, seed {seed}: {outcome.problem} ({training.log})"
                    )
                values[name][seed] = outcome.value
                took = duration(training.seconds) if training.seconds else "done before"
                metric = commands[name].metric
                remark(f"{name}, seed {seed}: {metric} {number(outcome.value)}, {took}")
            time.sleep(POLL)
    finally:
        stop_all([training for *_, training in running])
    return {name: dict(sorted(own.items())) for name, own in values.items()}


def stop_all(trainings: Sequence[Training]) -> None:
    """Ask all to end, with the processes that they started; kill what has not after ``STOP_AFTER``
    seconds, or at a second signal."""
    processes = [training._process for training in trainings if training._process is not None]
    deadline = time.monotonic() + STOP_AFTER
    try:
        for process in processes:
            _send(process, signal.SIGTERM)
        for process in processes:
            process.wait(max(0.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
        for process in processes:
            _send(process, signal.SIGKILL)
            process.wait()


def _send(process: subprocess.Popen, number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def best_value(folder: Path, maximize: bool) -> float:
    """The best validation in a folder's checkpoints, perhaps nan. No weights are read."""
    bests = []
    for path in (folder / "checkpoint_last.pt", folder / "checkpoint_best.pt"):
        if not path.exists():
            continue
        check_file(path)
        with clear_errors(path):
            state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            best = state["extra_state"].get("best")
            if best is not None:
                bests.append(float(best))
    if not bests:
        raise FairseqDocError(
            f"{folder}: expected a checkpoint with the best validation so far; got none: did the "
            "training validate and save?"
        )
    numbers = [value for value in bests if not math.isnan(value)]
    return (max if maximize else min)(numbers, default=math.nan)


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
