"""The tuner: draw settings, train, store the value. Its processes share the storage alone."""

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.tuning import slots as kept
from fairseq_doc.tuning.command import read_command
from fairseq_doc.tuning.progress import Progress
from fairseq_doc.tuning.settings import Options, Settings, duration, number, short
from fairseq_doc.tuning.slots import HEARTBEAT, Slot, best_slot, slots_of
from fairseq_doc.tuning.space import Space, is_inside, make_sampler, read_space
from fairseq_doc.tuning.storage import (
    Stamp,
    claim_folder,
    open_storage,
    open_study,
    read_slots,
    trials_of,
)
from fairseq_doc.tuning.training import CHECKPOINTS, POLL, Outcome, Training, stop_all

IDLE = 2.0  # seconds between looks at the storage while there is nothing to begin
FAILURES = 3  # in a row, after which a tuning ends


def tune(settings: Options) -> dict[str, Any]:
    """Begin, join or continue a study; the result of ``fairseq-doc tune``."""
    space = read_space(settings.space or "")
    command = read_command(settings.training or (), space)
    storage = open_storage(settings.storage, create=True)
    enqueued = dict(_best_of(storage, name, settings, space) for name in settings.enqueue or ())
    study, stamp = open_study(storage, settings.study, space, command)
    claim_folder(settings.folder, stamp)
    slots = slots_of(trials_of(study, space))
    complete = sum(slot.complete for slot in slots)
    needed = complete + len(not_tried(enqueued, slots))
    if needed > settings.trials:
        raise FairseqDocError(
            f"--enqueue: expected --trials {needed} or more, for {complete} complete trials and "
            f"the settings to try; got {settings.trials}"
        )
    with contextlib.closing(Progress(settings.trials, complete, settings.quiet)) as show:
        Tuner(study, stamp, settings, show, enqueued).run()
    slots = slots_of(trials_of(study, space))
    best, found = best_slot(slots, command.maximize), None
    if best is not None:
        line = stamp.command.line(best.settings)
        folder = str(folder_of(settings.folder, best.number))
        found = {**best.as_json(), "command": line, "folder": folder}
    return {
        "study": settings.study,
        "metric": command.metric,
        "complete": sum(slot.complete for slot in slots),
        "diverged": sum(slot.state == "diverged" for slot in slots),
        "failed": sum(slot.state == "failed" for slot in slots),
        "best": found,
    }


def _best_of(
    storage: BaseStorage, name: str, settings: Options, space: Space
) -> tuple[str, Settings]:
    """The best trial of the study ``name``, and those of its settings that the space has."""
    if name == settings.study:
        raise FairseqDocError(f"--enqueue: expected another study than {shown(name)} itself")
    stamp, slots = read_slots(storage, name)
    best = best_slot(slots, stamp.command.maximize)
    known = best.settings if best is not None else {}
    tried = {option: known[option] for option in space if option in known}
    if best is None or not tried or not all(is_inside(tried[o], space[o]) for o in tried):
        raise FairseqDocError(
            f"--enqueue {shown(name)}: expected a study whose best trial has options of the space, "
            f"--{', --'.join(space)}, with values inside it; got {short(known) or 'no best trial'}"
        )
    return f"{name}, trial {best.number} ({stamp.study_id})", tried


def not_tried(enqueued: Mapping[str, Settings], slots: Sequence[Slot]) -> list[str]:
    """Those of the enqueued settings that no slot has."""
    tried = [slot.settings.items() for slot in slots]
    return [
        name for name, own in enqueued.items() if not any(own.items() <= items for items in tried)
    ]


def folder_of(folder: Path, slot: int) -> Path:
    """The folder of a trial."""
    return folder / f"trial-{slot:04d}"


def _times(training: Training) -> dict[str, float]:
    return {kept.HEARTBEAT_AT: time.time(), kept.SECONDS: round(training.seconds, 1)}


