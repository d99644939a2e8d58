"""The command line that is tuned, read by fairseq's own parser."""

import sys

import pytest
from conftest import PACKAGE, SMALL_MODEL, SMALL_TRAINING, refusal

from fairseq_doc.tuning.command import (
    Command,
    kinds_of_numbers,
    read_command,
    with_options,
)
from fairseq_doc.tuning.space import parse_space, read_space

# Without what a space gives
TRAINING = SMALL_TRAINING.replace("--lr 10 ", "").replace("--weight-decay 1.2e-6", "")
BASE = f"fairseq-train data --user-dir {PACKAGE} {SMALL_MODEL} {TRAINING}".split()
SPACE = parse_space(
    {"lr": {"low": 1, "high": 30.0}, "output-dropout": {"low": 0, "high": 0.9}}, "x"
)


def test_a_command_and_its_direction():
    argv = sys.argv
    command = read_command(BASE, SPACE)
    assert command == Command(tuple(BASE), "loss", False)
    more = ["--best-checkpoint-metric", "ppl", "--maximize-best-checkpoint-metric"]
    command = read_command(["/opt/fairseq-train", *BASE[1:], *more], SPACE)
    assert (command.metric, command.maximize) == ("ppl", True)
    assert sys.argv is argv


@pytest.mark.parametrize(
    "words, problem",
    [
        (["fairseq-hydra-train"], "-- fairseq-train DATA ..., after the other arguments"),
        (["fairseq-train"], "--arch, the model, is missing"),
        (BASE[:1] + BASE[2:], "the following arguments are required: data"),
        ([*BASE, "--unheard-of", "3"], "unrecognized arguments: --unheard-of 3"),
        ([*BASE, "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        ([*BASE, "--help"], "is not accepted by fairseq-train"),
        ([*BASE, "--save-dir", "x"], "--save-dir cannot be given"),
        ([*BASE, "--restore-file=x.pt"], "--restore-file cannot be given"),
        ([*BASE, "--lr=3"], "--lr is both in the space and in the command"),
        (["fairseq-train", "d", "--user-dir", "/none"], "FileNotFoundError"),
    ],
)
def test_a_command_that_cannot_be_tuned(words, problem, capsys):
    assert problem in refusal(read_command, words, SPACE)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "option, values, problem",
    [
        ("output-dropot", {"low": 1, "high": 2}, "unrecognized arguments: --output-dropot"),
        ("max-epoch", {"low": 0.5, "high": 1.5}, "--max-epoch: invalid int value: '0.5'"),
        ("optimizer", {"choices": ["nt_asgd", "none"]}, "--optimizer is both in the space"),
        ("save-dir", {"choices": ["a", "b"]}, "--save-dir cannot be given"),
    ],
)
def test_a_space_that_does_not_fit_the_command(option, values, problem):
    assert problem in refusal(read_command, BASE, parse_space({option: values}, "x"))


def test_the_kind_of_an_option_is_that_of_the_parser():
    kinds = kinds_of_numbers(BASE)
    expected = {"lr": float, "clip-norm": float, "max-epoch": int, "update-freq": int}
    assert {option: kinds.get(option) for option in expected} == expected
    assert not {"doc-components", "cpu", "log-file"} & kinds.keys()


def stored(*words):
    return Command((*BASE, *words), "loss", False)


def test_a_trial_with_further_options():
    tried = {"lr": 0.5, "adam-betas": "(0.9, 0.999)"}
    command = with_options(stored("--optimizer", "adam", "--cpu"), tried, ["--max-epoch", "3"])
    assert command.args.lr == [0.5] and command.args.max_epoch == 3 and command.args.cpu
    replaced = with_options(stored("--max-epoch", "5"), {}, ["--max-epoch", "3"])
    assert replaced.words == (*BASE, "--max-epoch", "3")
    for words, problem in ((["--lr=3"], "--lr cannot"), (["--seed", "3"], "--seed cannot")):
        assert problem in refusal(with_options, stored(), tried, words)


def test_a_ready_space_names_options():
    """The others are tried in tests/integration: test_tune.py and docs/tuning.md."""
    words = f"fairseq-train data --user-dir {PACKAGE} --task bptt_language_modeling "
    words += "--arch lstm_melis_lm --criterion doc_cross_entropy --optimizer adam"
    assert read_command(words.split(), read_space("melis_deep")).words == tuple(words.split())


@pytest.mark.parametrize(
    "words",
    [
        ["--user-dir", "elsewhere"],
        ["--log-file", "log"],
        ["--max-epoch", "3", "--log-file=x"],
        ["--use-plasma-view"],
        ["--lr", "open('made', 'w')", "--lr", "3"],
        ["--best-checkpoint-metric", "../x"],
    ],
    ids=" ".join,
)
def test_what_a_stranger_s_study_could_write_or_run_is_refused(words, folder):
    """Until the user names it too."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "__init__.py").touch()
    assert "if you trust it, repeat it" in refusal(with_options, stored(*words), {}, [])
    setting = {words[-2].removeprefix("--"): words[-1]} if len(words) == 2 else {"log-file": "x"}
    assert "if you trust it" in refusal(with_options, stored(), setting, [])
    assert list(folder.iterdir()) == [folder / "elsewhere"]
    if words[0] == "--log-file":
        assert with_options(stored(*words), {}, words).words == (*BASE, *words)
