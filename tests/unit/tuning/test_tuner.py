"""Tuning with trainings that take no time: values, failures, resuming, several tuners at once."""

import math
import shutil
import signal
import time

import pytest
from conftest import refusal
from optuna.trial import TrialState

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning import tuner as tuner_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.slots import ENDED, OWNER, UNUSED, this_process

from .conftest import at_once, choosing

KINDS = ["sqlite:///{}/a.db", "{}/a.journal", "journal:///{}/b.journal"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_has_its_value_and_only_the_best_its_checkpoints(kind, study_in, tmp_path):
    tuned = study_in(kind.format(tmp_path))
    tuned.tuner(5, workers=2).run()
    slots = tuned.slots()
    assert [slot.number for slot in slots] == list(range(5)) and all(s.complete for s in slots)
    for slot in slots:
        expected = (math.log10(slot.settings["lr"]) + 2) ** 2
        assert slot.value == pytest.approx(expected)
        folder = tuned.folder / f"trial-{slot.number:04d}"
        words = (folder / "command.txt").read_text().split()
        assert words[:4] == ["fairseq-train", "data", "--lr", repr(slot.settings["lr"])]
        assert words[4:] == ["--save-dir", str(folder / "checkpoints")]
        assert "done training" in (folder / "log.txt").read_text()
    best = min(slots, key=lambda slot: slot.value).number
    assert [p.parent.name for p in tuned.folder.glob("*/checkpoints")] == [f"trial-{best:04d}"]
    assert len(tuned.shown.lines) == 5 and tuned.shown.complete == 5
    assert tuned.shown.lines[0].startswith("trial ") and " --lr " in tuned.shown.lines[0]


def test_checkpoints_behind_a_link_are_not_removed(study_in, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.tex").touch()
    tuned = study_in()
    run = tuned.tuner(2, workers=1)
    finish = run._finish

    def link_then_finish(trial, training, outcome):
        shutil.rmtree(training.folder / "checkpoints")
        (training.folder / "checkpoints").symlink_to(tmp_path / "elsewhere")
        finish(trial, training, outcome)

    run._finish = link_then_finish
    run.run()
    assert (tmp_path / "elsewhere" / "thesis.tex").exists()


@pytest.mark.parametrize("maximize", [False, True])
def test_trainings_that_diverge_count_as_worst(maximize, study_in):
    command = Command(("fairseq-train", "data"), "accuracy", maximize)
    tuned = study_in(space=choosing("train", "diverge", "nan"), command=command)
    tuned.tuner(6).run()
    values = [slot.value for slot in tuned.slots()]
    worst, best = (-math.inf, max) if maximize else (math.inf, min)
    assert worst in values and tuned.study.direction.name.startswith("MAX" if maximize else "MIN")
    assert sum("diverged" in line for line in tuned.shown.lines) == values.count(worst)
    (kept,) = tuned.folder.glob("*/checkpoints")
    assert int(kept.parent.name[-4:]) == best(range(6), key=values.__getitem__)


def test_the_first_failure_ends_a_tuning(study_in):
    tuned = study_in(space=choosing("fail"))
    message = refusal(tuned.tuner(60, workers=1).run)
    assert "trial 0 failed" in message and "ValueError: it cannot" in message
    assert f"{tuned.folder}/trial-0000/log.txt" in message
    assert len(tuned.slots()) == 1 and tuned.slots()[0].state == "failed"


def test_three_failures_in_a_row_end_a_tuning(study_in):
    tuned = study_in(space=choosing("train", "fail"))
    tuner = tuned.tuner(40)
    message = refusal(tuner.run)
    slots = tuned.slots()
    assert [slot.state for slot in slots[-3:]] == ["failed"] * 3 and slots[-4].complete
    assert "3 trials in a row failed, the last with: ValueError: it cannot" in message
    wanted = sum(slot.complete for slot in slots)
    tuned.tuner(wanted).run()  # failed ones do not count
    assert len(tuned.slots()) == len(slots)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)], ids=["Ctrl-C", "SIGTERM"])
def test_what_an_interrupted_tuner_leaves_goes_on(study_in, monkeypatch, error):
    tuned = study_in()
    monkeypatch.setenv("FAKE_SECONDS", "30")
    tuner = tuned.tuner(3, workers=2)
    begun = []

    def interrupt(slots, maximize):
        begun[:] = [training for _, training in tuner._running.values()]
        raise error

    tuned.shown.update = interrupt
    with pytest.raises(type(error)):
        tuner.run()
    assert len(begun) == 2 and all(t._process.poll() is not None for t in begun)
    assert [slot.state for slot in tuned.slots()] == ["interrupted"] * 2
    settings = [slot.settings for slot in tuned.slots()]

    monkeypatch.setenv("FAKE_SECONDS", "0")
    tuned.shown.update = lambda slots, maximize: None
    tuned.tuner(3, workers=2).run()
    assert [slot.settings for slot in tuned.slots()][:2] == settings
    assert [slot.complete for slot in tuned.slots()] == [True] * 3
    names = [f"trial-{slot.number:04d}" for slot in tuned.slots()]
    assert sorted(path.name for path in tuned.folder.glob("trial*")) == names
    assert names[:2] == ["trial-0000", "trial-0001"]


