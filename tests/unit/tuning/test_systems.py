"""The systems of a comparison: what the command line lacks, and their names."""

import re

import pytest
from conftest import SMALL_MODEL, refusal

from fairseq_doc.tuning.systems import chosen_systems, completed

from .conftest import BASE


@pytest.fixture
def text_of(monkeypatch):
    """Give the text so many tokens."""
    name = "fairseq_doc.tuning.systems._training_tokens"
    return lambda tokens: monkeypatch.setattr(name, lambda data: tokens)


def test_what_is_given_is_kept(text_of):
    text_of(60_000)
    given = ["fairseq-train", "data", "--max-update", "9", "--clip-norm=1", "--nonmono", "7"]
    words, _ = completed(given)
    assert words[: len(given)] == given
    assert "--max-epoch" not in words and "--clip-norm" not in words
    assert words.count("--nonmono") == 1
    words, _ = completed(["fairseq-train", "data", "--max-sentences", "40"])
    assert "--batch-size" not in words and "--batch-size-valid" in words


def test_what_is_given_replaces_a_systems_own_options(text_of):
    text_of(60_000)
    given = ["fairseq-train", "data", "--lr", "5", "--layer-dims=9,9,8", "--optimizer", "adam"]
    words, systems = completed(given)
    assert all("--lr" not in text and "--layer-dims" not in text for text in systems.values())
    assert "--decoder-embed-dim 64" in systems["doc"] and "--ar-alpha" in words
    assert "--nonmono" not in words and "--weight-decay" not in words


def test_another_optimizer_needs_a_learning_rate(text_of):
    text_of(60_000)
    message = refusal(completed, ["fairseq-train", "data", "--optimizer", "adam"])
    assert message == "--optimizer adam needs --lr, too"
    _, systems = completed(["fairseq-train", "data", "--optimizer=nt_asgd"])
    assert "--lr 30" in systems["softmax"]


def test_a_translation_gets_systems_alone():
    for task in (["--task", "translation"], ["--task=translation"]):
        words, systems = completed(["fairseq-train", "data", *task])
        added = "--user-dir fairseq_doc --no-epoch-checkpoints --criterion doc_cross_entropy"
        assert words == ["fairseq-train", "data", *task, *added.split()]
        assert all("lstm_luong_doc_small" in text for text in systems.values())


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--lr", "3", "data"], "expected fairseq-train DATA, then options; got '--lr'"),
        (["data", "--arch", "lstm_doc_lm"], "--arch cannot be given"),
        (["data", "-a", "lstm_doc_lm"], "--arch cannot be given"),
    ],
)
def test_what_the_usual_systems_cannot_complete_is_refused(words, problem):
    assert re.search(problem, refusal(completed, ["fairseq-train", *words]))


@pytest.mark.parametrize("option", ["--task=masked_lm", "--criterion=cross_entropy"])
def test_another_task_or_criterion_is_refused(option, capsys):
    with pytest.raises(SystemExit):
        completed(["fairseq-train", "data", option])
    assert "invalid choice" in capsys.readouterr().err


def test_the_data_of_a_translation_needs_its_task(tmp_path):
    (tmp_path / "train.en-de.en.idx").touch()
    assert "--task translation" in refusal(completed, ["fairseq-train", str(tmp_path)])


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
        (f"a/b={SMALL_MODEL}", BASE, "letters and digits, NAME='OPTIONS'; got 'a/b="),
        (f"={SMALL_MODEL}", BASE, "got '="),
        ("a=--arch 'x", BASE, "a: expected options of fairseq-train: No closing quotation"),
        ("a=--arch nothing", BASE, "invalid choice: 'nothing'"),
        (f"a={SMALL_MODEL} --seed 3", BASE, "--seed cannot be given"),
    ],
)
def test_what_cannot_be_compared_is_refused(system, words, problem):
    assert problem in refusal(chosen_systems, [], [system, "b="], words, print)
