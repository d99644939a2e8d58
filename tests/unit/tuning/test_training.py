"""One training: how it ended, and its value."""

import math
import os
import shutil
import sys
import threading
from dataclasses import replace

import pytest
import torch
from conftest import refusal

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning.command import Command, program_for
from fairseq_doc.tuning.training import Training, best_value, train_seeds

LOSS = Command(("fairseq-train", "data"), "loss", False)
SCORE = Command(("fairseq-train", "data"), "bleu", True)


def write(folder, log="", **bests):
    """A training's folder."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True)
    (folder / "log.txt").write_text(log)
    for name, best in bests.items():
        state = {"extra_state": {"best": best} if best is not None else {}}
        torch.save(
            {"model": {"w": torch.zeros(1000)}, **state}, checkpoints / f"checkpoint_{name}.pt"
        )


def ended(training, workers=1):
    return training.run(workers, threading.Event())


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
    write(tmp_path / "b")
    outcome = Training(LOSS, {}, tmp_path / "b").outcome(0)
    assert outcome.value is None and "no checkpoint" in outcome.problem


def test_a_checkpoint_that_carries_code_is_not_run(tmp_path):
    torch.save({"extra_state": Code(str(tmp_path / "ran"))}, tmp_path / "checkpoint_last.pt")
    assert "could run code" in refusal(best_value, tmp_path, False)
    assert not (tmp_path / "ran").exists()


class Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize(
    "log, status, problem",
    [
        ("FloatingPointError: gradients are Nan/Inf", 1, None),
        ("FloatingPointError: Minimum loss scale reached (0.0001).", 1, None),
        ("FloatingPointError: AMP: Minimum loss scale reached (0.0001).", 1, None),
        ("fairseq_doc: error: a score is not finite: got nan; has the training diverged?", 1, None),
        ("a\nValueError: b\n", 1, "ValueError: b"),
        ("10%|#\r20%|##\rRuntimeError: c", 1, "RuntimeError: c"),
        ("", 3, "exit status 3, no output"),
        ("a", -9, "killed by SIGKILL"),
        ("FloatingPointError: gradients are inconsistent between workers", 1, "FloatingPointErr"),
    ],
)
def test_divergence_and_failures(log, status, problem, tmp_path):
    write(tmp_path, f"{log}\n", last=3.0)
    outcome = Training(LOSS, {}, tmp_path).outcome(status)
    earlier = Training(LOSS, {}, tmp_path).earlier_outcome()
    if problem:
        assert outcome.value is None and outcome.problem.startswith(problem) and earlier is None
    else:
        assert outcome.value == earlier.value == math.inf
        assert Training(SCORE, {}, tmp_path).outcome(status).value == -math.inf


def test_what_a_log_says_of_a_training_whose_process_is_gone(tmp_path):
    assert Training(LOSS, {}, tmp_path / "none").earlier_outcome() is None
    write(tmp_path / "a", "x\n2026 | INFO | done training in 12.3 seconds\n", last=3.0)
    assert Training(LOSS, {}, tmp_path / "a").earlier_outcome().value == 3.0
    write(tmp_path / "b", "done training in 12.3 seconds\n")  # its checkpoints are gone
    assert Training(LOSS, {}, tmp_path / "b").earlier_outcome() is None


def test_a_finished_training_is_continued_with_a_larger_limit(tmp_path, monkeypatch):
    """Also if it is killed before its log says more."""
    program = [
        sys.executable,
        "-c",
        "import sys; print('done training in 1.0 seconds', sys.argv[1:])",
    ]
    monkeypatch.setattr(training_module, "program_for", lambda words: program)
    write(tmp_path, last=3.0)

    def trained(epochs, value=3.0):
        training = Training(
            replace(LOSS, words=("fairseq-train", "--max-epoch", epochs)), {}, tmp_path
        )
        training.check_folder()
        assert ended(training).value == value
        return training.log.read_text().count("done training")

    assert [trained(epochs) for epochs in ("2", "2", "3", "3")] == [1, 1, 2, 2]
    assert "a limit cannot be lowered" in refusal(trained, "2")
    program[2] = "raise SystemExit(1)"
    killed = Training(replace(LOSS, words=("fairseq-train", "--max-epoch", "4")), {}, tmp_path)
    ended(killed)
    program[2] = "print('done training in 1.0 seconds')"
    assert trained("4") == 3
    with open(tmp_path / "log.txt", "a") as log:
        log.write("FloatingPointError: gradients are Nan/Inf\n")
    assert trained("5", math.inf) == 3  # what diverged is not tried again


def test_the_program(monkeypatch, tmp_path):
    beside = os.path.join(os.path.dirname(sys.executable), "fairseq-train")
    assert program_for(["fairseq-train"]) == [beside]
    assert program_for(["/opt/fairseq-train"]) == ["/opt/fairseq-train"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_for(["fairseq-train"]) == [str(tmp_path / "python"), "-m", "fairseq_cli.train"]


def test_threads_and_a_program_that_is_missing(tmp_path, monkeypatch):
    program = [sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"]
    monkeypatch.setattr(training_module, "program_for", lambda words: program)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(6))
    for given, expected in ((None, "3"), ("7", "7")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if given:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        training = Training(LOSS, {"lr": 0.1}, tmp_path / expected)
        ended(training, workers=2)
        assert training.log.read_text().strip() == expected
    (tmp_path / "file").touch()
    assert "cannot start" in refusal(ended, Training(LOSS, {}, tmp_path / "file" / "x"))
    program[0] = "/none/fairseq-train"
    if shutil.which("setpriv"):
        assert "No such file" in ended(Training(LOSS, {}, tmp_path / "x")).problem
    monkeypatch.setenv("PATH", "")
    assert "No such file" in refusal(ended, Training(LOSS, {}, tmp_path / "y"))


@pytest.mark.parametrize(
    "metric, value, diverged",
    [("loss", 13.2, False), ("loss", 13.4, True), ("ppl", 9_999, False), ("ppl", 1e5, True)],
)
def test_a_value_worse_than_that_of_equally_likely_words(metric, value, diverged, tmp_path):
    write(tmp_path, "INFO | dictionary: 10,000 types\n", last=value)
    for maximize in (False, True):
        command = Command(("fairseq-train", "data"), metric, maximize)
        expected = math.inf if diverged and not maximize else value
        assert Training(command, {}, tmp_path).outcome(0).value == expected


def test_pipes_are_refused_and_so_are_too_many_seeds(tmp_path):
    for name in ("command.txt", "log.txt"):
        folder = tmp_path / name / "a-seed1"
        folder.mkdir(parents=True)
        os.mkfifo(folder / name)
        seeds = (1, 1, tmp_path / name, print)
        assert "got a pipe" in refusal(train_seeds, {"a": LOSS}, *seeds)
    many = (99999999999, 1, tmp_path / "b", print)
    assert "--seeds: expected at most" in refusal(train_seeds, {"a": LOSS}, *many)
    assert not (tmp_path / "b").exists()