@pytest.mark.parametrize("sampler", ["gp", "qmc"])
def test_an_interrupted_tuning_has_the_trials_of_an_uninterrupted_one(
    sampler, study_in, monkeypatch, tmp_path
):
    found = []
    for name, interruptions in (("whole", ()), ("interrupted", (1, 1, 3))):
        tuned = study_in(name=name, folder=tmp_path / name)
        for number in interruptions:

            def interrupt(slots, maximize, number=number):
                if len(slots) > number:
                    raise KeyboardInterrupt

            tuned.shown.update = interrupt
            with pytest.raises(KeyboardInterrupt):
                tuned.tuner(5, sampler=sampler).run()
        tuned.shown.update = lambda slots, maximize: None
        tuned.tuner(5, sampler=sampler).run()
        found.append([(slot.settings, slot.value) for slot in tuned.slots()])
    assert len(tuned.study.get_trials()) == 5 + len(interruptions)
    assert found[0] == found[1]


def test_a_dead_trial_that_had_finished_is_read_not_trained(study_in):
    tuned, log = study_in(), "x\ndone training in 0.3 seconds\n"
    tuned.tuner(1).run()
    dead = tuned.study.ask(tuned.stamp.space)
    for trial in (dead, tuned.study.ask()):  # the second has no settings yet
        trial.set_user_attr(OWNER, {**this_process(), "pid": 2**22 + 1})
    folder = tuned.folder / "trial-0001"
    folder.mkdir()
    (folder / "log.txt").write_text(log)
    (tuned.folder / "trial-0000" / "checkpoints").rename(folder / "checkpoints")
    tuned.tuner(2).run()
    assert tuned.study.get_trials()[2].user_attrs[ENDED] == UNUSED
    zero, one = tuned.slots()
    assert one.complete and one.settings == dead.params and one.value == zero.value
    assert (folder / "log.txt").read_text() == log
    assert not (folder / "command.txt").exists()


def test_a_trial_that_is_one_too_many_is_closed(study_in):
    """Another process began the last one at the same moment."""
    tuned = study_in()
    tuned.study.ask(tuned.stamp.space).set_user_attr(OWNER, this_process())
    assert not tuned.tuner(1)._begin(None)
    assert tuned.study.get_trials()[1].user_attrs[ENDED] == UNUSED


def test_heartbeats_and_seconds_are_written(study_in, monkeypatch):
    monkeypatch.setattr(tuner_module, "HEARTBEAT", 0.05)
    monkeypatch.setenv("FAKE_SECONDS", "0.5")
    tuned = study_in()
    beats = []
    tuned.shown.update = lambda slots, maximize: beats.extend(
        trial.user_attrs.get("seconds", 0) for trial in tuned.study.get_trials()
    )
    tuned.tuner(1).run()
    assert any(0 < seconds < tuned.slots()[0].seconds for seconds in beats)
    assert 0.5 <= tuned.slots()[0].seconds < 20


def test_a_training_whose_trial_another_program_closes_is_ended(study_in, monkeypatch):
    monkeypatch.setattr(tuner_module, "HEARTBEAT", 0.05)
    monkeypatch.setenv("FAKE_SECONDS", "30")
    tuned = study_in()
    closed = []

    def close(slots, maximize):
        running = [t for t in tuned.study.get_trials() if t.state == TrialState.RUNNING]
        if running and not closed and "seconds" in running[0].user_attrs:
            closed.append(running[0].number)
            monkeypatch.setenv("FAKE_SECONDS", "0")
            tuned.study.tell(running[0].number, state=TrialState.FAIL)

    tuned.shown.update = close
    begin = time.monotonic()
    tuned.tuner(1).run()
    assert closed == [0] and time.monotonic() - begin < 20
    assert [slot.complete for slot in tuned.slots()] == [False, True]


@pytest.mark.parametrize("kind", KINDS[:2])
def test_two_tuners_on_one_study(kind, study_in, tmp_path):
    study_in(kind.format(tmp_path))
    opened = [study_in(kind.format(tmp_path)) for _ in range(2)]
    at_once(*(tuned.tuner(7, workers=2).run for tuned in opened))
    slots = opened[0].slots()
    assert sum(slot.complete for slot in slots) == len(slots) == 7
    assert len({slot.settings["lr"] for slot in slots}) == 7
    lines = [line for tuned in opened for line in tuned.shown.lines]
    assert len(lines) == len(set(lines)) == 7
    for slot in slots:
        log = (opened[0].folder / f"trial-{slot.number:04d}" / "log.txt").read_text()
        assert log.count("starts at step 0") == 1 and log.count("done training") == 1


def test_what_does_not_end_is_killed(study_in, monkeypatch):
    monkeypatch.setattr(training_module, "STOP_AFTER", 0.2)
    monkeypatch.setenv("FAKE_SECONDS", "30")
    monkeypatch.setattr(training_module.signal, "SIGTERM", signal.SIGCONT)  # is not heard
    tuned = study_in()
    tuner = tuned.tuner(1)
    begin = time.monotonic()
    tuner._fill()
    ((_, training),) = tuner._running.values()
    tuner._stop()
    assert training._process.returncode == -signal.SIGKILL
    assert time.monotonic() - begin < 20 and tuned.slots()[0].state == "interrupted"
