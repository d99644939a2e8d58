"""Storages, and what a study was made with."""

import sqlite3
import threading

import optuna
import pytest
from conftest import refusal
from optuna.exceptions import StorageInternalError

from fairseq_doc.tuning import storage as storage_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import (
    claim_folder,
    load_study,
    open_storage,
    open_study,
    patiently,
)

from .conftest import COMMAND, SPACE


@pytest.mark.parametrize("url", ["sqlite:///a.db", "a.journal", "journal:///b.journal"])
def test_a_study_is_found_again(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is no" in refusal(open_storage, url, create=False)
    assert list(tmp_path.iterdir()) == []
    study, stamp = open_study(open_storage(url, create=True), "s", SPACE, COMMAND)
    again, same = open_study(open_storage(url, create=False), "s", SPACE, COMMAND)
    assert same == stamp and again.study_name == "s"
    assert load_study(open_storage(url, create=False), "s")[1] == stamp
    message = refusal(load_study, open_storage(url, create=False), "t")
    assert "expected one of the studies in the storage, 's'; got 't'" in message


@pytest.mark.parametrize(
    "url, problem",
    [
        ("tune.db", "expected sqlite:///FILE, FILE.journal"),
        ("sqlite://", "which is not kept"),
        ("sqlite:///:memory:", "which is not kept"),
        ("sqlite:///no/a.db", "a folder that exists"),
        ("no/a.journal", "a folder that exists"),
        ("sqlite:///text", "a database that can be opened"),
        ("sqlite:///folder", "folder is something else"),
        ("text.journal", "expected text.journal to be a journal of Optuna"),
        ("postgresql://user:secret@localhost/x", "its Python driver"),
        ("unheard://x", "expected a database that can be opened"),
    ],
)
def test_a_storage_that_cannot_be_used(url, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("text", "text.journal"):
        (tmp_path / name).write_text("no database, but a text of some length " * 100 + "\n")
    message = refusal(open_storage, url, create=True)
    assert problem in message and "secret" not in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "text", "text.journal"]


def test_another_space_or_command_is_refused(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    open_study(storage, "s", SPACE, COMMAND)
    other = parse_space({"lr": {"low": 0.1, "high": 1.0}}, "x")
    message = refusal(open_study, storage, "s", other, COMMAND)
    assert 'it has --lr {"low": 0.0001, "high": 1.0, "log": true}' in message
    assert 'this one {"low": 0.1, "high": 1.0}' in message
    more = {**SPACE, **parse_space({"x": {"choices": [1]}}, "x")}
    assert "it has --x null" in refusal(open_study, storage, "s", more, COMMAND)
    for words, parts in (
        (("fairseq-train", "other"), ("'data'", "'other'")),
        (("fairseq-train", "data", "--fp16"), ("'data'", "'data --fp16'")),
    ):
        message = refusal(open_study, storage, "s", SPACE, Command(words, "loss", False))
        assert "is of another command: at word" in message
        assert all(part in message for part in parts)
    # The place of the program may differ between machines.
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))


def test_a_study_of_another_program(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    optuna.create_study(study_name="s", storage=storage)
    assert "another program made it" in refusal(load_study, storage, "s")


def test_a_study_whose_maker_was_killed_before_it_had_its_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "MAKING", 0.3)
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    optuna.create_study(study_name="s", storage=storage)
    study, stamp = open_study(storage, "s", SPACE, COMMAND)
    assert load_study(storage, "s")[1] == stamp and stamp.space == SPACE
    assert open_study(storage, "s", SPACE, COMMAND)[1] == stamp
    for name, direction in (("used", "minimize"), ("upwards", "maximize")):
        other = optuna.create_study(study_name=name, storage=storage, direction=direction)
        if name == "used":
            other.ask()
        assert "another program made it" in refusal(open_study, storage, name, SPACE, COMMAND)


def test_a_journal_of_unknown_records(tmp_path):
    (tmp_path / "a.journal").write_text('{"op_code": 99, "worker_id": "x"}\n')
    assert "to be a journal of Optuna" in refusal(open_storage, f"{tmp_path}/a.journal", True)


@pytest.mark.parametrize(
    "stamp, problem",
    [
        ("{", "is damaged"),
        ("7", "is damaged"),
        ('{"space": {}}', "is damaged"),
        ('{"command": [], "metric": "m", "maximize": 0, "space": {}, "id": "x"}', "got ''"),
        (
            '{"command": ["/x/evil.sh"], "metric": "m", "maximize": 0, "space": {}, "id": "x"}',
            "evil",
        ),
    ],
)
def test_a_stamp_that_is_damaged_or_starts_another_program(tmp_path, stamp, problem):
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    study, _ = open_study(storage, "s", SPACE, COMMAND)
    study.set_user_attr("fairseq_doc", stamp)
    assert problem in refusal(load_study, storage, "s")


def test_the_place_of_a_program_is_not_taken_from_the_storage(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))
    assert load_study(storage, "s")[1].command.words == ("fairseq-train", "data")


def test_many_open_one_study_at_once(tmp_path):
    """One makes the tables and the study, the others join it."""
    found, problems = [], []

    def join():
        try:
            storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
            study, stamp = open_study(storage, "s", SPACE, COMMAND)
            claim_folder(tmp_path / "tune", stamp)
            for _ in range(5):
                patiently(study.ask)
            found.append(stamp.study_id)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == [] and len(found) == 4 and len(set(found)) == 1
    study, _ = load_study(open_storage(f"sqlite:///{tmp_path}/a.db", create=False), "s")
    assert [trial.number for trial in study.get_trials()] == list(range(20))


def test_a_locked_database_is_waited_for(monkeypatch):
    tries = []

    def call():
        tries.append(1)
        if len(tries) < 3:
            error = StorageInternalError("during the commit")
            error.__cause__ = sqlite3.OperationalError("database is locked")
            raise error
        return 7

    assert patiently(call) == 7 and len(tries) == 3
    monkeypatch.setattr(storage_module, "PATIENCE", 0)
    tries.clear()
    assert refusal(patiently, call) == "the storage cannot be used: database is locked"

    def lost():
        raise sqlite3.OperationalError("disk I/O error")

    assert "disk I/O error" in refusal(patiently, lost)


def test_a_folder_of_another_study(tmp_path):
    storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
    _, one = open_study(storage, "one", SPACE, COMMAND)
    _, two = open_study(storage, "two", SPACE, COMMAND)
    claim_folder(tmp_path / "a" / "b", one)
    claim_folder(tmp_path / "a" / "b", one)
    assert "trials of another study" in refusal(claim_folder, tmp_path / "a" / "b", two)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    assert "other files" in refusal(claim_folder, tmp_path / "c", two)
    assert "cannot write" in refusal(claim_folder, tmp_path / "a.db" / "x", two)


def test_a_stamp_is_text():
    stamp = storage_module.Stamp(SPACE, COMMAND, "id")
    assert storage_module.Stamp.from_text(stamp.as_text(), "s") == stamp
