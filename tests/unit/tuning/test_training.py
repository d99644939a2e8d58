"""One training: how it ended, and its value."""

import math
import os
import re
import sys
import threading
from dataclasses import replace

import pytest
import torch
from conftest import locked_elsewhere, refusal

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.training import Training, best_value

from ..fairseq_patches.test_checkpoint_reading import RunsCode

LOSS = Command(("fairseq-train", "data"), "loss", False)
SCORE = Command(("fairseq-train", "data"), "bleu", True)


def write(folder, log="", **bests):
    """A training's folder."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    (folder / "log.txt").write_text(log)
    for name, best in bests.items():
        state = {"extra_state": {"best": best} if best is not None else {}}
        torch.save({"model": torch.zeros(9), **state}, checkpoints / f"checkpoint_{name}.pt")


@pytest.mark.parametrize(
    "bests, lowest, highest",
    [
        ({"last": 3.5}, 3.5, 3.5),
        ({"best": 3.5}, 3.5, 3.5),
        ({"last": 3.0, "best": 4.0}, 3.0, 4.0),
        ({"last": math.nan, "best": 4.0}, 4.0, 4.0),
        ({"last": None, "best": 4.0}, 4.0, 4.0),
    ],
)
def test_the_best_validation_of_a_checkpoint(bests, lowest, highest, tmp_path):
    write(tmp_path, **bests)
    assert best_value(tmp_path / "checkpoints", False) == lowest
    assert best_value(tmp_path / "checkpoints", True) == highest


def test_a_training_without_a_value(tmp_path):
    assert "no checkpoint" in refusal(best_value, tmp_path, False)
    write(tmp_path / "a", last=None)
    assert "did the training validate" in refusal(best_value, tmp_path / "a/checkpoints", False)
    torch.save([1], tmp_path / "checkpoint_last.pt")
    assert "is not a complete checkpoint" in refusal(best_value, tmp_path, False)
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK\x03\x04 cut")
    assert "not a complete checkpoint" in refusal(best_value, tmp_path, False)


def test_a_checkpoint_that_carries_code_is_not_run(tmp_path):
    torch.save({"extra_state": RunsCode(tmp_path / "ran")}, tmp_path / "checkpoint_last.pt")
    assert "could run code" in refusal(best_value, tmp_path, False)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def train(tmp_path, monkeypatch):
    """``train(program, *options)``: the value of a training by a program in Python."""

    def trained(program, *options, workers=1, command=LOSS):
        found = [sys.executable, "-c", program]
        monkeypatch.setattr(training_module, "program_for", lambda words: found)
        command = replace(command, words=(*command.words, *options))
        training = Training(command, {}, tmp_path, bounded=True)
        return training.run(workers, threading.Event())

    return trained


@pytest.mark.parametrize(
    "log",
    [
        "FloatingPointError: gradients are Nan/Inf",
        "FloatingPointError: AMP: Minimum loss scale reached (0.0001).",
        "fairseq_doc: error: a score is not finite: got nan; has the training diverged?",
    ],
)
def test_a_training_that_diverges_has_the_worst_value_and_is_not_repeated(log, tmp_path, train):
    write(tmp_path, last=3.0)
    assert train(f"raise SystemExit({log!r})") == math.inf
    assert train("", command=SCORE) == -math.inf


@pytest.mark.parametrize(
    "program, problem",
    [
        ("print('a'); raise ValueError('b')", "ValueError: b"),
        ("print('10%|#\\r20%|##\\rRuntimeError: c'); raise SystemExit(1)", "RuntimeError: c"),
        ("raise SystemExit(3)", "exit status 3, no output"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("raise FloatingPointError('gradients are inconsistent')", "FloatingPointError: grad"),
        ("", "no checkpoint with a best validation score"),
    ],
)
def test_a_training_that_fails_says_why(program, problem, train):
    assert problem in refusal(train, program)


def test_a_finished_training_is_continued_with_a_larger_limit(tmp_path, train):
    """Also if it is killed before its log says more."""
    write(tmp_path, last=3.0)
    log, ended = tmp_path / "log.txt", "print('done training in 1.0 seconds')"

    def trained(epochs, program=ended):
        assert train(program, "--max-epoch", epochs) == 3.0
        return log.read_text().count("done training")

    assert [trained(epochs) for epochs in ("2", "2", "3", "3")] == [1, 1, 2, 2]
    assert "a limit cannot be lowered" in refusal(trained, "2")
    refusal(trained, "4", "raise SystemExit(1)")
    assert trained("4") == 3
    (tmp_path / "checkpoints" / "checkpoint_last.pt").rename(tmp_path / "last.pt")
    assert "no checkpoint" in refusal(trained, "4")  # trained again, since the value is gone


def test_the_cores_are_shared(tmp_path, monkeypatch, train):
    write(tmp_path, last=3.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(6))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    program = "import os; print(os.environ['OMP_NUM_THREADS'])"
    train(program, workers=2)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    train(program, workers=2)
    assert re.findall(r"^\d$", (tmp_path / "log.txt").read_text(), re.M) == ["3", "7"]


def test_another_process_in_the_folder(tmp_path, train):
    with locked_elsewhere(tmp_path / "lock"):
        assert "another process trains" in refusal(train, "")


@pytest.mark.parametrize(
    "metric, value, diverged",
    [("loss", 13.2, False), ("loss", 13.4, True), ("ppl", 9_999, False), ("ppl", 1e5, True)],
)
def test_a_value_worse_than_that_of_equally_likely_words(metric, value, diverged, tmp_path, train):
    write(tmp_path, "INFO | dictionary: 10,000 types\n", last=value)
    for maximize in (False, True):
        expected = math.inf if diverged and not maximize else value
        assert train("", command=replace(LOSS, metric=metric, maximize=maximize)) == expected


def test_the_loss_of_a_sentence_has_no_bound(tmp_path, train):
    write(tmp_path, "INFO | dictionary: 10,000 types\n", last=60.0)
    assert train("", "--sentence-avg") == 60.0
