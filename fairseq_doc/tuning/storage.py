"""Studies in Optuna's storages, each with its :class:`Stamp`.

A storage is a database by its SQLAlchemy URL, or a journal file:

    sqlite:///FILE                   processes of one machine
    postgresql://..., mysql://...    several machines
    FILE.journal, journal:///FILE    several machines with a common disk
"""

import functools
import inspect
import json
import os
import random
import re
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_output, refuse_links, write_lines
from fairseq_doc.tuning.command import PROGRAM, Command
from fairseq_doc.tuning.journal import open_journal
from fairseq_doc.tuning.settings import differences, option_words
from fairseq_doc.tuning.slots import Slot, check_trial, slots_of
from fairseq_doc.tuning.space import Space, as_json, parse_space

STAMP = "fairseq_doc"  # the user attribute of a study
JOURNAL = "journal:///"
SQLITE_WAIT = 60.0  # seconds for another process's write
PATIENCE = 60.0  # seconds of errors that pass
MAKING = 10.0  # seconds for another process that stamps its study
# While others use a database, or make its tables.
_PASSING = re.compile("locked|busy|already exists|UNIQUE constraint")
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Stamp:
    """What a study was made with, kept by the study; folders of its trials have the unique id."""

    space: Space
    command: Command
    study_id: str

    @property
    def direction(self) -> StudyDirection:
        return StudyDirection.MAXIMIZE if self.command.maximize else StudyDirection.MINIMIZE

    def as_text(self) -> str:
        kept = {
            "space": as_json(self.space),
            "command": list(self.command.words),
            "metric": self.command.metric,
            "maximize": self.command.maximize,
            "id": self.study_id,
        }
        return json.dumps(kept)

    @classmethod
    def of(cls, study: Study) -> "Stamp":
        """The stamp of a study; an error if another program made the study, or it is damaged."""
        text, directions = study.user_attrs.get(STAMP), study.directions
        try:
            data = json.loads(text or "")
            words = [str(word) for word in data["command"]]
            if os.path.basename(words[0]) != PROGRAM:
                raise ValueError
            # Not the program's path, which is another machine's or someone else's choice.
            command = Command((PROGRAM, *words[1:]), str(data["metric"]), bool(data["maximize"]))
            stamp = cls(parse_space(data["space"], "space"), command, str(data["id"]))
            if directions != [stamp.direction]:
                raise ValueError
        except (LookupError, TypeError, ValueError, RecursionError):
            raise FairseqDocError(
                f"study {shown(study.study_name)}: expected a command of {PROGRAM}, a space and "
                "the direction, as fairseq-doc tune writes them; another program made it, or it is "
                f"damaged: {shown(str(text), 300)}"
            ) from None
        return stamp


def silence() -> None:
    """Turn off Optuna's log lines and warnings; a bar shows the progress."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_default_handler()
    optuna.logging.disable_propagation()
    warnings.filterwarnings("ignore", module="optuna")
    warnings.filterwarnings("ignore", category=ExperimentalWarning)


def patiently(call: Callable[_P, _T], *args: _P.args, **keywords: _P.kwargs) -> _T:
    """Call a storage, again while others lock it; other failures are a ``FairseqDocError``."""
    began = time.monotonic()
    while True:
        try:
            return call(*args, **keywords)
        except (FairseqDocError, ImportError, DuplicatedStudyError, UpdateFinishedTrialError):
            raise
        except Exception as error:  # damage fails anywhere in Optuna, sqlalchemy and a driver
            gist = _gist(error)
            if not _PASSING.search(gist) or time.monotonic() - began > PATIENCE:
                raise FairseqDocError(f"the storage cannot be used: {gist}") from error
        time.sleep(random.uniform(0.05, 0.5))


def _gist(error: BaseException) -> str:
    """The text of the error that came first."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    return text if " " in text else f"{type(error).__name__} {text}"


def open_storage(url: str, create: bool) -> BaseStorage:
    """Open a storage; ``create``: make its file. All its methods are called :func:`patiently`."""
    if url.startswith(JOURNAL) or url.endswith(".journal"):
        path = url.removeprefix(JOURNAL)
        _check_file(path, create)
        storage: BaseStorage = open_journal(path)
    else:
        storage = _open_database(url, create)
    for name, method in inspect.getmembers(storage, inspect.ismethod):
        if not name.startswith("_"):
            setattr(storage, name, functools.partial(patiently, method))
    return storage


