"""The tuner: settings from the sampler, a training for each, their values into the study.

Several processes, on several machines, may work on one study. All that they share is the storage.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.tuning import slots as kept
from fairseq_doc.tuning.processes import HEARTBEAT, this_process
from fairseq_doc.tuning.progress import Progress, duration, number
from fairseq_doc.tuning.samplers import STARTUP, make_sampler
from fairseq_doc.tuning.settings import Settings, short
from fairseq_doc.tuning.slots import Slot, best_slot, is_dead, is_one_too_many, slots_of
from fairseq_doc.tuning.storage import Stamp, patiently, trials_of
from fairseq_doc.tuning.training import (
    LOG,
    Outcome,
    Training,
    earlier_outcome,
    remove_checkpoints,
    stop_all,
    threads_for,
)

POLL = 0.1  # seconds between looks at the trainings
IDLE = 2.0  # seconds between looks at the storage while there is nothing to begin
FAILURES = 3  # in a row, after which a tuning ends


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        trials: complete ones of the whole study at the end.
        workers: trainings at once, in this process.
        folder: of the trials.
        sampler: one of ``samplers.NAMES``.
        seed: of the sampler.
        startup: its first trials, which are random.
        keep_all: whether the checkpoints of trials that are not the best stay.
        program: the words that start a training; None finds fairseq-train.
        enqueued: settings of other studies, which are tried before the sampler's.
    """

    trials: int
    workers: int
    folder: Path
    sampler: str = "gp"
    seed: int = 1
    startup: int = STARTUP
    keep_all: bool = False
    program: Sequence[str] | None = None
    enqueued: Sequence["Enqueued"] = ()


@dataclass(frozen=True)
class Enqueued:
    """Settings from another study; the sampler draws those of the space that are missing.

    Attributes:
        origin: which study's trial.
        settings: within the space; a study tries them once.
    """

    origin: str
    settings: Settings

    def tried_in(self, slots: Sequence[Slot]) -> bool:
        """Whether one of the slots has these settings."""
        return any(self.settings.items() <= slot.settings.items() for slot in slots)


@dataclass
class _Running:
    trial: FrozenTrial
    slot: int
    training: Training
    seconds: float = field(default=0.0)  # at the last time stamp


def folder_of(folder: Path, slot: int) -> Path:
    """The folder of a trial."""
    return folder / f"trial-{slot:04d}"


