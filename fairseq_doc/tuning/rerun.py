"""The training of one trial again, with other seeds: how much its value varies (Melis et al., section 7.2)."""

import contextlib
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import lock
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.progress import Progress, duration, number
from fairseq_doc.tuning.slots import Slot
from fairseq_doc.tuning.training import (
    LOG,
    Outcome,
    Training,
    earlier_outcome,
    stop_all,
    threads_for,
)
from fairseq_doc.tuning.tuner import POLL


def rerun(
    command: Command,
    slot: Slot,
    seeds: int,
    workers: int,
    folder: Path,
    program: Sequence[str] | None = None,
    show: Progress | None = None,
) -> dict[int, float]:
    """Train with the settings of a trial and the seeds 1 to ``seeds``. Finished trainings are not
    repeated, interrupted ones go on.

    Args:
        command: the study's, perhaps with further options.
        slot: the trial.
        seeds: how many.
        workers: trainings at once.
        folder: of the study's trials; a training gets :func:`folder_of` there.
        program: the words that start a training; None finds fairseq-train.
        show: the progress.

    Returns:
        {seed: value}; infinite where the training diverged.

    Raises:
        FairseqDocError: a training failed, a folder has one with other options, or another process is
            at work on this trial.
    """
    show = show or Progress(quiet=True)
    found: dict[int, float] = {}
    trainings = {
        seed: Training(
            command, {**slot.settings, "seed": seed}, folder_of(folder, slot, seed), program
        )
        for seed in range(1, seeds + 1)
    }

    def finish(seed: int, outcome: Outcome, took: str) -> None:
        if outcome.value is None:
            log = trainings[seed].folder / LOG
            raise FairseqDocError(f"seed {seed} failed: {outcome.problem} ({log})")
        found[seed] = outcome.value
        show.line(f"seed {seed}: {command.metric} {number(outcome.value)}, {took}")

    left = list(trainings)
    running: dict[int, Training] = {}
    busy = f"another process trains trial {slot.number} again: wait until it has ended"
    with contextlib.closing(lock(folder / f"rerun-{slot.number:04d}.lock", busy)):
        for training in trainings.values():
            training.check_folder()
        try:
            while left or running:
                while left and len(running) < workers:
                    seed = left.pop(0)
                    before = earlier_outcome(trainings[seed].folder, command)
                    if before is not None:
                        finish(seed, before, "done before")
                        continue
                    running[seed] = trainings[seed]
                    running[seed].start(threads_for(workers))
                for seed, training in list(running.items()):
                    outcome = training.poll()
                    if outcome is not None:
                        del running[seed]
                        finish(seed, outcome, duration(training.seconds))
                time.sleep(POLL)
        finally:
            stop_all(list(running.values()))
    return {seed: found[seed] for seed in trainings}


def folder_of(folder: Path, slot: Slot, seed: int) -> Path:
    """The folder of a trial's training with a seed."""
    return folder / f"rerun-{slot.number:04d}-seed{seed}"


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """``mean``, ``deviation`` with n - 1, ``low`` and ``high`` of the finite values; None where there
    are too few."""
    finite = [value for value in values if math.isfinite(value)]
    return {
        "mean": statistics.mean(finite) if finite else None,
        "deviation": statistics.stdev(finite) if len(finite) > 1 else None,
        "low": min(finite, default=None),
        "high": max(finite, default=None),
    }
