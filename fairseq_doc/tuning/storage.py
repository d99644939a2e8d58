"""Studies in Optuna's storages, each with the settings that it was created with."""

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import (
    BaseStorage,
    JournalStorage,
    RDBStorage,
    RetryHeartbeatStaleTrialCallback,
)
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, check_output
from fairseq_doc.tuning.command import PROGRAM, Command
from fairseq_doc.tuning.settings import differences, option_words
from fairseq_doc.tuning.space import Space, as_json, parse_space

STAMP = "fairseq_doc"  # the user attribute of a study: its space and command
HEARTBEAT = 60  # seconds between the heartbeats of a running trial in a database
STALE = 300  # seconds without a heartbeat after which a trial's process counts as killed

# User attributes of a trial
FOLDER = "slot"  # the number of its folder, that of its first attempt; named as in version 0.5.0
ORIGIN = "origin"  # the trial of another study that its settings come from
PROBLEM = "problem"  # the last line of the log of a failed training


@dataclass(frozen=True)
class Tuned:
    """A study, and the space and command that it was created with, which are stored in it."""

    study: Study
    space: Space
    command: Command

    def words(self) -> list[str]:
        """The command, without its program, and the space."""
        space = {option: json.dumps(values) for option, values in as_json(self.space).items()}
        return [*self.command.words[1:], *option_words(space)]


def state_of(trial: FrozenTrial) -> str:
    """``complete``; ``diverged`` (complete with the worst value); ``failed``; ``interrupted`` (to
    be resumed as another trial); ``running``; or ``waiting``."""
    if trial.state == TrialState.COMPLETE:
        return "complete" if math.isfinite(value_of(trial)) else "diverged"
    if trial.state == TrialState.FAIL:
        return "failed" if PROBLEM in trial.user_attrs else "interrupted"
    return trial.state.name.lower()


def finite(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that are complete and did not diverge."""
    return [trial for trial in trials if state_of(trial) == "complete"]


def best_of(trials: Iterable[FrozenTrial], maximize: bool) -> FrozenTrial | None:
    """The trial with the best finite value, the first among equals."""
    sign = -1 if maximize else 1
    return min(finite(trials), key=lambda trial: sign * value_of(trial), default=None)


def value_of(trial: FrozenTrial) -> float:
    """The value of a complete trial."""
    assert trial.value is not None
    return trial.value


def trial_folder(folder: Path, trial: Any) -> Path:
    """The folder of a trial."""
    return folder / f"trial-{trial.user_attrs.get(FOLDER, trial.number):04d}"


def as_row(trial: FrozenTrial) -> dict[str, Any]:
    """A trial's row in a report; ``seconds`` are those of its last attempt."""
    state = state_of(trial)
    return {
        "trial": trial.number,
        "state": state,
        "value": trial.value if state == "complete" else None,
        "seconds": round(trial.duration.total_seconds(), 1) if trial.duration else 0.0,
        "origin": trial.user_attrs.get(ORIGIN),
        "settings": trial.params,
        "problem": trial.user_attrs.get(PROBLEM, ""),
    }


def silence() -> None:
    """Turn off Optuna's log lines and warnings."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_default_handler()
    warnings.filterwarnings("ignore", module="optuna")
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str, create: bool) -> BaseStorage:
    """Open a storage; with ``create``, create its file if necessary."""
    is_journal = url.startswith("journal:///") or url.endswith(".journal")
    if is_journal or url.startswith("sqlite:///"):
        path = url.removeprefix("journal:///").removeprefix("sqlite:///")
        if create:
            check_output(path, overwrite=True)
        else:
            check_input(path)
    try:
        if url in ("sqlite://", "sqlite:///:memory:"):
            raise ValueError("a database in memory would be lost")
        return JournalStorage(JournalFileBackend(path)) if is_journal else _open_database(url)
    except Exception as error:  # raised by Optuna, sqlalchemy or a driver
        raise FairseqDocError(
            "storage: expected sqlite:///FILE, FILE.journal, or postgresql://... or mysql://... "
            f"with its Python driver; got {shown(url.rpartition('@')[2])}: "
            f"{' '.join(str(error.__cause__ or error).split())[:300]}"
        ) from error


def _open_database(url: str) -> RDBStorage:
    is_sqlite = url.startswith("sqlite:")
    storage = RDBStorage(
        url,
        {"connect_args": {"timeout": 60, "isolation_level": None}} if is_sqlite else {},
        heartbeat_interval=HEARTBEAT,
        grace_period=STALE,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    if is_sqlite:  # lock before Optuna reads that a trial is waiting: two workers could take it
        event.listen(storage.engine, "begin", lambda link: link.exec_driver_sql("BEGIN IMMEDIATE"))
    return storage


def load_study(storage: BaseStorage, name: str) -> Tuned:
    """An existing study."""
    names = optuna.get_all_study_names(storage)
    if name not in names:
        known = ", ".join(map(shown, names[:10])) or "none"
        raise FairseqDocError(
            f"study: expected one of the studies in the storage, {known}; got {shown(name)}"
        )
    study = optuna.load_study(study_name=name, storage=storage)
    try:
        stored = json.loads(study.user_attrs[STAMP])
        # Not the stored path of the program, which may be another machine's.
        words = (PROGRAM, *stored["command"][1:])
        command = Command(words, stored["metric"], stored["maximize"])
        return Tuned(study, parse_space(stored["space"], "space"), command)
    except (LookupError, TypeError, ValueError):
        raise FairseqDocError(f"study {shown(name)} was not created by fairseq-doc tune") from None


def open_study(storage: BaseStorage, name: str, space: Space, command: Command) -> Tuned:
    """The study of that name, or a new one. A space or command other than the study's is
    refused."""
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize" if command.maximize else "minimize",
        load_if_exists=True,
    )
    mine = Tuned(study, space, command)
    if not study.user_attrs and not study.get_trials(deepcopy=False):  # new
        stored = {"command": command.words, "metric": command.metric, "maximize": command.maximize}
        study.set_user_attr(STAMP, json.dumps({**stored, "space": as_json(space)}))
    if found := differences(load_study(storage, name).words(), mine.words()):
        raise FairseqDocError(
            f"study {name} was created with another space or command: expected {found[0]}; got "
            f"{found[1]}; give the study's own, or another --study"
        )
    return mine
