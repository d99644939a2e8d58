"""Storages, what a study was made with, and the folder of its trials."""

import json
import os
import threading
from dataclasses import replace

import optuna
import pytest
from conftest import refusal
from optuna.trial import TrialState, create_trial

from fairseq_doc.tuning import storage as storage_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import (
    as_row,
    best_of,
    claim_folder,
    folder_of,
    load_study,
    open_storage,
    open_study,
    state_of,
)

from .conftest import COMMAND, SPACE


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return open_storage("sqlite:///a.db", create=True)


@pytest.mark.parametrize("url", ["sqlite:///a.db", "a.journal", "journal:///b.journal"])
def test_a_study_is_found_again(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "does not exist" in refusal(open_storage, url, create=False)
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
        ("sqlite://", "which has no file"),
        ("sqlite:///no/a.db", "a folder that exists"),
        ("no/a.journal", "a folder that exists"),
        ("sqlite:///text", "expected a usable database"),
        ("sqlite:///folder", "folder is not writable"),
        ("pipe.journal", "pipe.journal is not writable"),
        ("text.journal", "expected text.journal to be a journal of Optuna"),
        ("unknown.journal", "expected unknown.journal to be a journal of Optuna"),
        ("pipe", "expected sqlite:///FILE"),
        ("postgresql://user:secret@localhost/x", "its Python driver"),
        ("unheard://x", "expected a usable database"),
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
    before = sorted(tmp_path.iterdir())
    message = refusal(open_storage, url, create=True)
    assert problem in message and "secret" not in message
    assert sorted(tmp_path.iterdir()) == before


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
        assert f"another command: expected {got}" in message
    # The place of the program may differ between machines.
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))


def test_a_study_that_is_not_ours(storage, monkeypatch):
    monkeypatch.setattr(storage_module, "MAKING", 0.2)
    optuna.create_study(study_name="s", storage=storage)
    assert "'None'" in refusal(open_study, storage, "s", SPACE, COMMAND)


DAMAGES = ({"space": {}}, {"command": []}, {"command": ["/x/evil.sh"]}, {"maximize": 1})


@pytest.mark.parametrize("stamp", ["{", "7", 7, '{"space": {}}', *DAMAGES], ids=str)
def test_a_stamp_that_is_damaged_or_starts_another_program(storage, stamp):
    study, own = open_study(storage, "s", SPACE, COMMAND)
    if isinstance(stamp, dict):
        stamp = json.dumps({**json.loads(own.as_text()), **stamp})
    study.set_user_attr("fairseq_doc", stamp)
    message = refusal(load_study, storage, "s")
    assert "or is damaged" in message


def test_the_place_of_a_program_is_not_taken_from_the_storage(storage):
    open_study(storage, "s", SPACE, Command(("/opt/fairseq-train", "data"), "loss", False))
    assert load_study(storage, "s")[1].command.words == ("fairseq-train", "data")


def test_several_open_one_study_at_once(tmp_path):
    """One makes the tables and the study, the others join it."""
    found = []

    def join():
        storage = open_storage(f"sqlite:///{tmp_path}/a.db", create=True)
        stamp = open_study(storage, "s", SPACE, COMMAND)[1]
        claim_folder(tmp_path / "tune", stamp)
        found.append(stamp.study_id)

    threads = [threading.Thread(target=join) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 and len(set(found)) == 1


def test_a_study_of_version_0_5_0(storage, tmp_path):
    """Its trials are read, with the folders that they have."""
    study, stamp = open_study(storage, "s", SPACE, COMMAND)
    owner = {"machine": "m", "pid": 1, "started": "2", "name": "x"}
    stopped = {"owner": owner, "heartbeat": 1.0, "seconds": 3.0, "ended": "stopped"}
    settings = {"params": {"lr": 0.5}, "distributions": SPACE}
    study.add_trial(create_trial(state=TrialState.FAIL, user_attrs=stopped, **settings))
    again = {**stopped, "slot": 0}
    study.add_trial(create_trial(value=2.0, user_attrs=again, **settings))
    trials = load_study(storage, "s")[0].get_trials()
    assert [state_of(trial) for trial in trials] == ["interrupted", "complete"]
    assert as_row(trials[1])["value"] == 2.0 and best_of(trials, False) is trials[1]
    assert folder_of(tmp_path, trials[1]) == tmp_path / "trial-0000"


def test_a_folder_s_number_is_a_number(tmp_path):
    trial = create_trial(value=1.0, user_attrs={"slot": "/../../x"})
    assert folder_of(tmp_path, trial).parent == tmp_path


@pytest.mark.parametrize("maximize", [False, True])
def test_best(maximize):
    worst = float("-inf") if maximize else float("inf")
    trials = [create_trial(value=value) for value in (3.0, worst, 1.0, 1.0, 3.0)]
    assert best_of(trials, maximize) is trials[0 if maximize else 2]
    assert best_of(trials[1:2], maximize) is None and best_of([], maximize) is None


def test_a_folder_of_another_study(storage, tmp_path):
    one, two = (open_study(storage, name, SPACE, COMMAND)[1] for name in ("one", "two"))
    folder = tmp_path / "a" / "b"
    claim_folder(folder, one)
    claim_folder(folder, one)
    assert "trials of another study" in refusal(claim_folder, folder, two)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    assert "other files" in refusal(claim_folder, tmp_path / "c", two)
    assert "cannot write" in refusal(claim_folder, tmp_path / "a.db" / "x", two)
