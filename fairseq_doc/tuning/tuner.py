"""Optuna's optimisation around one training, which can be resumed after any interruption."""

import contextlib
import shutil
import sys
import threading
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import MaxTrialsCallback, Study
from optuna.trial import FrozenTrial, Trial, TrialState

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.tuning.command import kinds_of_numbers, read_command
from fairseq_doc.tuning.settings import Options, Settings, duration, number, short
from fairseq_doc.tuning.space import Space, TrialSampler, is_inside, read_space, suggest
from fairseq_doc.tuning.storage import (
    FOLDER,
    ORIGIN,
    PROBLEM,
    Stamp,
    as_row,
    best_of,
    claim_folder,
    folder_of,
    load_study,
    open_storage,
    open_study,
    state_of,
    value_of,
)
from fairseq_doc.tuning.training import CHECKPOINTS, LOG, Interrupted, Training, interruptible

FAILURES = 3  # consecutive failures that end a tuning


def tune(settings: Options) -> dict[str, Any]:
    """Create, join or resume a study. Returns the result of ``fairseq-doc tune``."""
    words = settings.training or ()
    space = read_space(settings.space or "", kinds_of_numbers(words))
    command = read_command(words, space)
    storage = open_storage(settings.storage, create=True)
    enqueued = [_best_settings(storage, name, settings, space) for name in settings.enqueue or ()]
    study, stamp = open_study(storage, settings.study, space, command)
    claim_folder(settings.folder, stamp)
    _retry(study, settings.retry or ())
    for origin, tried in enqueued:
        study.enqueue_trial(dict(tried), {ORIGIN: origin}, skip_if_exists=True)
    tuner = Tuner(study, stamp, settings)
    tuner.run()
    trials = study.get_trials()
    states = [state_of(trial) for trial in trials]
    best, found = best_of(trials, command.maximize), None
    if best is not None:
        line, folder = command.line(best.params), str(folder_of(settings.folder, best))
        found = {**as_row(best), "command": line, "folder": folder}
    return {
        "study": settings.study,
        "metric": command.metric,
        "complete": states.count("complete") + states.count("diverged"),
        "diverged": states.count("diverged"),
        "failed": states.count("failed"),
        "best": found,
    }


def _best_settings(
    storage: BaseStorage, name: str, settings: Options, space: Space
) -> tuple[str, Settings]:
    """The best trial of the study ``name``, and its settings that are in the space."""
    if name == settings.study:
        raise FairseqDocError(f"--enqueue: expected a study other than {shown(name)} itself")
    study, stamp = load_study(storage, name)
    best = best_of(study.get_trials(), stamp.command.maximize)
    known = best.params if best is not None else {}
    tried = {option: known[option] for option in space if option in known}
    if best is None or not tried or not all(is_inside(tried[o], space[o]) for o in tried):
        raise FairseqDocError(
            f"--enqueue {shown(name)}: expected a study whose best trial has options of the space "
            f"(--{', --'.join(space)}) with values in it; got {short(known) or 'no best trial'}"
        )
    return f"{name}, trial {best.number}", tried


def _retry(study: Study, numbers: Any) -> None:
    """Mark trials as failed whose process was killed, and enqueue them again."""
    running = {t.number: t for t in study.get_trials(states=(TrialState.RUNNING,))}
    for own in numbers:
        if own not in running:
            known = ", ".join(map(str, running)) or "none"
            raise FairseqDocError(f"--retry: expected a running trial, {known}; got {own}")
    for own in set(numbers):
        study.tell(own, state=TrialState.FAIL)
        study.enqueue_trial(running[own].params, running[own].user_attrs)


class TrainingFailed(Exception):
    """A training ended without a value."""