class Tuner:
    """Tunes until enough trials of the study are complete.

    Args:
        study: of Optuna.
        stamp: what it was made with.
        plan: what to do.
        show: the progress.
    """

    def __init__(
        self, study: Study, stamp: Stamp, plan: Plan, show: Progress | None = None
    ) -> None:
        self._study = study
        self._stamp = stamp
        self._plan = plan
        self._show = show or Progress(quiet=True)
        self._storage = study._storage
        self._running: dict[int, _Running] = {}  # by the number of the trial
        self._failures = 0  # in a row
        self._me = this_process()

    def run(self) -> None:
        """Tune. After an interruption the same call goes on.

        Raises:
            FairseqDocError: the first training failed, or several in a row.
        """
        try:
            idle_until = 0.0
            while True:
                if self._collect():
                    idle_until = 0.0
                if time.monotonic() >= idle_until:
                    slots = self._fill()
                    self._show.update(slots, self._stamp.command.maximize)
                    complete = sum(slot.complete for slot in slots)
                    if not self._running and complete >= self._plan.trials:
                        return
                    idle_until = time.monotonic() + IDLE
                time.sleep(POLL)
        except KeyboardInterrupt:
            self._show.line("interrupted: stops the trainings; the same command goes on with them")
            raise
        finally:
            self._stop()

    # The trials

    def _trials(self) -> list[FrozenTrial]:
        return trials_of(self._study, self._stamp.space)

    def _mark(self, trial: FrozenTrial, **attributes: object) -> bool:
        """Set user attributes; whether the trial was still open."""
        try:
            for name, value in attributes.items():
                patiently(self._storage.set_trial_user_attr, trial._trial_id, name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def _close(self, trial: FrozenTrial, why: str, **attributes: object) -> None:
        """Close a trial as failed, unless another process was faster."""
        if self._mark(trial, **{kept.ENDED: why, **attributes}):
            patiently(self._study.tell, trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _recover(self) -> list[FrozenTrial]:
        """The trials, after those whose process is gone are closed."""
        mine, now = set(self._running), time.time()
        trials = self._trials()
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        dead = [trial for trial in running if is_dead(trial, mine, self._me, now)]
        for trial in dead:
            drawn = trial.params.keys() == self._stamp.space.keys()
            self._close(trial, kept.STOPPED if drawn else kept.UNUSED)
        return self._trials() if dead else trials

    def _fill(self) -> list[Slot]:
        """Begin trainings while there are free workers and trials left to begin; the study's slots."""
        while True:
            slots = slots_of(self._recover())
            live = [slot for slot in slots if slot.state != "failed"]
            begun = live[: self._plan.trials]
            interrupted = [slot for slot in begun if slot.state == "interrupted"]
            enough = sum(slot.complete for slot in slots) >= self._plan.trials
            nothing_left = enough or (len(live) >= self._plan.trials and not interrupted)
            free = self._plan.workers > len(self._running)
            waiting = [other for other in self._plan.enqueued if not other.tried_in(slots)]
            known: list[Slot | Enqueued] = [*interrupted, *waiting]
            settings = known[0] if known else None
            if nothing_left or not free or not self._begin(settings):
                return slots

    def _new_trial(self, settings: Slot | Enqueued | None) -> Trial:
        """A running trial that has its owner from the first, with the settings of an interrupted slot or
        of another study, or new ones.

        Optuna's queue of trials is not used: on SQLite two processes can take the same one from it.
        """
        owner: dict[str, object] = {kept.OWNER: self._me, kept.HEARTBEAT_AT: time.time()}
        space, plan = self._stamp.space, self._plan
        begun = create_trial(state=TrialState.RUNNING, user_attrs=owner)
        if isinstance(settings, Slot):
            begun.user_attrs[kept.SLOT] = settings.number
        elif settings is not None:
            begun.user_attrs[kept.ORIGIN] = settings.origin
        if settings is not None:
            begun.params = dict(settings.settings)
            begun.distributions = {name: space[name] for name in settings.settings}
        study_id = self._study._study_id
        made = patiently(self._storage.create_new_trial, study_id, template_trial=begun)
        place = patiently(self._storage.get_trial, made).number
        self._study.sampler = make_sampler(plan.sampler, plan.seed, place, space, plan.startup)
        trial = Trial(self._study, made)
        for name, distribution in space.items():
            patiently(trial._suggest, name, distribution)  # draws what it does not have
        return trial

    def _begin(self, settings: Slot | Enqueued | None) -> bool:
        """Begin the next trial, with these settings or new ones; whether it was needed."""
        own = self._new_trial(settings)
        trials = self._trials()
        trial = next(trial for trial in trials if trial.number == own.number)
        if is_one_too_many(trial, trials, self._plan.trials):
            self._close(trial, kept.UNUSED)
            return False
        slot = kept.slot_number(trial)
        folder = folder_of(self._plan.folder, slot)
        command = self._stamp.command
        training = Training(command, trial.params, folder, self._plan.program)
        now = self._running[trial.number] = _Running(trial, slot, training)
        before = earlier_outcome(folder, command) if slot != trial.number else None
        if before is not None:  # its process died after the training had ended
            self._finish(now, before)
        else:
            training.start(threads_for(self._plan.workers))
        return True

    def _collect(self) -> bool:
        """Store the values of trainings that have ended; whether there were any."""
        ended = False
        for running in list(self._running.values()):
            outcome = running.training.poll()
            if outcome is not None:
                ended = True
                self._finish(running, outcome)
            elif running.training.seconds - running.seconds > HEARTBEAT:
                running.seconds = running.training.seconds
                if not self._mark(running.trial, **_times(running)):
                    # Closed by another process, which took this one for dead, or by another program.
                    stop_all([running.training])
                    del self._running[running.trial.number]
        return ended

    def _finish(self, running: _Running, outcome: Outcome) -> None:
        trial, seconds = running.trial, running.training.seconds
        if outcome.value is None:
            self._close(trial, kept.FAILED, **{kept.PROBLEM: outcome.problem}, **_times(running))
        elif self._mark(trial, **_times(running)):
            patiently(self._study.tell, trial.number, outcome.value, skip_if_finished=True)
        del self._running[trial.number]
        self._say(running.slot, outcome, seconds, trial)
        self._remove_checkpoints()
        if outcome.value is not None:
            self._failures = 0
            return
        self._failures += 1
        where = folder_of(self._plan.folder, running.slot) / LOG
        slots = slots_of(self._trials())
        if not any(slot.complete for slot in slots):
            raise FairseqDocError(
                f"trial {running.slot} failed, and none before it was complete: {outcome.problem} "
                f"({where})"
            )
        if self._failures >= FAILURES:
            raise FairseqDocError(
                f"{FAILURES} trials in a row failed, the last with: {outcome.problem} ({where}); the "
                "same command goes on with other settings"
            )

    def _say(self, slot: int, outcome: Outcome, seconds: float, trial: FrozenTrial) -> None:
        if outcome.value is None:
            result = f"failed: {outcome.problem}"
        else:
            result = f"{self._stamp.command.metric} {number(outcome.value)}"
        self._show.line(f"trial {slot}: {result}, {duration(seconds)}, {short(trial.params)}")

    def _remove_checkpoints(self) -> None:
        """Those of this folder's trials that have ended and are not the best."""
        if self._plan.keep_all:
            return
        slots = slots_of(self._trials())
        best = best_slot(slots, self._stamp.command.maximize)
        for slot in slots:
            if (slot.complete or slot.state == "failed") and slot is not best:
                remove_checkpoints(folder_of(self._plan.folder, slot.number))

    def _stop(self) -> None:
        """End the trainings; those that had not ended by themselves go on at the next call."""
        stop_all([running.training for running in self._running.values()])
        for running in self._running.values():
            with contextlib.suppress(FairseqDocError):  # the storage may be what failed
                self._close(running.trial, kept.STOPPED, **_times(running))
        self._running.clear()


def _times(running: _Running) -> dict[str, float]:
    """The time stamp of a trial, and the seconds of its training."""
    seconds = round(running.training.seconds, 1)
    return {kept.HEARTBEAT_AT: time.time(), kept.SECONDS: seconds}