def _open_database(url: str, create: bool) -> BaseStorage:
    try:
        database = make_url(url)
    except ArgumentError:
        raise FairseqDocError(
            "storage: expected sqlite:///FILE, FILE.journal, postgresql://... or mysql://...; got "
            f"{shown(url)}"
        ) from None
    arguments: dict[str, Any] = {}
    if database.get_backend_name() == "sqlite":
        if database.database in (None, "", ":memory:"):
            raise FairseqDocError(f"storage: expected sqlite:///FILE; got {url}, which is not kept")
        _check_file(str(database.database), create)
        arguments = {"connect_args": {"timeout": SQLITE_WAIT}}
    try:
        return get_storage(patiently(RDBStorage, url, engine_kwargs=arguments))
    except (ImportError, FairseqDocError) as error:
        shown_url = database.render_as_string(hide_password=True)
        raise FairseqDocError(
            f"storage {shown_url}: expected a database that can be used, and its Python driver, such "
            f"as psycopg2 or mysqlclient; got: {_gist(error)}"
        ) from None


def _check_file(path: str, create: bool) -> None:
    if os.path.lexists(path):  # asked once: another process may make it at any moment
        if not os.path.isfile(path) or not os.access(path, os.R_OK | os.W_OK):
            raise FairseqDocError(f"storage: expected a file that can be written to; got {path}")
    elif create:
        check_output(path, overwrite=True)
    else:
        raise FairseqDocError(f"storage: expected the file of a study; there is no {path}")


def load_study(storage: BaseStorage, name: str) -> tuple[Study, Stamp]:
    """A study that exists, and its stamp."""
    names = optuna.get_all_study_names(storage)
    if name not in names:
        known = ", ".join(shown(known) for known in names[:10]) or "none"
        raise FairseqDocError(
            f"study: expected one of the studies in the storage, {known}; got {shown(name)}"
        )
    study = optuna.load_study(study_name=name, storage=storage)
    return study, Stamp.of(study)


def trials_of(study: Study, space: Space) -> list[FrozenTrial]:
    """The trials of a study, checked."""
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state != TrialState.WAITING:
            check_trial(trial, space)
    return trials


def read_slots(storage: BaseStorage, name: str) -> tuple[Stamp, list[Slot]]:
    """A study's stamp and slots."""
    study, stamp = load_study(storage, name)
    return stamp, slots_of(trials_of(study, stamp.space))


def open_study(
    storage: BaseStorage, name: str, space: Space, command: Command
) -> tuple[Study, Stamp]:
    """The study of that name, or a new one; another space or command than its own is refused."""
    mine = Stamp(space, command, uuid.uuid4().hex)
    try:
        made = optuna.create_study(study_name=name, storage=storage, direction=mine.direction)
        made.set_user_attr(STAMP, mine.as_text())
        return made, mine
    except DuplicatedStudyError:
        pass
    deadline = time.monotonic() + MAKING
    study = optuna.load_study(study_name=name, storage=storage)
    while not study.user_attrs and not study.get_trials() and study.directions == [mine.direction]:
        if time.monotonic() > deadline:  # the process that has just made it died
            study.set_user_attr(STAMP, mine.as_text())
            time.sleep(0.5)  # another process may do the same; the last one's stamp holds for all
        time.sleep(0.1)
    study, stamp = load_study(storage, name)
    pairs = {
        "space": (_space_words(stamp.space), _space_words(space)),
        "command": (stamp.command.words[1:], command.words[1:]),
    }
    for what, (theirs, ours) in pairs.items():
        if found := differences(theirs, ours):
            raise FairseqDocError(
                f"study {name} has another {what}: expected {found[0]}; got {found[1]}; give what "
                "the study was made with, or another --study"
            )
    # The program is the caller's own: the study does not keep its path.
    return study, replace(stamp, command=replace(stamp.command, words=command.words))


def _space_words(space: Space) -> list[str]:
    return option_words({option: json.dumps(values) for option, values in as_json(space).items()})


def claim_folder(folder: Path, stamp: Stamp) -> None:
    """Make the folder of a study's trials, or take it. Other files, trials of another study, and
    links, through which a training would write elsewhere, are refused."""
    found = None
    try:
        refuse_links(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            write_lines(folder / "study", [stamp.study_id])
        for _ in range(20):  # another process may be writing it
            if (folder / "study").is_file():
                found = (folder / "study").read_text(errors="replace").strip()
                break
            time.sleep(0.05)
    except OSError as error:
        raise FairseqDocError(f"dir: cannot write {folder}: {error.strerror}") from None
    if found != stamp.study_id:
        got = "other files" if found is None else "trials of another study"
        raise FairseqDocError(
            f"dir: expected {folder} to be empty or to have trials of this study; got {got}; "
            "remove it, or give another folder"
        )
