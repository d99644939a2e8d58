"""Studies in Optuna's storages, each with its :class:`Stamp` and a folder for its trials.

sqlite:///FILE                   processes of one machine
postgresql://..., mysql://...    several machines
FILE.journal, journal:///FILE    several machines with a shared disk
"""

import json
import math
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning
from optuna.storages import (
    BaseStorage,
    JournalStorage,
    RDBStorage,
    RetryHeartbeatStaleTrialCallback,
)
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_output, read_text, write_lines
from fairseq_doc.tuning.command import PROGRAM, Command
from fairseq_doc.tuning.settings import differences, option_words
from fairseq_doc.tuning.space import Space, as_json, parse_space

STAMP = "fairseq_doc"  # the user attribute of a study
JOURNAL = "journal:///"
HEARTBEAT = 60  # seconds between the heartbeats of a running trial in a database
STALE = 300  # seconds without a heartbeat after which a trial's process counts as killed
MAKING = 10.0  # seconds to wait for another process that creates tables or stamps a study
WAIT = 60.0  # seconds to wait for another process's write to an SQLite file

# User attributes of a trial
FOLDER = "slot"  # the number of its folder: that of its first attempt; the key of version 0.5.0
ORIGIN = "origin"  # the trial of another study that its settings come from
PROBLEM = "problem"  # the last line of the log of a failed training


@dataclass(frozen=True)
class Stamp:
    """The settings with which a study was created, stored in it. Its unique id is also in the
    folder of its trials."""

    space: Space
    command: Command
    study_id: str

    @property
    def direction(self) -> StudyDirection:
        return StudyDirection.MAXIMIZE if self.command.maximize else StudyDirection.MINIMIZE

    def as_text(self) -> str:
        command = self.command
        kept = {"command": command.words, "metric": command.metric, "maximize": command.maximize}
        return json.dumps({**kept, "space": as_json(self.space), "id": self.study_id})

    @classmethod
    def of(cls, study: Study) -> "Stamp":
        """The stamp of a study; an error if the study is damaged or another program's."""
        text = study.user_attrs.get(STAMP)
        try:
            data = json.loads(text or "")
            words = [str(word) for word in data["command"]]
            # Not the stored path of the program, which may be another machine's or a stranger's.
            command = Command((PROGRAM, *words[1:]), str(data["metric"]), bool(data["maximize"]))
            stamp = cls(parse_space(data["space"], "space"), command, str(data["id"]))
            if os.path.basename(words[0]) != PROGRAM or study.directions != [stamp.direction]:
                raise ValueError
        except (LookupError, TypeError, ValueError, RecursionError):
            raise FairseqDocError(
                f"study {shown(study.study_name)} was not created by fairseq-doc tune, or is "
                f"damaged: expected a command of {PROGRAM}, a space and the direction; got "
                f"{shown(str(text), 300)}"
            ) from None
        return stamp


# ---- trials ----


def state_of(trial: FrozenTrial) -> str:
    """``complete``; ``diverged`` (complete with the worst value); ``failed``; ``interrupted`` (to
    be resumed as another trial); ``running``; or ``waiting``."""
    if trial.state == TrialState.COMPLETE:
        return "complete" if math.isfinite(trial.value or 0.0) else "diverged"
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


def folder_of(folder: Path, trial: Any) -> Path:
    """The folder of a trial."""
    own = trial.user_attrs.get(FOLDER, trial.number)
    return folder / f"trial-{own if isinstance(own, int) else trial.number:04d}"


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


# ---- storages ----


