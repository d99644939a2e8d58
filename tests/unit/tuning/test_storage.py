"""Storages, what a study was made with, and the folder of its trials."""

import json
import multiprocessing
import os
import signal
import sqlite3
import threading
from dataclasses import replace
from unittest.mock import Mock

import optuna
import pytest
from conftest import refusal
from optuna.exceptions import StorageInternalError

from fairseq_doc.errors import shown
from fairseq_doc.tuning import journal as journal_module
from fairseq_doc.tuning import storage as storage_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.journal import JournalLock
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import (
    claim_folder,
    load_study,
    open_storage,
    open_study,
    patiently,
    read_slots,
)

from .conftest import COMMAND, SPACE, at_once


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return open_storage("sqlite:///a.db", create=True)


@pytest.mark.parametrize("url", ["sqlite:///a.db", "a.journal", "journal:///b.journal"])
def test_a_study_is_found_again(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is no" in refusal(open_storage, url, create=False)
    assert list(tmp_path.iterdir()) == []
    study, stamp = open_study(open_storage(url, create=True), "s", SPACE, COMMAND)
    again, same = open_study(open_storage(url, create=False), "s", SPACE, COMMAND)
    assert same == stamp and again.study_name == "s"
    assert load_study(open_storage(url, create=False), "s")[1] == stamp
    typed = replace(COMMAND, words=("/opt/fairseq-train", *COMMAND.words[1:]))
    assert open_study(open_storage(url, create=False), "s", SPACE, typed)[1].command == typed
    assert "in the storage, 's'; got 't'" in refusal(load_study, open_storage(url, False), "t")


@pytest.mark.parametrize(
    "url, problem",
    [
        ("tune.db", "expected sqlite:///FILE, FILE.journal"),
        ("sqlite://", "which is not kept"),
        ("sqlite:///no/a.db", "a folder that exists"),
        ("no/a.journal", "a folder that exists"),
        ("sqlite:///text", "expected a database that can be used"),
        ("sqlite:///folder", "expected a file that can be written to; got folder"),
        ("pipe.journal", "expected a file that can be written to; got pipe.journal"),
        ("text.journal", "expected text.journal to be a journal of Optuna"),
        ("unknown.journal", "expected unknown.journal to be a journal of Optuna"),
        ("cut.journal", "its last 7 bytes are a part of one"),
        ("postgresql://user:secret@localhost/x", "its Python driver"),
        ("unheard://x", "expected a database that can be used"),
    ],
)
def test_a_storage_that_cannot_be_used(url, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo("pipe.journal")
    for name in ("text", "text.journal"):
        (tmp_path / name).write_text("no database, but a text of some length " * 100 + "\n")
    unknown = '{"op_code": 99, "worker_id": "x"}\n'
    (tmp_path / "unknown.journal").write_text(unknown)
    (tmp_path / "cut.journal").write_text(unknown + '{"op_co')
    before = sorted(tmp_path.iterdir())
    message = refusal(open_storage, url, create=True)
    assert problem in message and "secret" not in message
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """The path of a journal with a study."""
    monkeypatch.setattr(journal_module, "GRACE", 0.2)
    path = str(tmp_path / "a.journal")
    open_study(open_storage(path, create=True), "s", SPACE, COMMAND)
    return path


@pytest.fixture
def holder(journal):
    """A process that holds the lock of the journal."""

    def hold(held):
        lock = JournalLock(journal)
        assert lock.acquire()
        held.set()
        signal.pause()

    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(held,))
    process.start()
    assert held.wait(30)
    yield process
    process.kill()
    process.join()


def test_the_lock_of_a_dead_process_is_free(holder, journal):
    holder.kill()
    holder.join()
    assert holder.exitcode == -signal.SIGKILL
    assert load_study(open_storage(journal, create=False), "s")


def test_the_lock_of_another_is_waited_for(holder, journal, monkeypatch):
    assert "a.journal to be free within" in refusal(open_storage, journal, False)
    monkeypatch.setattr(journal_module, "GRACE", 30)
    threading.Timer(0.3, holder.kill).start()
    assert load_study(open_storage(journal, create=False), "s")


def test_a_lock_that_was_taken_when_a_signal_came_is_this_one(journal):
    lock = JournalLock(journal)
    assert lock.acquire() and lock.acquire()
    lock.release()


def test_another_space_or_command_is_refused(storage):
    open_study(storage, "s", SPACE, COMMAND)
    other = parse_space({"lr": {"low": 0.1, "high": 1.0}}, "x")
    message = refusal(open_study, storage, "s", other, COMMAND)
    assert 'another space: expected --lr \'{"low": 0.0001, "high": 1.0, "log": true}\'' in message
    assert 'got --lr \'{"low": 0.1, "high": 1.0}\'; give' in message
    more = {**SPACE, **parse_space({"x": {"choices": [1]}}, "x")}
    message = refusal(open_study, storage, "s", more, COMMAND)
    assert "another space: expected none; got --x '{\"choices\": [1]}'" in message
    for words, got in ((("other",), "data; got other"), (("data", "--fp16"), "none; got --fp16")):
        other = Command(("fairseq-train", *words), "loss", False)
        message = refusal(open_study, storage, "s", SPACE, other)
        assert f"another command: expected {got}; give" in message
    # The place of the program may differ between machines.
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))


