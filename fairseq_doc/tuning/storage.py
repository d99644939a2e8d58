"""Studies in Optuna's own storages: a database by its SQLAlchemy URL, or a journal file.

    sqlite:///FILE                   processes of one machine
    postgresql://..., mysql://...    several machines
    FILE.journal, journal:///FILE    several machines with a common disk

A study keeps what it was made with, its stamp, in its user attributes: the space, the command, and an id
by which folders of trials know it.
"""

import json
import os
import random
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from fairseq_doc.files import write_lines
from fairseq_doc.tuning.command import PROGRAM, Command
from fairseq_doc.tuning.journal import open_journal
from fairseq_doc.tuning.slots import check_trial
from fairseq_doc.tuning.space import Space, as_json, parse_space

STAMP = "fairseq_doc"  # the user attribute of a study
JOURNAL = "journal:///"
SQLITE_WAIT = 60.0  # seconds for another process's write
PATIENCE = 120.0  # seconds of a storage that stays locked
MAKING = 10.0  # seconds for another process that makes the tables, or stamps its study
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

    @property
    def direction(self) -> StudyDirection:
        """Of the metric."""
        return StudyDirection.MAXIMIZE if self.command.maximize else StudyDirection.MINIMIZE

    def as_text(self) -> str:
        """As the study keeps it."""
        kept = {
            "space": as_json(self.space),
            "command": list(self.command.words),
            "metric": self.command.metric,
            "maximize": self.command.maximize,
            "id": self.study_id,
        }
        return json.dumps(kept)

    @classmethod
    def from_text(cls, text: Any, name: str) -> "Stamp":
        """The stamp of the study ``name``.

        Raises:
            FairseqDocError: it is damaged, or its command is not a fairseq-train found by that name.
        """
        try:
            data = json.loads(text)
            words = [str(word) for word in data["command"]]
            metric, maximize = str(data["metric"]), bool(data["maximize"])
            space, study_id = data["space"], str(data["id"])
        except (KeyError, TypeError, ValueError, RecursionError):
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
    warnings.filterwarnings("ignore", category=ExperimentalWarning)


def patiently(call: Callable[_P, _T], *args: _P.args, **keywords: _P.kwargs) -> _T:
    """A call of Optuna that can be repeated, again while the database is locked by others.

    Raises:
        FairseqDocError: it stays locked, cannot be reached, or is damaged.
    """
    began = time.monotonic()
    while True:
        try:
            return call(*args, **keywords)
        except (FairseqDocError, ImportError, DuplicatedStudyError, UpdateFinishedTrialError):
            raise
        except (
            Exception
        ) as error:  # a damaged row fails anywhere in Optuna, sqlalchemy and a driver
            gist = _gist(error)
            if time.monotonic() - began > _patience_with(gist):
                raise FairseqDocError(f"the storage cannot be used: {gist}") from error
        time.sleep(random.uniform(0.05, 0.5))


def _patience_with(gist: str) -> float:
    """How long to try again: another process may be at work in the database, or has just made it."""
    if "locked" in gist or "busy" in gist:
        return PATIENCE
    return MAKING if "already exists" in gist or "UNIQUE constraint" in gist else -1.0


def _gist(error: BaseException) -> str:
    """The first line of the error that came first."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    return text if " " in text else f"{type(error).__name__} {text}"


def open_storage(url: str, create: bool) -> BaseStorage:
    """Open a storage.

    Args:
        url: see above.
        create: whether a file may be made where there is none.

    Raises:
        FairseqDocError: it is not there, is of another kind, or cannot be opened.
    """
    if url.startswith(JOURNAL) or url.endswith(".journal"):
        path = url.removeprefix(JOURNAL)
        _check_file(path, create)
        return open_journal(path)
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
    try:
        return get_storage(patiently(RDBStorage, url, engine_kwargs=arguments))
    except ImportError as error:
        raise FairseqDocError(
            f"--storage {shown_url}: expected its Python driver, such as psycopg2 or mysqlclient; got "
            f"none ({_gist(error)})"
        ) from None
    except FairseqDocError as error:
        raise FairseqDocError(
            f"--storage {shown_url}: expected a database that can be opened: {error}"
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
        FairseqDocError: there is none, another program made it, or it is damaged.
    """
    names = patiently(optuna.get_all_study_names, storage)
    if name not in names:
        known = ", ".join(shown(found) for found in names[:10]) or "none"
        raise FairseqDocError(
            f"--study: expected one of the studies in the storage, {known}; got {shown(name)}"
        )
    study = patiently(optuna.load_study, study_name=name, storage=storage)
    text = patiently(lambda: study.user_attrs).get(STAMP)
    if text is None:
        raise FairseqDocError(
            f"--study {name}: expected a study that fairseq-doc tune made; another program made it"
        )
    stamp = Stamp.from_text(text, name)
    directions = patiently(lambda: study.directions)
    if directions != [stamp.direction]:
        raise FairseqDocError(
            f"--study {name}: expected the direction {stamp.direction.name}; got "
            f"{', '.join(found.name for found in directions)}: the storage is damaged"
        )
    return study, stamp