def silence() -> None:
    """Turn off Optuna's log lines and warnings."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_default_handler()
    optuna.logging.disable_propagation()
    warnings.filterwarnings("ignore", module="optuna")
    warnings.filterwarnings("ignore", category=ExperimentalWarning)


@event.listens_for(Engine, "begin")
def _lock_first(connection: Connection) -> None:
    """In SQLite, lock before the first read. Optuna reads that a trial is waiting and then writes
    that it is running, so two workers could take the same trial."""
    if connection.get_execution_options().get(STAMP):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def open_storage(url: str, create: bool) -> BaseStorage:
    """Open a storage; with ``create``, create its file if necessary."""
    if url.startswith(JOURNAL) or url.endswith(".journal"):
        path = url.removeprefix(JOURNAL)
        _check_file(path, create)
        try:
            if os.path.exists(path):
                with open(path, "rb") as file:  # Optuna skips an unreadable last line
                    json.loads(file.readline(1 << 20) or '{"op_code": 0}')["op_code"]
            return JournalStorage(JournalFileBackend(path))
        except Exception as error:  # Optuna replays records without checking them
            raise FairseqDocError(
                f"storage: expected {path} to be a journal of Optuna; got another or a damaged "
                f"file: {_gist(error)}"
            ) from error
    try:
        database = make_url(url)
    except ArgumentError:
        raise FairseqDocError(
            "storage: expected sqlite:///FILE, FILE.journal, postgresql://... or mysql://...; got "
            f"{shown(url)}"
        ) from None
    if database.get_backend_name() != "sqlite":
        return _open_database(database, {})
    if database.database in (None, "", ":memory:"):
        raise FairseqDocError(f"storage: expected sqlite:///FILE; got {url}, which has no file")
    _check_file(str(database.database), create)
    _open_database(database, {"connect_args": {"timeout": WAIT}})  # creates and checks tables
    locking = {"connect_args": {"timeout": WAIT, "isolation_level": None}}
    return _open_database(
        database,
        {**locking, "execution_options": {STAMP: True}},
        skip_table_creation=True,
        skip_compatibility_check=True,
    )


def _open_database(database: URL, engine: dict[str, Any], **settings: Any) -> RDBStorage:
    deadline = time.monotonic() + MAKING
    while True:
        try:
            return RDBStorage(
                database.render_as_string(hide_password=False),
                engine,
                heartbeat_interval=HEARTBEAT,
                grace_period=STALE,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
                **settings,
            )
        except Exception as error:  # raised by Optuna, sqlalchemy or a driver
            made_twice = re.search("already exists|UNIQUE constraint", str(error))
            if not made_twice or time.monotonic() > deadline:  # another process creates the tables
                raise FairseqDocError(
                    f"storage {database.render_as_string(hide_password=True)}: expected a usable "
                    "database and its Python driver, such as psycopg2 or mysqlclient; "
                    f"got: {_gist(error)}"
                ) from error
        time.sleep(0.2)


def _gist(error: BaseException) -> str:
    """The text of the first error in a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {getattr(error, 'orig', None) or error}".split())[
        :300
    ]


def _check_file(path: str, create: bool) -> None:
    if os.path.lexists(path):
        if not os.path.isfile(path) or not os.access(path, os.R_OK | os.W_OK):
            raise FairseqDocError(f"storage: {path} is not writable; give another file")
    elif create:
        check_output(path, overwrite=True)
    else:
        raise FairseqDocError(f"storage: expected the file of a study; {path} does not exist")


# ---- studies ----


def load_study(storage: BaseStorage, name: str) -> tuple[Study, Stamp]:
    """An existing study and its stamp."""
    names = optuna.get_all_study_names(storage)
    if name not in names:
        known = ", ".join(shown(known) for known in names[:10]) or "none"
        raise FairseqDocError(
            f"study: expected one of the studies in the storage, {known}; got {shown(name)}"
        )
    study = optuna.load_study(study_name=name, storage=storage)
    return study, Stamp.of(study)


def open_study(
    storage: BaseStorage, name: str, space: Space, command: Command
) -> tuple[Study, Stamp]:
    """The study of that name, or a new one. A space or command other than the study's is
    refused."""
    mine = Stamp(space, command, uuid.uuid4().hex)
    try:
        made = optuna.create_study(study_name=name, storage=storage, direction=mine.direction)
        made.set_user_attr(STAMP, mine.as_text())
        return made, mine
    except DuplicatedStudyError:
        deadline = time.monotonic() + MAKING
    study = optuna.load_study(study_name=name, storage=storage)
    while not study.user_attrs and not study.get_trials() and time.monotonic() < deadline:
        time.sleep(0.1)  # another process has just created it
    stamp = Stamp.of(study)
    pairs = {
        "space": (_space_words(stamp.space), _space_words(space)),
        "command": (stamp.command.words[1:], command.words[1:]),
    }
    for what, (theirs, ours) in pairs.items():
        if found := differences(theirs, ours):
            raise FairseqDocError(
                f"study {name} was created with another {what}: expected {found[0]}; got "
                f"{found[1]}; give the study's own, or another --study"
            )
    # The study does not store the path of the program: the caller's own is used.
    return study, replace(stamp, command=replace(stamp.command, words=command.words))


def _space_words(space: Space) -> list[str]:
    return option_words({option: json.dumps(values) for option, values in as_json(space).items()})


def claim_folder(folder: Path, stamp: Stamp) -> None:
    """Create the folder of a study's trials, or check that it is one. Refused are other files and
    trials of another study."""
    name = folder / "study"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(not path.name.startswith(".") for path in folder.iterdir()):
            write_lines(name, [stamp.study_id])
    except OSError as error:
        raise FairseqDocError(f"dir: cannot write {folder}: {error.strerror}") from None
    found = read_text(name).strip() if name.exists() else None
    if found != stamp.study_id:
        got = "other files" if found is None else "trials of another study"
        raise FairseqDocError(
            f"dir: expected {folder} to be empty or to hold trials of this study; got {got}; "
            "remove it, or give another folder"
        )
