"""Optuna's optimisation around one training, which can be resumed after any interruption."""

import contextlib
import math
import shutil
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import MaxTrialsCallback, Study
from optuna.trial import FrozenTrial, Trial, TrialState

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import lock, refuse_links
from fairseq_doc.tuning.command import kinds_of_numbers, read_command
from fairseq_doc.tuning.settings import Options, Settings, duration, short, value_text
from fairseq_doc.tuning.space import Space, TrialSampler, is_inside, read_space, suggest
from fairseq_doc.tuning.storage import (
    FOLDER,
    ORIGIN,
    PROBLEM,
    Tuned,
    as_row,
    best_of,
    load_study,
    open_storage,
    open_study,
    state_of,
    trial_folder,
    value_of,
)
from fairseq_doc.tuning.training import (
    CHECKPOINTS,
    LOCK,
    Interrupted,
    Training,
    interruptible,
)

FAILURES = 3  # consecutive failures that end a tuning


def tune(settings: Options) -> dict[str, Any]:
    """Create, join or resume a study. Returns the result of ``fairseq-doc tune``."""
    words = settings.training or ()
    space = read_space(settings.space or "", kinds_of_numbers(words))
    command = read_command(words, space)
    storage = open_storage(settings.storage, create=True)
    enqueued = [_best_settings(storage, name, space) for name in settings.enqueue or ()]
    tuned = open_study(storage, settings.study, space, command)
    refuse_links(settings.folder)
    if not tuned.study.get_trials() and any(settings.folder.glob("trial-*")):
        raise FairseqDocError(
            f"dir: {settings.folder} holds trials of another study; remove it, or give another "
            "--dir"
        )
    _retry(tuned.study, settings)
    for origin, tried in enqueued:
        tuned.study.enqueue_trial(dict(tried), {ORIGIN: origin}, skip_if_exists=True)
    Tuner(tuned, settings).run()
    trials = tuned.study.get_trials()
    states = [state_of(trial) for trial in trials]
    best, found = best_of(trials, command.maximize), None
    if best is not None:
        line, folder = command.line(best.params), str(trial_folder(settings.folder, best))
        found = {**as_row(best), "command": line, "folder": folder}
    return {
        "study": settings.study,
        "metric": command.metric,
        "complete": states.count("complete") + states.count("diverged"),
        "diverged": states.count("diverged"),
        "failed": states.count("failed"),
        "best": found,
    }


def _best_settings(storage: BaseStorage, name: str, space: Space) -> tuple[str, Settings]:
    """The best trial of the study ``name``, and its settings that are in the space."""
    other = load_study(storage, name)
    best = best_of(other.study.get_trials(), other.command.maximize)
    known = best.params if best is not None else {}
    tried = {option: known[option] for option in space if option in known}
    if best is None or not tried or not all(is_inside(tried[o], space[o]) for o in tried):
        raise FairseqDocError(
            f"--enqueue {shown(name)}: expected a study whose best trial has options of the space "
            f"(--{', --'.join(space)}) with values in it; got {short(known) or 'no best trial'}"
        )
    return f"{name}, trial {best.number}", tried


def _retry(study: Study, settings: Options) -> None:
    """Mark trials whose process was killed as failed, and enqueue them again."""
    running = {t.number: t for t in study.get_trials(states=(TrialState.RUNNING,))}
    for own in set(settings.retry or ()):
        if own not in running:
            known = ", ".join(map(str, running)) or "none"
            raise FairseqDocError(f"--retry: expected a running trial, {known}; got {own}")
        if (folder := trial_folder(settings.folder, running[own])).exists():
            message = f"--retry {own}: expected a killed process; its training still runs"
            lock(folder / LOCK, message).close()
        study.tell(own, state=TrialState.FAIL)
        study.enqueue_trial(running[own].params, running[own].user_attrs)


