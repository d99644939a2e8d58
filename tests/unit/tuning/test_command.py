"""The command line that is tuned, read by fairseq's own parser."""

import sys

import pytest
from conftest import PACKAGE, SMALL_MODEL, SMALL_TRAINING, SMALL_TRANSLATION, refusal

from fairseq_doc.tuning.command import Command, read_command, with_options
from fairseq_doc.tuning.space import parse_space, read_space

# Without what a space gives
TRAINING = SMALL_TRAINING.replace("--lr 10 ", "").replace("--weight-decay 1.2e-6", "")
BASE = f"fairseq-train data --user-dir {PACKAGE} {SMALL_MODEL} {TRAINING}".split()
TRANSLATION = SMALL_TRANSLATION.replace("--lr 1 --clip-norm 5", "")
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
        (["fairseq-hydra-train"], "expected -- fairseq-train DATA ... after the other arguments"),
        (["python", "train.py"], "got 'python'"),
        (["fairseq-train"], "no --arch, the model, is given"),
        (BASE[:1] + BASE[2:], "the following arguments are required: data"),
        ([*BASE, "--unheard-of", "3"], "it says: unrecognized arguments: --unheard-of 3"),
        ([*BASE, "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        ([*BASE, "--help"], "expected what fairseq-train takes"),
        ([*BASE, "--fp16", "--tpu"], "Cannot combine --fp16 and --tpu"),
        ([*BASE, "--save-dir", "x"], "--save-dir: expected none"),
        ([*BASE, "--restore-file=x.pt"], "--restore-file: expected none"),
        ([*BASE, "--no-save"], "--no-save: expected none"),
        ([*BASE, "--disable-validation"], "--disable-validation: expected none"),
        ([*BASE, "--lr=3"], "--lr: expected in the space or in the command after --; got both"),
        (["fairseq-train", "d", "--user-dir", "/none"], "it says: FileNotFoundError: /none"),
    ],
)
def test_a_command_that_cannot_be_tuned(words, problem, capsys):
    assert problem in refusal(read_command, words, SPACE)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "option, values, problem",
    [
        ("output-dropot", {"low": 1, "high": 2}, "expected an option of fairseq-train"),
        ("max-epoch", {"low": 0.5, "high": 1.5}, "--max-epoch: invalid int value: '0.5'"),
        ("optimizer", {"choices": ["nt_asgd", "none"]}, "--optimizer: expected in the space or"),
        ("save-dir", {"choices": ["a", "b"]}, "--save-dir, which must be the same in all trials"),
    ],
)
def test_a_space_that_does_not_fit_the_command(option, values, problem):
    assert problem in refusal(read_command, BASE, parse_space({option: values}, "x"))


@pytest.mark.parametrize("folder", ["/tmp", "elsewhere", str(PACKAGE.parent)])
def test_code_that_a_study_names_is_not_run(folder, tmp_path, monkeypatch):
    """Until the user names it; this package's own is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    words = tuple(folder if word == str(PACKAGE) else word for word in BASE)
    foreign = Command(words, "loss", False)
    assert f"add -- --user-dir {folder}" in refusal(with_options, foreign, [], SPACE)
    named = with_options(foreign, ["--user-dir", str(PACKAGE)], SPACE)
    assert named.words == (*words, "--user-dir", str(PACKAGE))
    assert "--user-dir: expected a value; got none" in refusal(
        with_options, foreign, ["--user-dir"], SPACE
    )
    own = Command(tuple(BASE), "loss", False)
    assert with_options(own, ["--max-epoch", "3"], SPACE).words == (*BASE, "--max-epoch", "3")


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
def test_ready_spaces_name_options(name, words):
    assert read_command(words, read_space(name)).words == tuple(words)