class Tuner:
    """Runs trials until enough trials of the study are complete."""

    def __init__(self, study: Study, stamp: Stamp, settings: Options) -> None:
        self._study, self._stamp, self._settings = study, stamp, settings
        self._maximize = stamp.command.maximize
        study.sampler = TrialSampler(settings)
        self._ending = threading.Event()  # set to stop all trainings
        self._lock = threading.Lock()  # for what follows, in the threads of several workers
        self._error: Exception | None = None
        self._failures = 0  # in a row

    def run(self) -> None:
        """Tune; another call resumes. Raises if the first training fails, or several in a row."""
        wanted, workers = self._settings.trials, self._settings.workers
        left = self._left()
        running = [trial.number for trial in self._study.get_trials(states=(TrialState.RUNNING,))]
        if running and left > 0:
            retry = " ".join(f"--retry {own}" for own in running)
            self._settings.say(f"still running elsewhere, or killed; to resume them: {retry}")
        with interruptible(1) as (pool, self._ending):
            while left > 0 and not self._ending.is_set():
                with contextlib.suppress(Interrupted):
                    pool.submit(
                        self._study.optimize,
                        self._objective,
                        n_trials=left,
                        n_jobs=min(workers, left),
                        catch=(TrainingFailed,),
                        callbacks=[MaxTrialsCallback(wanted), self._ended],
                        show_progress_bar=sys.stderr.isatty() and not self._settings.quiet,
                    ).result()
                left = self._left()
        if self._error is not None:
            raise self._error

    def _left(self) -> int:
        """The number of trials that are still to be completed."""
        trials = self._study.get_trials(deepcopy=False)
        complete = sum(trial.state == TrialState.COMPLETE for trial in trials)
        queued = [t for t in trials if t.state == TrialState.WAITING and ORIGIN in t.user_attrs]
        needed, wanted = complete + len(queued), self._settings.trials
        if self._settings.enqueue and needed > wanted:
            raise FairseqDocError(
                f"--enqueue needs --trials {needed} or more, for {complete} complete trials and the "
                f"enqueued ones; got {wanted}"
            )
        return wanted - complete

    def _objective(self, trial: Trial) -> float:
        try:
            return self._value(trial)
        except Exception as error:
            if not isinstance(error, Interrupted | TrainingFailed):
                self._end(error)
            raise

    def _end(self, error: Exception) -> None:
        """Stop all trainings, then raise this error."""
        self._error = self._error or error
        self._ending.set()

    def _value(self, trial: Trial) -> float:
        """Train with a trial's settings, or return the value of an earlier trial with the same."""
        if FOLDER not in trial.user_attrs:
            trial.set_user_attr(FOLDER, trial.number)
        # Not trial.params: an enqueued trial may be a stranger's and hold other options.
        settings = {option: suggest(trial, option, v) for option, v in self._stamp.space.items()}
        folder = folder_of(self._settings.folder, trial)
        for other in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if other.params == settings:
                trial.set_user_attr(FOLDER, other.user_attrs.get(FOLDER, other.number))
                return value_of(other)
        try:
            training = Training(self._stamp.command, settings, folder)
            outcome = training.run(self._settings.workers, self._ending)
        except Interrupted:
            self._study.enqueue_trial(settings, trial.user_attrs)  # any process may run it
            raise
        if outcome.value is None:
            trial.set_user_attr(PROBLEM, outcome.problem)
            raise TrainingFailed
        return outcome.value

    def _ended(self, study: Study, trial: FrozenTrial) -> None:
        """After a trial: report it, remove checkpoints, and end the tuning after failures."""
        trials, state = study.get_trials(deepcopy=False), state_of(trial)
        best, folder = best_of(trials, self._maximize), folder_of(self._settings.folder, trial)
        problem = trial.user_attrs.get(PROBLEM)
        result = f"failed: {problem}" if state == "failed" else number(value_of(trial))
        took = duration(trial.duration.total_seconds()) if trial.duration else ""
        complete = sum(own.state == TrialState.COMPLETE for own in trials)
        self._settings.say(
            f"trial {trial.number}: {result}, {took}, {short(trial.params)}; {complete} of "
            f"{self._settings.trials} complete" + (f", best {best.value:.4f}" if best else "")
        )
        with self._lock:
            if self._settings.keep == "best":
                self._remove_checkpoints(trials, best)
            self._failures = self._failures + 1 if state == "failed" else 0
            if state == "failed" and complete == 0:
                why = f"trial {trial.number} failed before any trial was complete"
            elif self._failures >= FAILURES:
                why = f"{FAILURES} trials in a row failed; the same command tries others; the last"
            else:
                return
            study.stop()
            self._end(FairseqDocError(f"{why}: {problem} ({folder / LOG})"))

    def _remove_checkpoints(self, trials: list[FrozenTrial], best: FrozenTrial | None) -> None:
        """Remove the checkpoints of all ended trials except the best one."""
        own = folder_of(self._settings.folder, best) if best else None
        for trial in trials:
            folder = folder_of(self._settings.folder, trial)
            if state_of(trial) in ("complete", "diverged", "failed") and folder != own:
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # does not follow links
