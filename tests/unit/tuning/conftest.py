"""Studies whose trainings are a small program instead of fairseq-train."""

import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from conftest import ROOT

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning import tuner as tuner_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.settings import LEARNING, Options
from fairseq_doc.tuning.slots import slots_of
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import claim_folder, open_storage, open_study, silence, trials_of
from fairseq_doc.tuning.tuner import Tuner

PROGRAM = [sys.executable, "-I", "-S", str(ROOT / "tests" / "fake_training.py")]
COMMAND = Command(("fairseq-train", "data"), "loss", False)
SPACE = parse_space({"lr": {"low": "1e-4", "high": 1.0, "log": True}}, "space")


def choosing(*actions):
    """A space whose trainings end in these ways."""
    return parse_space({"lr": {"low": 0.001, "high": 1.0}, "act": {"choices": list(actions)}}, "s")


def at_once(*functions):
    """Call each in a thread of its own; an error of one is raised here, or that one hangs."""
    calls = [Future() for _ in functions]

    def call(function, future):
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    for pair in zip(functions, calls, strict=True):
        threading.Thread(target=call, args=pair, daemon=True).start()
    return [future.result(120) for future in calls]


class Lines:
    """What a tuner shows."""

    def __init__(self):
        self.lines, self.complete = [], 0

    def line(self, text):
        self.lines.append(text)

    def update(self, slots, maximize):
        self.complete = sum(slot.complete for slot in slots)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    silence()
    monkeypatch.setattr(training_module, "program_for", lambda words: PROGRAM)
    monkeypatch.setattr(training_module, "POLL", 0.01)
    monkeypatch.setattr(tuner_module, "POLL", 0.01)
    monkeypatch.setattr(tuner_module, "IDLE", 0.1)


@pytest.fixture
def study_in(tmp_path):
    """``study_in(url)``: a study there, ``tuner(trials, ...)`` on it, and ``slots()``."""

    def opened(url=None, space=SPACE, command=COMMAND, name="s", folder=tmp_path / "tune"):
        storage = open_storage(url or f"sqlite:///{tmp_path}/tune.db", create=True)
        study, stamp = open_study(storage, name, space, command)
        claim_folder(folder, stamp)
        shown = Lines()

        def tuner(trials, workers=1, keep="best", sampler="random"):
            where = {"study": name, "storage": "", "space": "", "dir": str(folder)}
            given = {"trials": trials, "workers": workers, "keep": keep, "sampler": sampler}
            if sampler in LEARNING:
                given["startup_trials"] = 2
            return Tuner(study, stamp, Options(**where, **given), shown)

        return SimpleNamespace(
            study=study,
            stamp=stamp,
            folder=folder,
            shown=shown,
            tuner=tuner,
            slots=lambda: slots_of(trials_of(study, space)),
        )

    return opened