class Tuner:
    """Tunes until enough trials are complete; tries ``enqueued``, {origin: settings}, first."""

    def __init__(
        self,
        study: Study,
        stamp: Stamp,
        settings: Options,
        show: Progress,
        enqueued: Mapping[str, Settings] | None = None,
    ) -> None:
        self._study, self._stamp, self._settings = study, stamp, settings
        self._show, self._enqueued = show, enqueued or {}
        self._storage = study._storage
        self._running: dict[int, tuple[FrozenTrial, Training]] = {}  # by the trial's number
        self._failures = 0  # in a row
        self._me = kept.this_process()

    def run(self) -> None:
        """Tune; a further call continues. Raises if the first training, or several in a row,
        fail."""
        try:
            idle_until = 0.0
            while True:
                if self._collect() or time.monotonic() >= idle_until:
                    slots = self._fill()
                    self._show.update(slots, self._stamp.command.maximize)
                    complete = sum(slot.complete for slot in slots)
                    if not self._running and complete >= self._settings.trials:
                        return
                    idle_until = time.monotonic() + IDLE
                time.sleep(POLL)
        except (KeyboardInterrupt, SystemExit):
            self._show.line("interrupted: stops the trainings; the same command goes on with them")
            raise
        finally:
            self._stop()

    def _trials(self) -> list[FrozenTrial]:
        return trials_of(self._study, self._stamp.space)

    def _mark(self, trial: FrozenTrial, **attributes: object) -> bool:
        """Set user attributes; whether the trial was still open."""
        try:
            for name, value in attributes.items():
                self._storage.set_trial_user_attr(trial._trial_id, name, value)
        except UpdateFinishedTrialError:
            return False
        return True

    def _close(self, trial: FrozenTrial, value: float | None, **attributes: object) -> None:
        """Close a trial, as failed without a value, unless another process was faster."""
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        if self._mark(trial, **attributes):
            with contextlib.suppress(UpdateFinishedTrialError):
                self._study.tell(trial.number, value, state, skip_if_finished=True)

    def _recover(self) -> list[FrozenTrial]:
        """The trials, after those whose process is gone are closed."""
        mine, now = set(self._running), time.time()
        trials = self._trials()
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        dead = [trial for trial in running if kept.is_dead(trial, mine, self._me, now)]
        for trial in dead:
            drawn = trial.params.keys() == self._stamp.space.keys()
            self._close(trial, None, **{kept.ENDED: kept.STOPPED if drawn else kept.UNUSED})
        return self._trials() if dead else trials

    def _fill(self) -> list[Slot]:
        """Begin trainings while workers are free and trials are left; the study's slots."""
        wanted = self._settings.trials
        while True:
            slots = slots_of(self._recover())
            live = [slot for slot in slots if slot.state != "failed"]
            interrupted = [slot for slot in live[:wanted] if slot.state == "interrupted"]
            enough = sum(slot.complete for slot in slots) >= wanted
            nothing_left = enough or (len(live) >= wanted and not interrupted)
            free = self._settings.workers > len(self._running)
            known: list[Slot | str] = [*interrupted, *not_tried(self._enqueued, slots)]
            if nothing_left or not free or not self._begin(known[0] if known else None):
                return slots

    def _new_trial(self, source: Slot | str | None) -> Trial:
        """A running trial, owned from the first, with settings of an interrupted slot or of another
        study's trial, or new ones. Optuna's queue is not used: on SQLite two processes can take one
        trial from it."""
        space = self._stamp.space
        settings: Settings = {}
        attributes = {kept.OWNER: self._me, kept.HEARTBEAT_AT: time.time()}
        if isinstance(source, Slot):
            settings, attributes[kept.SLOT] = source.settings, source.number
        elif source is not None:
            settings, attributes[kept.ORIGIN] = self._enqueued[source], source
        begun = create_trial(
            state=TrialState.RUNNING,
            params=dict(settings),
            distributions={name: space[name] for name in settings},
            user_attrs=attributes,
        )
        made = self._storage.create_new_trial(self._study._study_id, template_trial=begun)
        own = self._storage.get_trial(made).number
        place = kept.slots_begun(trial for trial in self._trials() if trial.number < own)
        self._study.sampler = make_sampler(self._settings, place, space)
        trial = Trial(self._study, made)
        for name, distribution in space.items():
            trial._suggest(name, distribution)  # draws what it does not have
        return trial

    def _begin(self, source: Slot | str | None) -> bool:
        """Begin a trial from ``source``; whether it was needed."""
        own = self._new_trial(source)
        trials = self._trials()
        trial = next(trial for trial in trials if trial.number == own.number)
        if kept.is_one_too_many(trial, trials, self._settings.trials):
            self._close(trial, None, **{kept.ENDED: kept.UNUSED})
            return False
        slot = kept.slot_number(trial)
        folder = folder_of(self._settings.folder, slot)
        training = Training(self._stamp.command, trial.params, folder)
        self._running[trial.number] = trial, training
        training.start(self._settings.workers, again=slot != trial.number)
        return True

    def _collect(self) -> bool:
        """Store the values of ended trainings; whether there were any."""
        ended = False
        for trial, training in list(self._running.values()):
            outcome = training.poll()
            if outcome is not None:
                ended = True
                self._finish(trial, training, outcome)
            elif training.seconds - training.stamped > HEARTBEAT:
                training.stamped = training.seconds
                if not self._mark(trial, **_times(training)):
                    # Closed by another process, which took this one for dead, or by a program.
                    stop_all([training])
                    del self._running[trial.number]
        return ended

    def _finish(self, trial: FrozenTrial, training: Training, outcome: Outcome) -> None:
        """Close an ended trial; remove the checkpoints of all ended trials except the best."""
        slot, failed = kept.slot_number(trial), outcome.value is None
        why = {kept.ENDED: kept.FAILED, kept.PROBLEM: outcome.problem} if failed else {}
        took = duration(training.seconds)
        self._close(trial, outcome.value, **why, **_times(training))
        del self._running[trial.number]
        result = f"failed: {outcome.problem}"
        if outcome.value is not None:
            result = f"{self._stamp.command.metric} {number(outcome.value)}"
        self._show.line(f"trial {slot}: {result}, {took}, {short(trial.params)}")
        slots = slots_of(self._trials())
        best = best_slot(slots, self._stamp.command.maximize)
        for other in slots if self._settings.keep == "best" else ():
            if (other.complete or other.state == "failed") and other is not best:
                folder = folder_of(self._settings.folder, other.number)
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # no target of a link
        self._failures = self._failures + 1 if failed else 0
        if failed and not any(other.complete for other in slots):
            raise FairseqDocError(
                f"trial {slot} failed, and none before it was complete: {outcome.problem} "
                f"({training.log})"
            )
        if self._failures >= FAILURES:
            raise FairseqDocError(
                f"{FAILURES} trials in a row failed, the last with: {outcome.problem} "
                f"({training.log}); the same command goes on with other settings"
            )

    def _stop(self) -> None:
        """End the trainings; unfinished ones continue at the next call."""
        stop_all([training for _, training in self._running.values()])
        for trial, training in self._running.values():
            with contextlib.suppress(FairseqDocError):  # the storage may be what failed
                self._close(trial, None, **{kept.ENDED: kept.STOPPED}, **_times(training))
        self._running.clear()
