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
from dataclasses import replace
from pathlib import Path

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.checkpoint_reading import check_file, clear_errors
from fairseq_doc.files import lock, read_text, write_lines
from fairseq_doc.tuning.command import Command, program_for
from fairseq_doc.tuning.limits import why_not_longer
from fairseq_doc.tuning.settings import Settings, differences, duration, option_words, value_text

COMMAND, LOG, CHECKPOINTS, LOCK = "command.txt", "log.txt", "checkpoints", "lock"
POLL = 0.1  # seconds between looks at a training
STOP_AFTER = 20.0  # seconds between SIGTERM and SIGKILL
MAX_SEEDS = 1_000
# Bytes that are read from a log: at its start, for the dictionary's size, and at its end.
_PART = 1 << 16
_CONTINUED = "fairseq_doc: continued"  # a line in a log
_DONE = re.compile(r"\bdone training in [\d.]+ seconds")
_DIVERGED = re.compile(
    r"FloatingPointError: gradients are Nan/Inf|Minimum loss scale reached|"
    r"is not finite: .*diverged\?"
)
_DICTIONARY = re.compile(r"\bdictionary: ([\d,]+) (?:types|words)")


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


class Training:
    """A training in a folder of its own, which may have been moved. An interrupted one is resumed;
    one that has finished or diverged is not repeated. A folder that holds a training with other
    options, except for smaller limits, is refused. If ``bounded``, a training also counts as
    diverged if its loss is worse than that of a uniform distribution, which can happen in a very
    short one."""

    def __init__(self, command: Command, settings: Settings, folder: Path, bounded: bool) -> None:
        self.folder, self.log = folder, folder / LOG
        self._command, self._bounded = command, bounded
        self._words = [*command.words[1:], *option_words(settings)]
        words = self._earlier_words()
        reason = why_not_longer(command.args, self._words, words)
        if reason is not None and (others := differences(self._words, words)):
            raise FairseqDocError(
                f"{folder}: expected a training with {others[0]}; got one with {others[1]}: "
                f"{reason}{'; ' if reason else ''}remove the folder, or give another --dir"
            )

    def _earlier_words(self) -> list[str]:
        """The command line in the folder; this training's if the folder has none."""
        path = self.folder / COMMAND
        if not path.exists():
            return self._words
        return shlex.split(read_text(path))[1:-2]  # without the program and --save-dir FOLDER

    def run(self, workers: int, ending: threading.Event) -> float:
        """Train to the end or until ``ending`` is set. Returns the best validation score, infinite
        if the training diverged. Unless OMP_NUM_THREADS is set, ``workers`` trainings share the
        cores.

        Raises:
            Interrupted: ``ending`` was set.
            FairseqDocError: the training failed, or another process trains in the folder.
        """
        if ending.is_set():
            raise Interrupted
        if (earlier := self._value()) is not None:
            return earlier
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / LOCK, f"another process trains in {self.folder}"):
            process = self._start(workers)
            try:
                while process.poll() is None:
                    if ending.wait(POLL):
                        raise Interrupted
            finally:
                _stop(process)
        value = self._value(process.returncode)
        if value is None:
            raise FairseqDocError(f"{self.log}: {self._problem(process.returncode)}")
        return value

    def _start(self, workers: int) -> subprocess.Popen:
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        words = [*self._words, "--save-dir", str(self.folder / CHECKPOINTS)]
        # Linux only: the training is killed if this process is killed.
        launcher = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with open(self.log, "a") as log:
            if log.tell():  # whatever the log says about the end of the training is outdated
                print(_CONTINUED, file=log, flush=True)
            write_lines(self.folder / COMMAND, [shlex.join([self._command.words[0], *words])])
            return subprocess.Popen(
                [*launcher, *program_for(self._command.words), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": str(threads), **os.environ},
                start_new_session=True,  # Ctrl-C reaches only this process, which stops it
            )

    def _value(self, status: int | None = None) -> float | None:
        """The value of a training that ended, in an earlier process if ``status`` is None. None if
        it was interrupted, failed or had smaller limits, or if its checkpoints are gone."""
        worst = -math.inf if self._command.maximize else math.inf
        log, checkpoints = self._log_since_start(), self.folder / CHECKPOINTS
        if _DIVERGED.search(log):
            return worst
        if status is None:
            is_same = differences(self._words, self._earlier_words()) is None
            done = is_same and _DONE.search(log) and any(checkpoints.glob("*.pt"))
            status = 0 if done else 1
        if status != 0:
            return None
        value = best_value(checkpoints, self._command.maximize)
        return worst if math.isnan(value) or self._is_worse_than_uniform(value) else value

    def _problem(self, status: int) -> str:
        """Why a training failed: a signal, or the last line of its log."""
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        lines = re.split(r"[\r\n]+", self._log_since_start().strip())
        return lines[-1][:500] or f"exit status {status}, no output"

    def _log_since_start(self) -> str:
        """The end of the log of the last process."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(max(0, self.log.stat().st_size - _PART))
            return file.read().decode("utf-8", "replace").rpartition(_CONTINUED)[2]

    def _is_worse_than_uniform(self, value: float) -> bool:
        """Whether a loss in bits, or a perplexity, is worse than that of a uniform distribution. A
        ``loss`` with ``--sentence-avg`` is that of a sentence, which has no bound."""
        metric = self._command.metric
        bound = {"loss": math.log2, "nll_loss": math.log2, "ppl": float}.get(metric)
        by_sentence = metric == "loss" and "--sentence-avg" in self._words
        if not self._bounded or self._command.maximize or bound is None or by_sentence:
            return False
        with open(self.log, "rb") as file:
            found = _DICTIONARY.findall(file.read(_PART).decode("utf-8", "replace"))
        sizes = [int(size.replace(",", "")) for size in found]
        return bool(sizes) and value > bound(max(sizes))


def seed_folder(folder: Path, name: str, seed: int) -> Path:
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
    Returns {name: {seed: the best validation score, infinite if it diverged}}. Finished trainings
    are not repeated; a failure raises ``FairseqDocError``. ``remark`` receives a line for each
    training that ends; ``bounded`` as in :class:`Training`."""
    trainings = {}
    for seed in range(1, seeds + 1):
        for name, command in commands.items():
            words = tuple(word.replace("{seed}", str(seed)) for word in command.words)
            place = seed_folder(folder, name, seed)
            own = replace(command, words=words)
            trainings[name, seed] = Training(own, {"seed": seed}, place, bounded)
    values: dict[str, dict[int, float]] = {name: {} for name in commands}

    def train(name: str, seed: int) -> None:
        began = time.monotonic()
        values[name][seed] = trainings[name, seed].run(workers, ending)
        result = f"{commands[name].metric} {value_text(values[name][seed])}"
        remark(f"{name}, seed {seed}: {result}, {duration(time.monotonic() - began)}")

    with interruptible(workers) as (pool, ending):
        for run in as_completed([pool.submit(train, *key) for key in trainings]):
            run.result()
    return {name: dict(sorted(own.items())) for name, own in values.items()}


def _stop(process: subprocess.Popen) -> None:
    """Terminate a training and the processes that it started; kill it if it does not end."""
    for request, seconds in ((signal.SIGTERM, STOP_AFTER), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, request)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)


def best_value(folder: Path, maximize: bool) -> float:
    """The best validation score in a folder's checkpoints, which may be NaN. No weights are
    read."""
    bests = []
    for path in (folder / "checkpoint_last.pt", folder / "checkpoint_best.pt"):
        if path.exists():
            check_file(path)
            with clear_errors(path):
                state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
                bests.append(state["extra_state"].get("best"))
    bests = [best for best in bests if best is not None]
    if not bests:
        raise FairseqDocError(
            f"{folder} has no checkpoint with a best validation score: did the training validate "
            "and save?"
        )
    numbers = [float(value) for value in bests if not math.isnan(value)]
    return (max if maximize else min)(numbers, default=math.nan)
