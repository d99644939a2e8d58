"""Systems that are compared: what the command line lacks, names, means and distances."""

import math

import pytest
from conftest import PACKAGE, SMALL_MODEL, SMALL_TRAINING, refusal

from fairseq_doc.tuning import comparison
from fairseq_doc.tuning.comparison import (
    chosen_systems,
    compare,
    completed,
    curves_of,
    summary,
)

TRAINING = SMALL_TRAINING.replace("--seed 3 ", "")
BASE = f"fairseq-train data --user-dir {PACKAGE} {TRAINING}".split()


@pytest.fixture
def text_of(monkeypatch):
    """Give the text so many tokens."""
    return lambda tokens: monkeypatch.setattr(comparison, "_training_tokens", lambda data: tokens)


def test_what_is_given_is_kept(text_of):
    text_of(60_000)
    given = ["fairseq-train", "data", "--max-update", "9", "--clip-norm=1", "--nonmono", "7"]
    words, _ = completed(given)
    assert words[: len(given)] == given
    assert "--max-epoch" not in words and "--clip-norm" not in words
    assert words.count("--nonmono") == 1


def test_what_is_given_replaces_a_systems_own_options(text_of):
    text_of(60_000)
    given = ["fairseq-train", "data", "--lr", "5", "--layer-dims=9,9,8", "--optimizer", "adam"]
    words, systems = completed(given)
    assert all("--lr" not in text and "--layer-dims" not in text for text in systems.values())
    assert "--decoder-embed-dim 64" in systems["doc"] and "--ar-alpha" in words
    assert "--nonmono" not in words and "--weight-decay" not in words
    words, _ = completed(["fairseq-train", "data", "--criterion", "cross_entropy"])
    assert "--ar-alpha" not in words


def test_a_translation_gets_systems_alone():
    for task in (["--task", "translation"], ["--task=translation"]):
        words, systems = completed(["fairseq-train", "data", *task])
        assert words == ["fairseq-train", "data", *task, "--no-epoch-checkpoints"]
        assert all("lstm_luong_doc_small" in text for text in systems.values())


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--lr", "3", "data"], "expected fairseq-train DATA, then options; got '--lr'"),
        (["data", "--arch", "lstm_doc_lm"], "expected no --arch"),
        (["data", "--task", "masked_lm"], "--task: expected one of bptt_language_modeling, tran"),
    ],
)
def test_what_the_usual_systems_cannot_complete_is_refused(words, problem):
    assert problem in refusal(completed, ["fairseq-train", *words])


@pytest.mark.parametrize(
    "tokens, size, epochs, nonmono",
    [(60_000, "small", 40, 4), (930_000, "small", 21, 2), (100_000_000, "ptb", 10, 2)],
)
def test_the_text_gives_models_and_epochs(text_of, tokens, size, epochs, nonmono):
    text_of(tokens)
    kinds = {"softmax": "awd", "mos": "mos", "doc": "doc"}
    for name, system in chosen_systems(kinds, [], ["fairseq-train", "data"], print).items():
        args = system.args
        assert args.arch == f"lstm_{kinds[name]}_lm_{size}"
        assert ("--decoder-embed-dim" in system.words) == (tokens == 60_000)
        assert args.lr == ([30.0] if name == "softmax" else [20.0])
        assert (args.max_epoch, args.nonmono) == (epochs, nonmono)


@pytest.mark.parametrize(
    "system, words, problem",
    [
        (f"a/b={SMALL_MODEL}", BASE, "a system's name of letters and digits; got 'a/b'"),
        (f"..={SMALL_MODEL}", BASE, "got '..'"),
        (f"={SMALL_MODEL}", BASE, "got ''"),
        ("a=--arch 'x", BASE, "a: expected options of fairseq-train: No closing quotation"),
        ("a=--arch nothing", BASE, "invalid choice: 'nothing'"),
        (f"a={SMALL_MODEL} --seed 3", BASE, "--seed: expected none"),
        (f"a={SMALL_MODEL}", [*BASE, "--save-dir", "x"], "--save-dir: expected none"),
        (f"a={SMALL_MODEL}", ["python", "x"], "expected -- fairseq-train DATA"),
    ],
)
def test_what_cannot_be_compared_is_refused(system, words, problem):
    assert problem in refusal(chosen_systems, [], [system, "b="], words, print)


def test_trainings_that_diverge_do_not_count(tmp_path, monkeypatch):
    names = [f"{name}={SMALL_MODEL}" for name in "abc"]
    systems = chosen_systems([], names, BASE, print)
    values = {"a": {1: math.inf}, "b": {1: 2.0, 2: math.inf}, "c": {1: 4.0, 2: 6.0}}
    monkeypatch.setattr(comparison, "_check", lambda *_: None)
    monkeypatch.setattr(comparison, "train_seeds", lambda *_: values)
    monkeypatch.setattr(
        comparison,
        "_evaluation",
        lambda system, folder, *_: {
            "valid": values[folder.name[0]][int(folder.name[-1])],
            "test": 1.0,
            "parameters": 1,
            "tokens_per_second": 1.0,
        },
    )
    remarks = []
    rows = compare(systems, 2, 1, tmp_path, None, None, remarks.append)
    assert {name: row["seeds"] for name, row in rows.items()} == {"b": [1], "c": [1, 2]}
    assert rows["b"]["valid"]["distance"] == 0 and rows["c"]["valid"]["distance"] == 3
    assert remarks == ["a: every training diverged: it is left out"]
    del values["b"], values["c"]
    assert "expected a training that does not diverge" in refusal(
        compare, systems, 2, 1, tmp_path, None, None, print
    )


def test_the_distance_in_deviations():
    found = summary([1.0, 3.0], [5.0, 9.0])
    assert (found["mean"], found["distance"]) == (2.0, -5.0)
    assert math.isclose(found["deviation"], math.sqrt(2))
    assert math.isclose(found["distance_in_deviations"], -5 / math.sqrt((2 + 8) / 2))
    one = summary([1.0], [5.0, 9.0])
    assert one["deviation"] is None and one["distance_in_deviations"] is None
    assert summary([2.0, 2.0], [2.0, 2.0])["distance_in_deviations"] is None


def test_the_curves_of_a_system_are_its_seeds_logs(tmp_path):
    for seed, perplexities in ((1, [90, 70, 60]), (2, [110, 90])):
        folder = tmp_path / f"a-seed{seed}"
        folder.mkdir()
        lines = [
            f"epoch {epoch:03d} | valid on 'valid' subset | loss 1 | ppl {perplexity} |"
            for epoch, perplexity in enumerate(perplexities, start=1)
        ]
        (folder / "log.txt").write_text("\n".join(lines))
    first, second = curves_of({"a": {"seeds": [1, 2]}}, tmp_path)["a"]
    assert first.perplexities == {1: 90, 2: 70, 3: 60} and second.perplexities == {1: 110, 2: 90}
