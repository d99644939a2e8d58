"""One training: its process, its folder, how it ended, and its value.

FOLDER/command.txt    the command line, quoted for a shell
FOLDER/log.txt        its output; a resumed training appends
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
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.checkpoint_reading import check_file, clear_errors
from fairseq_doc.files import check_input, read_text, write_lines
from fairseq_doc.tuning.command import Command, program_for
from fairseq_doc.tuning.limits import why_not_longer
from fairseq_doc.tuning.settings import Settings, differences, duration, number, option_words

COMMAND, LOG, CHECKPOINTS = "command.txt", "log.txt", "checkpoints"
POLL = 0.1  # seconds between looks at a training
STOP_AFTER = 20.0  # seconds between a request to end and the end
MAX_SEEDS = 1_000
_PART = 1 << 16  # bytes of the first part of a log, with the dictionary's size, and of the last one
_CONTINUED = "fairseq_doc: continued with larger limits"  # a line in a log
_END = 2_000  # characters at the end of a log in which a finished training reports that it is done
_DONE = re.compile(r"\bdone training in [\d.]+ seconds")
_DIVERGED = re.compile(
    r"FloatingPointError: gradients are Nan/Inf|Minimum loss scale reached|"
    r"is not finite: .*diverged\?"
)
_DICTIONARY = re.compile(r"\bdictionary: ([\d,]{1,15}) (?:types|words)")


class Interrupted(Exception):
    """A training was stopped early."""


@contextlib.contextmanager
def interruptible(workers: int) -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Threads, and an event that is set when the body raises, for example by Ctrl-C, so that the
    trainings in the threads end."""
    ending = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool, ending
        except BaseException as error:
            if not isinstance(error, Exception):
                print("stopping the trainings; the same command resumes them", file=sys.stderr)
            ending.set()
            raise


@dataclass(frozen=True)
class Outcome:
    """The best validation of a training, infinite if it diverged, None if it failed; ``problem`` is
    then the last line of its log. ``seconds`` it took; 0 if it had ended before."""

    value: float | None
    problem: str = ""
    seconds: float = 0.0