def trials_of(study: Study, space: Space) -> list[FrozenTrial]:
    """The trials of a study.

    Raises:
        FairseqDocError: they cannot be read, or one holds what this package does not write.
    """
    trials = patiently(study.get_trials, deepcopy=False)
    for trial in trials:
        if trial.state != TrialState.WAITING:
            check_trial(trial, space)
    return trials


def open_study(
    storage: BaseStorage, name: str, space: Space, command: Command
) -> tuple[Study, Stamp]:
    """The study of that name, made where there is none.

    Raises:
        FairseqDocError: it is of another space or another command.
    """
    mine = Stamp(space, command, uuid.uuid4().hex)
    create = optuna.create_study
    try:
        made = patiently(create, study_name=name, storage=storage, direction=mine.direction)
        patiently(made.set_user_attr, STAMP, mine.as_text())
        return made, mine
    except DuplicatedStudyError:
        pass
    deadline = time.monotonic() + MAKING
    while _is_unstamped(storage, name, mine):  # by the process that has just made it
        if time.monotonic() > deadline:  # which died
            study = patiently(optuna.load_study, study_name=name, storage=storage)
            patiently(study.set_user_attr, STAMP, mine.as_text())
            time.sleep(0.5)  # another process may do the same; the last one's stamp holds for all
            break
        time.sleep(0.1)
    study, stamp = load_study(storage, name)
    _check_same(stamp, mine, name)
    return study, stamp


def _is_unstamped(storage: BaseStorage, name: str, mine: Stamp) -> bool:
    """Whether a study has no stamp yet and may get this one: it is empty and of this direction."""
    study = patiently(optuna.load_study, study_name=name, storage=storage)
    empty = not patiently(lambda: study.user_attrs) and not patiently(study.get_trials)
    return empty and patiently(lambda: study.directions) == [mine.direction]


def _check_same(old: Stamp, new: Stamp, name: str) -> None:
    remedy = "give what the study was made with, or another --study"
    before, now = as_json(old.space), as_json(new.space)
    for option in [*before, *now]:
        if before.get(option) != now.get(option):
            raise FairseqDocError(
                f"--study {name} is of another space: it has --{option} "
                f"{json.dumps(before.get(option))}, this one {json.dumps(now.get(option))}; {remedy}"
            )
    theirs, ours = old.command.words[1:], new.command.words[1:]
    if theirs != ours:
        place = len(os.path.commonprefix([theirs, ours]))
        it, this = (" ".join(w[max(0, place - 1) : place + 2]) or "nothing" for w in (theirs, ours))
        raise FairseqDocError(
            f"--study {name} is of another command: at word {place + 1} it has {shown(it)}, this one "
            f"{shown(this)}; {remedy}"
        )


def claim_folder(folder: Path, stamp: Stamp) -> None:
    """Make the folder of a study's trials, or take it where it is that already.

    Raises:
        FairseqDocError: it holds trials of another study, which would be continued, other files, or
            a link, through which a training would write elsewhere.
    """
    path = folder / "study"
    found = None
    try:
        link = next((found for found in _inside(folder) if os.path.islink(found)), None)
        if link is not None:
            raise FairseqDocError(
                f"--dir: expected no links, through which trainings would write elsewhere; {link} is "
                "one: remove it, or give another --dir"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            write_lines(path, [stamp.study_id])
        for _ in range(20):  # another process may be writing it
            if path.is_file():
                found = path.read_text(errors="replace").strip()
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


def _inside(folder: Path) -> Iterator[str]:
    """A folder and all that is in it."""
    yield str(folder)
    for place, folders, files in os.walk(folder):
        yield from (os.path.join(place, name) for name in (*folders, *files))
