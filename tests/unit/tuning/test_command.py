"""The command line that is tuned, read by fairseq's own parser."""

import sys

import pytest
from conftest import PACKAGE, SMALL_MODEL, SMALL_TRAINING, SMALL_TRANSLATION, refusal
from fairseq import options

from fairseq_doc.tuning.command import read_command
from fairseq_doc.tuning.space import parse_space, read_space

# Without what a space gives
TRAINING = SMALL_TRAINING.replace("--lr 10 ", "").replace("--weight-decay 1.2e-6", "")
BASE = f"fairseq-train data --user-dir {PACKAGE} {SMALL_MODEL} {TRAINING}".split()
TRANSLATION = SMALL_TRANSLATION.replace("--lr 1 --clip-norm 5", "")
SPACE = parse_space(
    {"lr": {"low": 1, "high": 30.0}, "output-dropout": {"low": 0, "high": 0.9}}, "x"
)


def space(**parameters):
    return parse_space({name.replace("_", "-"): p for name, p in parameters.items()}, "x")


def test_a_command_and_its_direction():
    argv = sys.argv
    command = read_command(BASE, SPACE)
    assert command.words == tuple(BASE)
    assert (command.metric, command.maximize) == ("loss", False)
    more = ["--best-checkpoint-metric", "ppl", "--maximize-best-checkpoint-metric"]
    command = read_command([*BASE, *more], SPACE)
    assert (command.metric, command.maximize) == ("ppl", True)
    assert sys.argv is argv


def test_a_translation():
    words = f"/opt/fairseq-train data --user-dir {PACKAGE} {TRANSLATION}".split()
    assert read_command(words, read_space("luong")).metric == "loss"


@pytest.mark.parametrize(
    "words, problem",
    [
        ([], "expected -- fairseq-train DATA"),
        (["fairseq-hydra-train"], "begins with fairseq-train after --; got 'fairseq-hydra-train'"),
        (["python", "train.py"], "got 'python'"),
        (["fairseq-train"], "no --arch, the model, is given"),
        (BASE[:1] + BASE[2:], "the following arguments are required: data"),
        ([*BASE, "--unheard-of", "3"], "it says: unrecognized arguments: --unheard-of 3"),
        ([*BASE, "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        ([*BASE, "--arch", "none"], "argument --arch/-a: invalid choice: 'none'"),
        ([*BASE, "--help"], "expected what fairseq-train takes"),
        ([*BASE, "--fp16", "--tpu"], "Cannot combine --fp16 and --tpu"),
        ([*BASE, "--save-dir", "x"], "--save-dir: expected none"),
        ([*BASE, "--save-dir=x"], "--save-dir: expected none"),
        ([*BASE, "--restore-file", "x.pt"], "--restore-file: expected none"),
        ([*BASE, "--no-save"], "--no-save: expected checkpoints"),
        ([*BASE, "--disable-validation"], "--disable-validation: expected validations"),
        ([*BASE, "--lr", "3"], "--lr: expected in the space or in the command after --; got both"),
        ([*BASE, "--lr=3"], "--lr: expected in the space or in the command"),
        (["fairseq-train", "d", "--user-dir", "/none"], "it says: FileNotFoundError: /none"),
    ],
)
def test_a_command_that_cannot_be_tuned(words, problem, capsys):
    assert problem in refusal(read_command, words, SPACE)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "parameters, problem",
    [
        (
            {"lrr": {"low": 1, "high": 2}},
            "the space has --lrr: expected an option of this training",
        ),
        ({"output_dropot": {"low": 0, "high": 1}}, "did you mean --output-dropout?"),
        (
            {"max_epoch": {"low": 0.5, "high": 1.5}},
            "argument --max-epoch: invalid int value: '0.5'",
        ),
        ({"optimizer": {"choices": ["nt_asgd", "none"]}}, "--optimizer: expected in the space or"),
        ({"doc_activation": {"choices": ["tanh", "x"]}}, "--doc-activation"),
        ({"save_dir": {"choices": ["a", "b"]}}, "--save-dir, which must be the same in all trials"),
    ],
)
def test_a_space_that_does_not_fit_the_command(parameters, problem):
    assert problem in refusal(read_command, BASE, space(**parameters))


def known_options(words, monkeypatch):
    monkeypatch.setattr("sys.argv", words)
    parser = options.get_training_parser()
    options.parse_args_and_arch(parser, words[1:])
    return set(parser._option_string_actions)


@pytest.mark.parametrize(
    "name, words",
    [
        ("awd", BASE),
        ("luong", f"fairseq-train data --user-dir {PACKAGE} {TRANSLATION}".split()),
        (
            "melis_deep",
            f"fairseq-train data --user-dir {PACKAGE} --task bptt_language_modeling "
            "--arch lstm_melis_lm --criterion doc_cross_entropy --optimizer adam".split(),
        ),
    ],
)
def test_ready_spaces_name_options(name, words, monkeypatch):
    """--l2 belongs to a criterion that may be older than it."""
    missing = {f"--{option}" for option in read_space(name)} - known_options(words, monkeypatch)
    assert missing <= {"--l2"}
    if not missing:
        read_command(words, read_space(name))