def test_a_study_whose_maker_was_killed_before_it_had_its_stamp(storage, monkeypatch):
    monkeypatch.setattr(storage_module, "MAKING", 0.3)
    optuna.create_study(study_name="s", storage=storage)
    assert "or it is damaged: 'None'" in refusal(load_study, storage, "s")
    study, stamp = open_study(storage, "s", SPACE, COMMAND)
    assert load_study(storage, "s")[1] == stamp and stamp.space == SPACE
    assert open_study(storage, "s", SPACE, COMMAND)[1] == stamp
    for name, direction in (("used", "minimize"), ("upwards", "maximize")):
        other = optuna.create_study(study_name=name, storage=storage, direction=direction)
        if name == "used":
            other.ask()
        assert "or it is damaged: 'None'" in refusal(open_study, storage, name, SPACE, COMMAND)


DAMAGES = ({"space": {}}, {"command": []}, {"command": ["/x/evil.sh"]}, {"maximize": 1})


@pytest.mark.parametrize("stamp", ["{", "7", 7, '{"space": {}}', *DAMAGES], ids=str)
def test_a_stamp_that_is_damaged_or_starts_another_program(storage, stamp):
    study, own = open_study(storage, "s", SPACE, COMMAND)
    if isinstance(stamp, dict):
        stamp = json.dumps({**json.loads(own.as_text()), **stamp})
    study.set_user_attr("fairseq_doc", stamp)
    message = refusal(load_study, storage, "s")
    assert "or it is damaged: " in message and shown(str(stamp), 40)[1:30] in message


def test_a_damaged_database(storage):
    study, _ = open_study(storage, "s", SPACE, COMMAND)
    study.ask(SPACE)
    for change in ("trial_params SET distribution_json = '{'", "trials SET state = 'NONE'"):
        with sqlite3.connect("a.db") as database:
            database.execute(f"UPDATE {change}")
        message = refusal(read_slots, open_storage("sqlite:///a.db", False), "s")
        assert "the storage cannot be used: " in message


def test_the_place_of_a_program_is_not_taken_from_the_storage(storage):
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))
    assert load_study(storage, "s")[1].command.words == ("fairseq-train", "data")


def test_many_open_one_study_at_once(tmp_path):
    """One makes the tables and the study, the others join it."""

    def join():
        storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
        study, stamp = open_study(storage, "s", SPACE, COMMAND)
        claim_folder(tmp_path / "tune", stamp)
        for _ in range(5):
            study.ask()
        return stamp.study_id

    assert len(set(at_once(*[join] * 4))) == 1
    study, _ = load_study(open_storage(f"sqlite:///{tmp_path}/a.db", create=False), "s")
    assert [trial.number for trial in study.get_trials()] == list(range(20))


def test_a_locked_database_is_waited_for(monkeypatch):
    locked = StorageInternalError("during the commit")
    locked.__cause__ = sqlite3.OperationalError("database is locked")
    assert patiently(Mock(side_effect=[locked, locked, 7])) == 7
    monkeypatch.setattr(storage_module, "PATIENCE", 0)
    message = refusal(patiently, Mock(side_effect=locked))
    assert message == "the storage cannot be used: database is locked"


def test_a_folder_of_another_study_or_with_a_link(storage, tmp_path):
    one, two = (open_study(storage, name, SPACE, COMMAND)[1] for name in ("one", "two"))
    folder = tmp_path / "a" / "b"
    claim_folder(folder, one)
    claim_folder(folder, one)
    assert "trials of another study" in refusal(claim_folder, folder, two)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    assert "other files" in refusal(claim_folder, tmp_path / "c", two)
    assert "cannot write" in refusal(claim_folder, tmp_path / "a.db" / "x", two)
    (folder / "trial-0000").mkdir()
    (tmp_path / "link").symlink_to(folder)
    (folder / "trial-0000" / "log.txt").symlink_to(tmp_path / "c" / "thesis.tex")
    for place in (folder, tmp_path / "link"):
        assert "expected no links" in refusal(claim_folder, place, one)