class Tuner:
    """Runs trials until enough trials of the study are complete."""

    def __init__(self, tuned: Tuned, settings: Options) -> None:
        self._study, self._tuned, self._settings = tuned.study, tuned, settings
        self._study.sampler = TrialSampler(settings)
        self._error: FairseqDocError | None = None
        self._failures = 0  # in a row
        self._busy: set[Path] = set()  # folders in which this process trains

    def run(self) -> None:
        """Tune; another call resumes. Raises if the first training fails, or several in a row."""
        left = self._left()
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        if running and left > 0:
            retry = " ".join(f"--retry {trial.number}" for trial in running)
            self._settings.say(f"still running elsewhere, or killed; to resume them: {retry}")
        with interruptible(1) as (pool, self._ending):  # an event that stops all trainings
            while left > 0 and not self._ending.is_set():
                pool.submit(
                    self._study.optimize,
                    self._objective,
                    n_trials=left,
                    n_jobs=min(self._settings.workers, left),
                    callbacks=[MaxTrialsCallback(self._settings.trials), self._ended],
                ).result()
                left = self._left()
        if self._error is not None:
            raise self._error

    def _left(self) -> int:
        """The number of trials that are still to be completed."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._settings.trials - len(complete)

    def _objective(self, trial: Trial) -> float:
        """Train with a trial's settings, or return the value of an earlier trial with the same
        settings. NaN: the trial has failed."""
        if FOLDER not in trial.user_attrs:
            trial.set_user_attr(FOLDER, trial.number)
        # Not trial.params: an enqueued trial may hold other options.
        settings = {option: suggest(trial, option, v) for option, v in self._tuned.space.items()}
        for other in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if other.params == settings:
                trial.set_user_attr(FOLDER, other.user_attrs.get(FOLDER, other.number))
                return value_of(other)
        folder = trial_folder(self._settings.folder, trial)
        try:
            training = Training(self._tuned.command, settings, folder, bounded=True)
        except BaseException:
            self._ending.set()  # otherwise Optuna waits for the other workers' trainings
            raise
        self._busy.add(folder)
        try:
            return training.run(self._settings.workers, self._ending)
        except Interrupted:
            self._study.enqueue_trial(settings, trial.user_attrs)  # any process may run it
            self._study.stop()
        except (FairseqDocError, OSError) as error:
            trial.set_user_attr(PROBLEM, str(error))
        finally:
            self._busy.discard(folder)
        return math.nan

    def _ended(self, study: Study, trial: FrozenTrial) -> None:
        """After a trial: report it, remove checkpoints, and end the tuning after failures."""
        state = state_of(trial)
        if state == "interrupted":
            return
        trials = study.get_trials(deepcopy=False)
        best = best_of(trials, self._tuned.command.maximize)
        problem = trial.user_attrs.get(PROBLEM)
        result = f"failed: {problem}" if state == "failed" else value_text(value_of(trial))
        took = duration(as_row(trial)["seconds"])
        complete = sum(own.state == TrialState.COMPLETE for own in trials)
        self._settings.say(
            f"trial {trial.number}: {result}, {took}, {short(trial.params)}; {complete} of "
            f"{self._settings.trials} complete" + (f", best {best.value:.4f}" if best else "")
        )
        if self._settings.keep == "best":
            self._remove_checkpoints(trials, best)
        self._failures = self._failures + 1 if state == "failed" else 0
        if self._failures < (FAILURES if complete else 1):
            return
        why = f"{self._failures} trials in a row failed" if complete else "the first trial failed"
        self._error = FairseqDocError(f"{why}: {problem}")
        study.stop()
        self._ending.set()

    def _remove_checkpoints(self, trials: list[FrozenTrial], best: FrozenTrial | None) -> None:
        """Remove the checkpoints of all ended trials except the best one, and except where a retry
        of the trial trains, here or in another process."""
        own = trial_folder(self._settings.folder, best) if best else None
        for trial in trials:
            folder = trial_folder(self._settings.folder, trial)
            ended = state_of(trial) in ("complete", "diverged", "failed")
            # This process's lock would be lost with a second one on the same file.
            if ended and folder != own and folder not in self._busy:
                with contextlib.suppress(FairseqDocError, OSError), lock(folder / LOCK, ""):
                    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
