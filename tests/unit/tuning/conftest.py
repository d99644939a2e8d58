"""Studies whose trainings are a small program instead of fairseq-train."""

import sys
from types import SimpleNamespace

import pytest
from conftest import PACKAGE, ROOT, SMALL_TRAINING

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import open_storage, open_study, silence
from fairseq_doc.tuning.tuner import Tuner

TRAINING = SMALL_TRAINING.replace("--seed 3 ", "")
BASE = f"fairseq-train data --user-dir {PACKAGE} {TRAINING}".split()
PROGRAM = [sys.executable, "-I", "-S", str(ROOT / "tests" / "fake_training.py")]
COMMAND = Command(("fairseq-train", "data"), "loss", False)
SPACE = parse_space({"lr": {"low": "1e-4", "high": 1.0, "log": True}}, "space")


def choosing(*actions):
    """A space whose trainings end in these ways."""
    return parse_space({"lr": {"low": 0.001, "high": 1.0}, "act": {"choices": list(actions)}}, "s")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    silence()
    monkeypatch.setattr(training_module, "program_for", lambda words: PROGRAM)
    monkeypatch.setattr(training_module, "POLL", 0.01)


@pytest.fixture
def study_in(tmp_path):
    """``study_in(url)``: a study there, and ``tuner(trials, ...)`` on it."""

    def opened(url=f"sqlite:///{tmp_path}/tune.db", space=SPACE, command=COMMAND):
        own, folder = open_study(open_storage(url, True), "s", space, command), tmp_path / "tune"

        def tuner(trials, workers=1):
            where = {"study": "s", "storage": "", "space": "", "dir": str(folder)}
            settings = Options(**where, trials=trials, workers=workers, sampler="random")
            return Tuner(own, settings)

        return SimpleNamespace(study=own.study, folder=folder, tuner=tuner)

    return opened
