"""Studies in Optuna's own storages: a database by its SQLAlchemy URL, or a journal file.

    sqlite:///FILE                   processes of one machine
    postgresql://..., mysql://...    several machines
    FILE.journal, journal:///FILE    several machines with a common disk

A study keeps what it was made with, its stamp, in its user attributes: the space, the command, and an id
by which folders of trials know it.
"""

import json
import math
import os
import random
import sqlite3
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import optuna
from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study, StudyDirection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import write_lines
from fairseq_doc.tuning.command import PROGRAM, Command
from fairseq_doc.tuning.space import Space, as_json, parse_space

STAMP = "fairseq_doc"  # the user attribute of a study
JOURNAL = "journal:///"
SQLITE_WAIT = 60.0  # seconds for another process's write
PATIENCE = 120.0  # seconds of a storage that stays locked
STAMP_WAIT = 10.0  # seconds for the process that makes a study to stamp it
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Stamp:
    """What a study was made with.

    Attributes:
        space: what is tuned.
        command: what is trained.
        study_id: no other study has it, in no storage.
    """

    space: Space
    command: Command
    study_id: str

    def as_json(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {
            "space": as_json(self.space),
            "command": list(self.command.words),
            "metric": self.command.metric,
            "maximize": self.command.maximize,
            "id": self.study_id,
        }

    @classmethod
    def from_json(cls, data: Any, name: str) -> "Stamp":
        """The stamp of the study ``name``.

        Raises:
            FairseqDocError: it is damaged, or its command is not a fairseq-train found by that name.
        """
        try:
            words = [str(word) for word in data["command"]]
            metric, maximize = str(data["metric"]), bool(data["maximize"])
            space, study_id = data["space"], str(data["id"])
        except (KeyError, TypeError):
            raise FairseqDocError(
                f"--study {shown(name)}: expected what fairseq-doc tune wrote; it is damaged"
            ) from None
        if not words or os.path.basename(words[0]) != PROGRAM:
            raise FairseqDocError(
                f"--study {shown(name)}: expected a command of {PROGRAM}; got {shown(' '.join(words[:1]))}"
            )
        # Not the place of a program on another machine, or what someone else has put there.
        command = Command((PROGRAM, *words[1:]), metric, maximize)
        return cls(parse_space(space, f"study {name}"), command, study_id)


def silence() -> None:
    """No log lines and warnings of Optuna; a bar shows the progress."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_default_handler()
    optuna.logging.disable_propagation()
    warnings.filterwarnings("ignore", module="optuna")


def patiently(call: Callable[_P, _T], *args: _P.args, **keywords: _P.kwargs) -> _T:
    """A call of Optuna that can be repeated, again while the database is locked by others.

    Raises:
        FairseqDocError: it stays locked, or it cannot be reached.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*args, **keywords)
        except (StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
            if not _is_passing(error) or time.monotonic() > deadline:
                raise FairseqDocError(f"the storage cannot be used: {_gist(error)}") from error
        time.sleep(random.uniform(0.05, 0.5))


def _is_passing(error: BaseException) -> bool:
    """Whether another process is at work in the database, or has just made it."""
    text = _gist(error)
    return any(part in text for part in ("locked", "busy", "already exists", "UNIQUE constraint"))


def _gist(error: BaseException) -> str:
    """The first line of the error that came first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(getattr(error, "orig", None) or error).split())[:300]


def open_storage(url: str, create: bool) -> BaseStorage:
    """Open a storage.

    Args:
        url: see above.
        create: whether a file may be made where there is none.

    Raises:
        FairseqDocError: it is not there, is of another kind, or cannot be opened.
    """
    if url.startswith(JOURNAL) or url.endswith(".journal"):
        return _open_journal(url.removeprefix(JOURNAL), create)
    try:
        database = make_url(url)
    except ArgumentError:
        raise FairseqDocError(
            f"--storage: expected sqlite:///FILE, FILE.journal, postgresql://... or mysql://...; got "
            f"{shown(url)}"
        ) from None
    shown_url = database.render_as_string(hide_password=True)
    arguments: dict[str, Any] = {}
    if database.get_backend_name() == "sqlite":
        if database.database in (None, "", ":memory:"):
            raise FairseqDocError(
                f"--storage: expected sqlite:///FILE; got {url}, which is not kept"
            )
        _check_file(str(database.database), create)
        arguments = {"connect_args": {"timeout": SQLITE_WAIT}}
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return get_storage(RDBStorage(url, engine_kwargs=arguments))
        except ImportError as error:
            raise FairseqDocError(
                f"--storage {shown_url}: expected its Python driver, such as psycopg2 or mysqlclient; got "
                f"none ({_gist(error)})"
            ) from None
        except Exception as error:  # sqlalchemy's, alembic's, Optuna's and the driver's own
            if not _is_passing(error) or time.monotonic() > deadline:
                raise FairseqDocError(
                    f"--storage {shown_url}: expected a database that can be opened; it says: "
                    f"{_gist(error)}"
                ) from None
        time.sleep(random.uniform(0.05, 0.5))


def _open_journal(path: str, create: bool) -> BaseStorage:
    _check_file(path, create)
    try:
        with open(path, "ab+") as file:  # made where there is none
            file.seek(0)
            first = file.readline(1 << 20)
        if first and "op_code" not in json.loads(first):
            raise ValueError
        return JournalStorage(JournalFileBackend(path))
    except OSError as error:
        raise FairseqDocError(f"--storage: cannot open {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, AssertionError):
        raise FairseqDocError(
            f"--storage: expected {path} to be a journal of Optuna; got another or a damaged file"
        ) from None


def _check_file(path: str, create: bool) -> None:
    if os.path.lexists(path):  # asked once: another process may make it at any moment
        if not os.path.isfile(path):
            raise FairseqDocError(f"--storage: expected a file; {path} is something else")
        if not os.access(path, os.R_OK | os.W_OK):
            raise FairseqDocError(f"--storage: expected a file that can be written to; got {path}")
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not create:
        raise FairseqDocError(f"--storage: expected the file of a study; there is no {path}")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise FairseqDocError(
            f"--storage: expected a file in a folder that exists and can be written to; got {path}"
        )


def load_study(storage: BaseStorage, name: str) -> tuple[Study, Stamp]:
    """A study that exists, and its stamp.

    Raises:
        FairseqDocError: there is none, or another program made it.
    """
    try:
        study = patiently(optuna.load_study, study_name=name, storage=storage)
    except KeyError:
        names = [shown(found) for found in patiently(optuna.get_all_study_names, storage)]
        raise FairseqDocError(
            f"--study: expected one of the studies in the storage, {', '.join(names[:10]) or 'none'}; "
            f"got {shown(name)}"
        ) from None
    data = patiently(lambda: study.user_attrs).get(STAMP)
    if data is None:
        raise FairseqDocError(
            f"--study {name}: expected a study that fairseq-doc tune made; another program made it"
        )
    try:
        found = json.loads(data)
    except (TypeError, ValueError):
        found = None
    return study, Stamp.from_json(found, name)


def open_study(
    storage: BaseStorage, name: str, space: Space, command: Command
) -> tuple[Study, Stamp]:
    """The study of that name, made where there is none.

    Raises:
        FairseqDocError: it is of another space or another command.
    """
    direction = StudyDirection.MAXIMIZE if command.maximize else StudyDirection.MINIMIZE
    mine = Stamp(space, command, uuid.uuid4().hex)
    try:
        made = patiently(optuna.create_study, study_name=name, storage=storage, direction=direction)
        patiently(made.set_user_attr, STAMP, json.dumps(mine.as_json()))
        return made, mine
    except DuplicatedStudyError:
        pass
    deadline = time.monotonic() + STAMP_WAIT
    while True:
        try:
            study, stamp = load_study(storage, name)
            break
        except FairseqDocError:  # the process that made it has not said with what
            if time.monotonic() > deadline:
                if not _take_over(storage, name, mine, direction):
                    raise
                deadline = math.inf
        time.sleep(0.1)
    _check_same(stamp, mine, name)
    return study, stamp


def _take_over(storage: BaseStorage, name: str, stamp: Stamp, direction: StudyDirection) -> bool:
    """Stamp a study whose maker died before it could; whether it is one: without trials and attributes."""
    study = patiently(optuna.load_study, study_name=name, storage=storage)
    if study.user_attrs or study.get_trials() or study.direction != direction:
        return False
    patiently(study.set_user_attr, STAMP, json.dumps(stamp.as_json()))
    time.sleep(0.5)  # another process may be doing the same; the last one's stamp holds for all
    return True


def _check_same(old: Stamp, new: Stamp, name: str) -> None:
    remedy = "give what the study was made with, or another --study"
    before, now = as_json(old.space), as_json(new.space)
    for option in [*before, *now]:
        if before.get(option) != now.get(option):
            raise FairseqDocError(
                f"--study {name} is of another space: it has --{option} "
                f"{json.dumps(before.get(option))}, this one {json.dumps(now.get(option))}; {remedy}"
            )
    ours, theirs = list(new.command.words[1:]), list(old.command.words[1:])
    if ours == theirs:
        return
    place = next(
        (n for n, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    parts = [
        " ".join(words[max(0, place - 1) : place + 2]) or "nothing" for words in (theirs, ours)
    ]
    raise FairseqDocError(
        f"--study {name} is of another command: at word {place + 1} it has {shown(parts[0])}, this "
        f"one {shown(parts[1])}; {remedy}"
    )


def claim_folder(folder: Path, stamp: Stamp) -> None:
    """Make the folder of a study's trials, or take it where it is that already.

    Raises:
        FairseqDocError: it holds trials of another study, which would be continued, or other files.
    """
    path = folder / "study"
    found = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            write_lines(path, [stamp.study_id])
        for _ in range(20):  # another process may be writing it
            if path.is_file():
                found = path.read_text().strip()
                break
            time.sleep(0.05)
    except OSError as error:
        raise FairseqDocError(f"--dir: cannot write {folder}: {error.strerror}") from None
    if found != stamp.study_id:
        got = "other files" if found is None else "trials of another study"
        raise FairseqDocError(
            f"--dir: expected {folder} to be empty or to hold trials of this study; got {got}; remove "
            "it, or give another --dir"
        )