class Training:
    """A training in a folder of its own. An interrupted one is resumed; one that has finished or
    diverged is not repeated. If ``bounded``, it also counts as diverged if its loss is worse than
    that of a uniform distribution, which can happen in a very short training."""

    def __init__(
        self, command: Command, settings: Settings, folder: Path, bounded: bool = True
    ) -> None:
        self.folder, self.log = folder, folder / LOG
        self._command, self._bounded = command, bounded
        self._settings = [*command.words[1:], *option_words(settings)]
        for path in (folder / COMMAND, self.log):
            if os.path.lexists(path):
                check_input(path, again=True)  # a pipe would block

    def check_folder(self) -> None:
        """Refuse a folder that holds a training with other options, except for smaller limits. The
        folder may have been moved."""
        words = self._earlier_words()
        reason = why_not_longer(self._command.args, self._settings, words)
        if reason is not None and (others := differences(self._settings, words)):
            raise FairseqDocError(
                f"{self.folder}: expected a training with {others[0]}; got one with {others[1]}: "
                f"{reason}{'; ' if reason else ''}remove the folder, or give another --dir"
            )

    def _earlier_words(self) -> list[str]:
        """The command line in the folder; this training's if the folder has none."""
        try:
            return shlex.split(read_text(self.folder / COMMAND))[1:-2]
        except ValueError:  # missing or damaged
            return self._settings

    @property
    def _is_longer(self) -> bool:
        """Whether the folder's training had smaller limits."""
        return differences(self._settings, self._earlier_words()) is not None

    def run(self, workers: int, ending: threading.Event) -> Outcome:
        """Train to the end or until ``ending`` is set. Unless OMP_NUM_THREADS is set, the cores are
        shared by ``workers`` trainings.

        Raises:
            Interrupted: ``ending`` was set.
        """
        if ending.is_set():
            raise Interrupted
        if (earlier := self.earlier_outcome()) is not None:
            return earlier
        began, process = time.monotonic(), self._start(workers)
        try:
            while process.poll() is None:
                if ending.wait(POLL):
                    raise Interrupted
        finally:
            _stop(process)
        return replace(self.outcome(process.returncode), seconds=time.monotonic() - began)

    def _start(self, workers: int) -> subprocess.Popen:
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        words = [*self._settings, "--save-dir", str(self.folder / CHECKPOINTS)]
        # Linux only: the training is killed if this process is killed.
        launcher = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._is_longer:  # the log must no longer say that the training is done
                with open(self.log, "a") as log_file:
                    print(_CONTINUED, file=log_file)
            write_lines(self.folder / COMMAND, [shlex.join([self._command.words[0], *words])])
            with open(self.log, "ab") as log:
                return subprocess.Popen(
                    [*launcher, *program_for(self._command.words), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={"OMP_NUM_THREADS": str(threads), **os.environ},
                    start_new_session=True,  # Ctrl-C reaches only this process, which stops it
                )
        except OSError as error:
            raise FairseqDocError(f"cannot start {self.folder}: {error}") from None

    def outcome(self, status: int) -> Outcome:
        """How the training ended, from its exit status, log and checkpoints."""
        worst = -math.inf if self._command.maximize else math.inf
        if status == 0:
            try:
                value = best_value(self.folder / CHECKPOINTS, self._command.maximize)
            except FairseqDocError as error:
                return Outcome(None, str(error))
            return Outcome(
                worst if math.isnan(value) or self._is_worse_than_uniform(value) else value
            )
        tail = _part(self.log)
        if _DIVERGED.search(tail):
            return Outcome(worst)
        if status < 0:
            with contextlib.suppress(ValueError):
                return Outcome(None, f"killed by {signal.Signals(-status).name}")
        lines = [line.strip() for line in re.split(r"[\r\n]", tail) if line.strip()]
        return Outcome(None, lines[-1][:500] if lines else f"exit status {status}, no output")

    def earlier_outcome(self) -> Outcome | None:
        """How the training ended in an earlier process, from its log; None if it was interrupted,
        failed or had smaller limits."""
        tail = _part(self.log).rpartition(_CONTINUED)[2]
        finished = _DONE.search(tail[-_END:]) is not None and not self._is_longer
        if not finished and not _DIVERGED.search(tail):
            return None
        outcome = self.outcome(0 if finished else 1)
        return None if outcome.value is None else outcome

    def _is_worse_than_uniform(self, value: float) -> bool:
        """Whether a loss in bits, or a perplexity, is worse than that of a uniform distribution."""
        found = _DICTIONARY.findall(_part(self.log, first=True))
        sizes = [int(size.replace(",", "") or 0) for size in found]
        bounds = {"loss": math.log2, "nll_loss": math.log2, "ppl": float}
        ours = self._bounded and not self._command.maximize
        bound = bounds.get(self._command.metric) if ours else None
        return bool(sizes and bound and value > bound(max(2, *sizes)))


def folder_of(folder: Path, name: str, seed: int) -> Path:
    """The folder of a training of :func:`train_seeds`."""
    return folder / f"{name}-seed{seed}"


def train_seeds(
    commands: Mapping[str, Command],
    seeds: int,
    workers: int,
    folder: Path,
    remark: Callable[[str], None],
    bounded: bool = False,
) -> dict[str, dict[int, float]]:
    """Train each command with the seeds 1 to ``seeds``, which also replace ``{seed}`` in it.
    Returns {name: {seed: the best validation, infinite if it diverged}}. Finished trainings are not
    repeated; a failure raises ``FairseqDocError``. ``remark`` receives a line for each training
    that ends; ``bounded`` as in :class:`Training`."""
    if seeds > MAX_SEEDS:
        raise FairseqDocError(f"--seeds: expected at most {MAX_SEEDS:,}; got {seeds:,}")
    trainings = {}
    for seed in range(1, seeds + 1):
        for name, command in commands.items():
            words = tuple(word.replace("{seed}", str(seed)) for word in command.words)
            place = folder_of(folder, name, seed)
            training = Training(replace(command, words=words), {"seed": seed}, place, bounded)
            training.check_folder()
            trainings[name, seed] = training
    values: dict[str, dict[int, float]] = {name: {} for name in commands}
    with interruptible(workers) as (pool, ending):
        runs = {pool.submit(own.run, workers, ending): key for key, own in trainings.items()}
        for run in as_completed(runs):
            (name, seed), outcome = runs[run], run.result()
            if outcome.value is None:
                raise FairseqDocError(
                    f"{name}, seed {seed}: {outcome.problem} ({trainings[name, seed].log})"
                )
            values[name][seed] = outcome.value
            took = duration(outcome.seconds) if outcome.seconds else "done before"
            metric = commands[name].metric
            remark(f"{name}, seed {seed}: {metric} {number(outcome.value)}, {took}")
    return {name: dict(sorted(own.items())) for name, own in values.items()}


def _stop(process: subprocess.Popen) -> None:
    """Terminate a training and the processes that it started; kill it if it does not end."""
    for request, seconds in ((signal.SIGTERM, STOP_AFTER), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, request)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)


def best_value(folder: Path, maximize: bool) -> float:
    """The best validation in a folder's checkpoints, which may be NaN. No weights are read."""
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
            f"{folder} has no checkpoint with a best validation: did the training validate and "
            "save?"
        )
    numbers = [value for value in bests if not math.isnan(value)]
    return (max if maximize else min)(numbers, default=math.nan)


def _part(path: Path, first: bool = False) -> str:
    """The last part of a log, or the first; "" without a log."""
    try:
        check_input(path, again=True)
        with open(path, "rb") as file:
            file.seek(0 if first else max(0, os.path.getsize(path) - _PART))
            return file.read(_PART).decode("utf-8", "replace")
    except (OSError, FairseqDocError):
        return ""
