"""``fairseq-doc tune``: its line, its errors, and what it prints; trainings are a small program."""

import importlib.util
import json
import shlex

import pytest
from conftest import PACKAGE, doc, refused

from fairseq_doc.tuning import training as training_module
from fairseq_doc.tuning.settings import duration
from fairseq_doc.tuning.storage import load_study, open_storage

from ..tuning.conftest import PROGRAM

SPACE = "lr: {low: 1e-4, high: 1.0, log: true}\n"
TASK = "--arch lstm_doc_lm --task bptt_language_modeling"
BASE = ("--", *f"fairseq-train data --user-dir {PACKAGE} {TASK}".split())
STORAGE = ("--storage", "sqlite:///a.db")
STUDY = ("--study", "s", *STORAGE)
TUNE = ("tune", "space.yaml", *STUDY, "--sampler", "random")


@pytest.fixture
def folder(folder, monkeypatch):
    """A folder with a space, where fairseq-train is a program that takes no time."""
    (folder / "space.yaml").write_text(SPACE)
    monkeypatch.setattr(training_module, "program_for", lambda words: PROGRAM)
    return folder


def test_tune_report_and_rerun(folder):
    out, err = doc(*TUNE, "--trials", 3, "--workers", 2, *BASE)
    assert "study s: 3 trials complete, 0 of them diverged; 0 failed" in out
    assert "best: trial " in out and "folder: tune/s/trial-000" in out
    assert len([line for line in err.splitlines() if line.startswith("trial ")]) == 3

    out, err = doc(*TUNE, "--trials", 3, "--json", *BASE)
    result = json.loads(out)
    assert err == "" and result["complete"] == 3 and result["best"]["command"].startswith("fairseq")
    number, value = result["best"]["trial"], result["best"]["value"]
    assert (folder / result["best"]["folder"] / "checkpoints").is_dir()

    out, _ = doc("tune", *STUDY, "--report", "report")
    assert "wrote report/best.sh" in out and (folder / "report" / "slice.png").exists()
    assert "report/best.sh exists" in refused("tune", *STUDY, "--report", "report")
    doc("tune", *STUDY, "--report", "report", "--overwrite")

    out, err = doc("tune", *STUDY, "--rerun", "best", "--seeds", 2)
    assert f"trial {number}: --lr" in out and "standard deviation 0.0071" in out
    assert "seed 2: loss" in err
    out, _ = doc("tune", *STUDY, "--rerun", number, "--seeds", 2, "--json")
    result = json.loads(out)
    assert result["mean"] == pytest.approx(value + 0.015) and len(result["runs"]) == 2
    out, _ = doc("tune", *STUDY, "--rerun", number, "--seeds", 1)
    assert "standard deviation of one value" in out


def test_a_rerun_takes_further_options(folder):
    doc(*TUNE, "--trials", 1, *BASE)
    out, _ = doc("tune", *STUDY, "--rerun", "best", "--seeds", 1, "--", "--clip-norm", 2)
    assert "seed 1: loss" in out
    command = (folder / "tune/s/rerun-0000-seed1/command.txt").read_text()
    assert "--clip-norm 2 --seed 1 " in command and " --lr " in command
    for words, problem in (
        (["--clip-norm", 3], "with --clip-norm 3; got one with --clip-norm 2: remove"),
        (["fairseq-train", "--lr", "3"], "after --"),
    ):
        assert problem in refused("tune", *STUDY, "--rerun", "best", "--seeds", 1, "--", *words)
    assert "one of the trials 0; got '7'" in refused("tune", *STUDY, "--rerun", 7)


@pytest.mark.parametrize(
    "words, problem",
    [
        ("", "expected a space, a YAML file or one of awd"),
        (
            "space.yaml --sampler qmc --startup-trials 3",
            "--startup-trials needs --sampler gp or tpe",
        ),
        ("space.yaml --seed -1", "--seed must be at least 0; got -1"),
        ("space.yaml --seeds 2", "--seeds needs --rerun"),
        ("--report r", "cannot read a.db"),
        ("--report r --rerun best", "cannot be combined"),
        ("space.yaml --report r", "--report cannot be combined with a SPACE"),
        ("--report r -- a", "combined with options after --"),
        ("space.yaml --overwrite", "--overwrite needs --report"),
        ("--rerun 1 --trials 3", "--rerun cannot be combined with --trials"),
        ("space.yaml --study 'a\nb'", "control characters"),
        ("space.yaml --study a/b", "without /"),
        ("space.yaml --study ..", "without /"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(words, problem, folder):
    assert problem in refused("tune", *STUDY, *shlex.split(words))
    assert [path.name for path in folder.iterdir()] == ["space.yaml"]


def test_the_best_of_other_studies_are_tried(folder):
    """Once each, before the sampler's, with what they lack drawn; a second call adds nothing."""
    (folder / "two.yaml").write_text(SPACE + "clip-norm: {choices: [2]}\n")
    best = json.loads(doc(*TUNE, "--trials", 3, "--json", *BASE)[0])["best"]
    study = ("--study", "two", *STORAGE, "--sampler", "random")
    enqueue = ("tune", "two.yaml", *study, "--enqueue", "s")
    for trials in (2, 3):
        result = json.loads(doc(*enqueue, "--trials", trials, "--json", *BASE)[0])
        assert result["complete"] == trials
        found = load_study(open_storage(STORAGE[1], create=False), "two").study.get_trials()
        assert ["origin" in trial.user_attrs for trial in found] == [True, *[False] * (trials - 1)]
    assert found[0].user_attrs["origin"] == f"s, trial {best['trial']}"
    assert found[0].params == {**best["settings"], "clip-norm": 2}


def test_a_new_study_in_the_folder_of_another_one(folder):
    doc(*TUNE, "--trials", 1, *BASE)
    other = ("tune", "space.yaml", "--study", "s", "--storage", "b.journal")
    assert "holds trials of another study" in refused(*other, *BASE)


def test_studies_that_cannot_be_enqueued(folder):
    doc(*TUNE, "--trials", 2, *BASE)
    rest = ("--study", "t", *STORAGE, "--trials", 1, "--enqueue", "s", *BASE)
    for option in ("lr", "clip-norm"):
        (folder / "other.yaml").write_text(f"{option}: {{low: 2, high: 3}}\n")
        problem = refused("tune", "other.yaml", *rest)
        assert f"(--{option})" in problem and "got --lr 0." in problem
    assert "'s'; got 't'" in refused(*TUNE, "--enqueue", "t", *BASE)


def test_without_optuna(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda x: None if x == "optuna" else find(x))
    assert "not installed: pip install optuna" in refused(*TUNE, *BASE)


def test_durations():
    assert [duration(s) for s in (12, 90, 5400)] == ["12 s", "1.5 min", "1.5 h"]
