"""Systems that are compared: their folder, kept evaluations, means and distances."""

import math
from argparse import Namespace

import pytest
from conftest import SMALL_MODEL, refusal

from fairseq_doc.tuning import comparison
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.comparison import compare, summary
from fairseq_doc.tuning.systems import chosen_systems

from .conftest import BASE


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """``trained(values, folder)``: the rows and remarks of systems whose trainings ended with these
    values, and whose perplexity on test is 1, or infinite after a loss of 900."""

    def evaluation(system, folder, *_):
        loss = float((folder / "loss").read_text())
        test = None if loss == 900 else 1.0
        return {"valid": loss, "test": test, "parameters": 1, "tokens_per_second": 1.0}

    def with_losses(values, folder=tmp_path):
        for name, of_seeds in values.items():
            for seed, value in of_seeds.items():
                place = tmp_path / f"{name}-seed{seed}"
                place.mkdir(exist_ok=True)
                (place / "loss").write_text(str(value))
        monkeypatch.setattr(comparison, "train_seeds", lambda *_: values)
        systems = chosen_systems([], [f"{name}={SMALL_MODEL}" for name in values], BASE, print)
        remarks = []
        return compare(systems, 2, 1, folder, None, remarks.append), remarks

    monkeypatch.setattr(comparison, "_check", lambda *_: None)
    monkeypatch.setattr(comparison, "_evaluation", evaluation)
    return with_losses


def test_trainings_that_diverge_do_not_count(trained):
    values = {"a": {1: math.inf}, "b": {1: 2.0, 2: math.inf}, "c": {1: 4.0, 2: 6.0}}
    rows, remarks = trained({**values, "nearly": {1: 2.0, 2: 900}})
    seeds = {name: row["seeds"] for name, row in rows.items()}
    assert seeds == {"b": [1], "c": [1, 2], "nearly": [1]}
    assert rows["b"]["valid"]["distance"] == 0 and rows["c"]["valid"]["distance"] == 3
    assert remarks == [
        "a is left out: all its trainings diverged",
        "nearly, seed 2: counts as diverged, since its score is infinite",
    ]
    lost = {"a": {1: math.inf}, "nearly": {1: 900}}
    assert "all trainings diverged" in refusal(trained, lost)


def test_data_without_checksums_may_not_change_either(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.bin").write_text("a")
    comparison._check_data(str(tmp_path / "data"), tmp_path)
    comparison._check_data(str(tmp_path / "data"), tmp_path)
    (tmp_path / "data" / "train.bin").write_text("b")
    message = refusal(comparison._check_data, str(tmp_path / "data"), tmp_path)
    assert "on other data" in message


@pytest.fixture
def evaluations(tmp_path, monkeypatch):
    """``evaluations(reference)``: BLEU on test of a training, and how many evaluations were not
    kept."""
    calls = []
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_best.pt").touch()
    (tmp_path / "log.txt").touch()
    monkeypatch.setattr(comparison, "best_value", lambda *_: 3.0)
    monkeypatch.setattr(comparison, "_bleu", lambda *_: calls.append(1) or {"test": 30.0})
    system = Command(("fairseq-train", "data"), "loss", False, Namespace(data="data"))

    def evaluated(reference="a"):
        (tmp_path / "ref").write_text(reference)
        found = comparison._evaluation(system, tmp_path, str(tmp_path / "ref"))
        assert found["valid"] == 3.0
        return found["test"], len(calls)

    return evaluated


def test_an_evaluation_is_kept_while_the_reference_is_the_same(evaluations):
    assert [evaluations(content) for content in "aabba"] == [(30.0, n) for n in (1, 1, 2, 2, 3)]


def test_a_damaged_evaluation_is_made_again(tmp_path, evaluations):
    evaluations()
    kept = (tmp_path / "evaluation.json").read_text()
    (tmp_path / "evaluation.json").write_text(kept.replace("30", "31"))
    assert evaluations() == (30.0, 2)


def test_an_infinite_perplexity_is_none_at_once_and_when_kept(monkeypatch, evaluations):
    monkeypatch.setattr(comparison, "_bleu", lambda *_: {"test": math.inf})
    for _ in range(2):
        assert evaluations()[0] is None


def test_the_distance_in_deviations():
    found = summary([1.0, 3.0], [5.0, 9.0])
    assert (found["mean"], found["distance"]) == (2.0, -5.0)
    assert math.isclose(found["deviation"], math.sqrt(2))
    assert math.isclose(found["distance_in_deviations"], -5 / math.sqrt((2 + 8) / 2))
    one = summary([1.0], [5.0, 9.0])
    assert one["deviation"] is None and one["distance_in_deviations"] is None
    assert summary([2.0, 2.0], [2.0, 2.0])["distance_in_deviations"] is None


def test_a_folder_that_holds_links_is_refused(tmp_path, tmp_path_factory, trained):
    """It may itself be a link."""
    other, values = tmp_path_factory.mktemp("other"), {"a": {1: 2.0}, "b": {1: 2.0}}
    (other / "link").symlink_to(tmp_path)
    rows, _ = trained(values, other / "link")
    assert rows == trained(values)[0]
    (tmp_path / "a-seed1" / "checkpoints").symlink_to(other)
    for folder in (tmp_path, other / "link"):
        assert "expected no links" in refusal(trained, values, folder)
    assert [path.name for path in other.iterdir()] == ["link"]
