"""Storages, and what a study was made with."""

import json
import threading
from dataclasses import replace

import optuna
import pytest
from conftest import refusal
from optuna.trial import TrialState, create_trial

from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import (
    as_row,
    best_of,
    load_study,
    open_storage,
    open_study,
    state_of,
    trial_folder,
)

from .conftest import COMMAND, SPACE


@pytest.fixture
def storage(folder):
    return open_storage("sqlite:///a.db", create=True)


@pytest.mark.parametrize("url", ["sqlite:///a.db", "a.journal", "journal:///b.journal"])
def test_a_study_is_found_again(url, folder):
    """The path of the program may differ between machines, and is not taken from the storage."""
    assert "No such file" in refusal(open_storage, url, create=False)
    assert list(folder.iterdir()) == []
    typed = replace(COMMAND, words=("/opt/fairseq-train", *COMMAND.words[1:]))
    assert open_study(open_storage(url, create=True), "s", SPACE, typed).command == typed
    again = open_study(open_storage(url, create=False), "s", SPACE, COMMAND)
    assert again.study.study_name == "s" and again.command == COMMAND
    found = load_study(open_storage(url, create=False), "s")
    assert (found.space, found.command) == (SPACE, COMMAND)
    assert "in the storage, 's'; got 't'" in refusal(load_study, open_storage(url, False), "t")


@pytest.mark.parametrize(
    "url, problem",
    [
        ("tune.db", "expected sqlite:///FILE, FILE.journal"),
        ("sqlite:///:memory:", "would be lost"),
        ("no/a.journal", "a folder that exists"),
        ("sqlite:///text", "not a database"),
        ("postgresql://user:secret@localhost/x", "Python driver; got 'localhost/x'"),
    ],
)
def test_a_storage_that_cannot_be_used(url, problem, folder):
    (folder / "text").write_text("no database, but a text of some length " * 100 + "\n")
    message = refusal(open_storage, url, create=True)
    assert problem in message and "secret" not in message
    assert list(folder.iterdir()) == [folder / "text"]


def test_another_space_or_command_is_refused(storage):
    open_study(storage, "s", SPACE, COMMAND)
    other = parse_space({"lr": {"low": 0.1, "high": 1.0}}, "x")
    message = refusal(open_study, storage, "s", other, COMMAND)
    assert 'expected --lr \'{"low": 0.0001, "high": 1.0, "log": true}\'' in message
    assert 'got --lr \'{"low": 0.1, "high": 1.0}\'; give' in message
    more = replace(COMMAND, words=(*COMMAND.words, "--fp16"))
    assert "expected none; got --fp16" in refusal(open_study, storage, "s", SPACE, more)


def test_a_study_of_another_program(storage):
    optuna.create_study(study_name="s", storage=storage).set_user_attr("fairseq_doc", "{")
    assert "was not created by" in refusal(open_study, storage, "s", SPACE, COMMAND)


def test_a_study_of_version_0_5_0(storage, tmp_path):
    """Its settings and trials are read, with the folders that they have."""
    study = optuna.create_study(study_name="s", storage=storage)
    space = {"lr": {"low": 0.0001, "high": 1.0, "log": True}}
    made = {"command": COMMAND.words, "metric": "loss", "maximize": False, "space": space}
    study.set_user_attr("fairseq_doc", json.dumps({**made, "id": "0123"}))
    stopped = {"ended": "stopped"}
    settings = {"params": {"lr": 0.5}, "distributions": SPACE}
    study.add_trial(create_trial(state=TrialState.FAIL, user_attrs=stopped, **settings))
    study.add_trial(create_trial(value=2.0, user_attrs={**stopped, "slot": 0}, **settings))
    trials = open_study(storage, "s", SPACE, COMMAND).study.get_trials()
    assert [state_of(trial) for trial in trials] == ["interrupted", "complete"]
    assert as_row(trials[1])["value"] == 2.0 and best_of(trials, False) is trials[1]
    assert trial_folder(tmp_path, trials[1]) == tmp_path / "trial-0000"


def test_several_workers_take_a_waiting_trial_once(storage):
    study = open_study(storage, "s", SPACE, COMMAND).study
    for k in range(12):
        study.enqueue_trial({"lr": 0.01 + 0.02 * k})
    taken = []
    workers = [
        threading.Thread(target=lambda: taken.extend(study.ask().number for _ in range(3)))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(taken) == list(range(12))


@pytest.mark.parametrize("maximize", [False, True])
def test_best(maximize):
    worst = float("-inf") if maximize else float("inf")
    trials = [create_trial(value=value) for value in (3.0, worst, 1.0, 1.0, 3.0)]
    assert best_of(trials, maximize) is trials[0 if maximize else 2]
    assert best_of(trials[1:2], maximize) is None and best_of([], maximize) is None
