"""The training of one trial again, with other seeds: how much its value varies (Melis et al., section 7.2)."""

import contextlib
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import lock
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.progress import Silent, duration, number
from fairseq_doc.tuning.slots import Slot
from fairseq_doc.tuning.training import LOG, Outcome, Training, earlier_outcome, stop_all
from fairseq_doc.tuning.tuner import POLL, threads_for


@dataclass(frozen=True)
class Rerun:
    """A training with one seed.

    Attributes:
        seed: of the training.
        value: of the metric; infinite where it diverged.
        folder: of its log and its checkpoints, which stay.
    """

    seed: int
    value: float
    folder: Path


@dataclass(frozen=True)
class Spread:
    """Of finite values.

    Attributes:
        deviation: the standard deviation with n - 1; None of one value.
    """

    mean: float
    deviation: float | None
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of the finite values; None where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    deviation = statistics.stdev(finite) if len(finite) > 1 else None
    return Spread(statistics.mean(finite), deviation, min(finite), max(finite))


def rerun(
    command: Command,
    slot: Slot,
    seeds: int,
    workers: int,
    folder: Path,
    program: Sequence[str] | None = None,
    show: Silent | None = None,
) -> list[Rerun]:
    """Train with the settings of a trial and the seeds 1 to ``seeds``. Finished trainings are not
    repeated, interrupted ones go on.

    Args:
        command: the study's, perhaps with further options.
        slot: the trial.
        seeds: how many.
        workers: trainings at once.
        folder: of the study's trials; a training gets ``rerun-0007-seed1`` there.
        program: the words that start a training; None finds fairseq-train.
        show: the progress.

    Raises:
        FairseqDocError: a training failed, a folder has one with other options, or another process is
            at work on this trial.
    """
    show = show or Silent()
    found: dict[int, Rerun] = {}
    trainings = {}
    for seed in range(1, seeds + 1):
        own = folder / f"rerun-{slot.number:04d}-seed{seed}"
        trainings[seed] = Training(command, {**slot.settings, "seed": seed}, own, program)
    left = list(trainings)
    running: dict[int, Training] = {}

    def finish(seed: int, outcome: Outcome, seconds: float | None) -> None:
        own = trainings[seed].folder
        if outcome.value is None:
            raise FairseqDocError(f"seed {seed} failed: {outcome.problem} ({own / LOG})")
        found[seed] = Rerun(seed, outcome.value, own)
        took = "done before" if seconds is None else duration(seconds)
        show.line(f"seed {seed}: {command.metric} {number(outcome.value)}, {took}")

    with contextlib.closing(
        lock(
            folder / f"rerun-{slot.number:04d}.lock",
            f"another process trains trial {slot.number} again: wait until it has ended",
        )
    ):
        for training in trainings.values():
            training.check_folder()
        try:
            while left or running:
                while left and len(running) < workers:
                    seed = left.pop(0)
                    before = earlier_outcome(trainings[seed].folder, command)
                    if before is not None:
                        finish(seed, before, None)
                        continue
                    running[seed] = trainings[seed]
                    running[seed].start(threads_for(workers))
                for seed, training in list(running.items()):
                    outcome = training.poll()
                    if outcome is not None:
                        del running[seed]
                        finish(seed, outcome, training.seconds)
                time.sleep(POLL)
        finally:
            stop_all(list(running.values()))
    return [found[seed] for seed in sorted(found)]
