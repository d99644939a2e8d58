"""Tuning with trainings that take no time: values, failures, resuming."""

import math
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from conftest import locked_elsewhere, refusal, wait_until
from optuna.storages import fail_stale_trials
from optuna.trial import TrialState, create_trial

from fairseq_doc.tuning import storage as storage_module
from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.storage import FOLDER, as_row, state_of, trial_folder
from fairseq_doc.tuning.training import Interrupted, Training
from fairseq_doc.tuning.tuner import _retry

from .conftest import COMMAND, SPACE, choosing

KINDS = ["sqlite:///{}/a.db", "{}/a.journal"]


def states(tuned):
    return [state_of(trial) for trial in tuned.study.get_trials()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_has_its_value_and_only_the_best_its_checkpoints(
    kind, study_in, tmp_path, capsys
):
    tuned = study_in(kind.format(tmp_path))
    tuned.tuner(5, workers=2).run()
    trials = tuned.study.get_trials()
    assert [trial.number for trial in trials] == list(range(5))
    assert set(states(tuned)) == {"complete"}
    for trial in trials:
        assert trial.value == pytest.approx((math.log10(trial.params["lr"]) + 2) ** 2)
        folder = trial_folder(tuned.folder, trial)
        words = (folder / "command.txt").read_text().split()
        assert words[:4] == ["fairseq-train", "data", "--lr", repr(trial.params["lr"])]
        assert words[4:] == ["--save-dir", str(folder / "checkpoints")]
    best = trial_folder(tuned.folder, tuned.study.best_trial)
    assert [path.parent for path in tuned.folder.glob("*/checkpoints")] == [best]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all("of 5 complete, best" in line for line in lines)
    tuned.tuner(5, workers=2).run()
    assert len(tuned.study.get_trials()) == 5  # nothing is trained


@pytest.mark.parametrize("maximize", [False, True])
def test_trainings_that_diverge_count_as_worst(maximize, study_in):
    metric = "accuracy" if maximize else "loss"
    ways = ("train", "diverge", "nan") + (() if maximize else ("huge",))
    tuned = study_in(
        space=choosing(*ways), command=Command(("fairseq-train", "data"), metric, maximize)
    )
    tuned.tuner(8).run()
    for trial in tuned.study.get_trials():
        diverged = trial.params["act"] != "train"
        assert state_of(trial) == ("diverged" if diverged else "complete")
        assert trial.value == (-math.inf if maximize else math.inf) or not diverged
    assert len(list(tuned.folder.glob("*/checkpoints"))) == 1


def test_equal_trials_are_trained_once(study_in):
    """And there are as many as wanted, although the space has two."""
    space = {"act": choosing("train", "diverge")["act"]}
    tuned = study_in(space=space)
    tuned.tuner(5).run()
    trials = tuned.study.get_trials()
    assert len(trials) == 5 and len(list(tuned.folder.glob("trial-*"))) == 2
    assert len({(trial.params["act"], trial.value) for trial in trials}) == 2
    assert all(trial_folder(tuned.folder, trial).exists() for trial in trials)


def test_the_first_failure_ends_a_tuning(study_in):
    tuned = study_in(space=choosing("fail"))
    message = refusal(tuned.tuner(60).run)
    assert "the first trial failed" in message and "ValueError: it cannot" in message
    assert f"{tuned.folder}/trial-0000/log.txt" in message
    assert states(tuned) == ["failed"]
    assert "ValueError: it cannot" in as_row(tuned.study.get_trials()[0])["problem"]


def test_three_failures_in_a_row_end_a_tuning(study_in):
    tuned = study_in(space=choosing("train", "fail"))
    message = refusal(tuned.tuner(40).run)
    assert states(tuned)[-3:] == ["failed"] * 3 and states(tuned)[-4] == "complete"
    assert "3 trials in a row failed" in message
    before = len(states(tuned))
    tuned.tuner(states(tuned).count("complete")).run()  # failed ones do not count
    assert len(states(tuned)) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_signal_interrupts_is_resumed(workers, study_in, monkeypatch):
    tuned = study_in()
    monkeypatch.setenv("FAKE_SECONDS", "30")

    def started():
        logs = [log.read_text() for log in tuned.folder.glob("*/log.txt")]
        return sum("starts at step" in log for log in logs) == workers

    def interrupt():
        wait_until(started)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        tuned.tuner(3, workers=workers).run()
    signal.signal(signal.SIGINT, usual)
    assert sorted(states(tuned)) == ["interrupted"] * workers + ["waiting"] * workers
    before = [trial.params for trial in tuned.study.get_trials()[:workers]]

    monkeypatch.setenv("FAKE_SECONDS", "0")
    tuned.tuner(3, workers=workers).run()
    found = [trial.params for trial in tuned.study.get_trials(states=(TrialState.COMPLETE,))]
    assert len(found) == 3 and all(settings in found for settings in before)
    assert len(list(tuned.folder.glob("trial-*"))) == 3
    log = (tuned.folder / "trial-0000" / "log.txt").read_text()
    assert log.count("starts at step") == 2


def killed(tuned):
    """A trial whose process was killed after its training had ended."""
    tuned.tuner(1).run()
    dead = tuned.study.ask(SPACE)
    dead.set_user_attr(FOLDER, dead.number)
    folder = trial_folder(tuned.folder, dead)
    folder.mkdir()
    (folder / "log.txt").write_text("x\ndone training in 0.3 seconds\n")
    (tuned.folder / "trial-0000" / "checkpoints").rename(folder / "checkpoints")
    return dead


def retry(tuned, number):
    _retry(tuned.study, SimpleNamespace(retry=[number], folder=tuned.folder))


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_trial_is_retried_on_request_and_not_trained_again(
    kind, study_in, tmp_path, capsys
):
    tuned = study_in(kind.format(tmp_path))
    dead = killed(tuned)
    assert "--retry: expected a running trial, 1; got 0" in refusal(retry, tuned, 0)
    with locked_elsewhere(tuned.folder / "trial-0001" / "lock"):
        assert "--retry 1: expected a killed process; its" in refusal(retry, tuned, 1)
    retry(tuned, 1)
    capsys.readouterr()
    tuned.tuner(2).run()
    assert states(tuned) == ["complete", "interrupted", "complete"]
    trial = tuned.study.get_trials()[2]
    assert trial.params == dead.params and trial_folder(tuned.folder, trial).name == "trial-0001"
    assert "starts at" not in (tuned.folder / "trial-0001" / "log.txt").read_text()
    assert "running elsewhere" not in capsys.readouterr().err


def test_a_training_that_runs_elsewhere_keeps_its_checkpoints(study_in):
    """The process of the first trial was suspended for longer than a database waits."""
    tuned = study_in()
    folder = trial_folder(tuned.folder, killed(tuned))
    (folder / "log.txt").write_text("x\n")
    retry(tuned, 1)
    with locked_elsewhere(folder / "lock"):
        tuned.tuner(2).run()
    assert states(tuned) == ["complete", "interrupted", "failed", "complete"]
    assert any((folder / "checkpoints").iterdir())


def test_a_retry_in_this_process_keeps_its_checkpoints(study_in):
    tuned = study_in()
    tuned.tuner(1).run()
    tuner, (trial,) = tuned.tuner(2), tuned.study.get_trials()
    checkpoints = trial_folder(tuned.folder, trial) / "checkpoints"
    for busy, kept in (({checkpoints.parent}, True), (set(), False)):
        tuner._busy = busy
        tuner._remove_checkpoints([trial], None)
        assert checkpoints.exists() == kept


def test_a_database_finds_a_killed_trial(study_in, tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "STALE", 1)
    tuned = study_in()
    dead = killed(tuned)
    storage = storage_module.open_storage(f"sqlite:///{tmp_path}/tune.db", create=False)
    storage.record_heartbeat(1 + dead.number)
    wait_until(lambda: fail_stale_trials(tuned.study) or states(tuned)[1] == "interrupted")
    tuned.tuner(2).run()
    assert states(tuned) == ["complete", "interrupted", "complete"]
    assert trial_folder(tuned.folder, tuned.study.get_trials()[2]).name == "trial-0001"


def test_trials_that_run_elsewhere_are_named(study_in, capsys):
    tuned = study_in()
    tuned.study.ask()
    tuned.tuner(1).run()
    assert "--retry 0" in capsys.readouterr().err


def test_a_queued_trial_has_no_options_beside_the_space(study_in):
    """The study may be a stranger's."""
    tuned = study_in()
    choices = choosing("x")["act"]
    tuned.study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params={"lr": 0.5, "log-file": "x"},
            distributions={**SPACE, "log-file": choices},
        )
    )
    tuned.tuner(1).run()
    words = (tuned.folder / "trial-0000" / "command.txt").read_text().split()
    assert words[2:4] == ["--lr", "0.5"] and "--log-file" not in words


def test_what_does_not_end_is_killed(study_in, monkeypatch):
    monkeypatch.setattr(training_module, "STOP_AFTER", 0.2)
    monkeypatch.setenv("FAKE_SECONDS", "30")
    monkeypatch.setenv("FAKE_DEAF", "1")
    tuned, ending, began = study_in(), threading.Event(), time.monotonic()
    training = Training(COMMAND, {}, tuned.folder / "x", bounded=True)

    def end():
        wait_until(lambda: training.log.exists() and "starts" in training.log.read_text())
        ending.set()

    threading.Thread(target=end).start()
    with pytest.raises(Interrupted):
        training.run(1, ending)
    assert time.monotonic() - began < 25 and "done" not in training.log.read_text()
