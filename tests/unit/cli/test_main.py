import json
import logging

import pytest

from fairseq_doc.cli import eval_lm
from fairseq_doc.cli.main import main
from fairseq_doc.errors import FairseqDocError

pytestmark = pytest.mark.usefixtures("logging_of_its_own")

LINE = ["eval-lm", "data", "--path", "a.pt"]
RESULT = {"answer": 42, "words": ["a", "ü"], "nothing": None}


@pytest.fixture
def does(monkeypatch):
    """Give eval-lm something else to do and to say."""

    def replace(run):
        monkeypatch.setattr(eval_lm, "run", run)
        monkeypatch.setattr(eval_lm, "as_text", lambda result: f"answer:\n{result['answer']}")

    return replace


def raising(error):
    def run(args):
        raise error

    return run


def test_a_result_is_printed_as_text_or_as_one_json_object(does, capsys):
    does(lambda args: RESULT)
    assert main(LINE) == 0
    assert capsys.readouterr() == ("answer:\n42\n", "")
    assert main([*LINE, "--json"]) == 0
    printed, told = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert len(printed.splitlines()) == 1 and told == ""


def test_arguments_reach_the_subcommand(does, capsys):
    got = {}

    def run(args):
        got.update(vars(args))
        return RESULT

    does(run)
    main([*LINE, "--gen-subset", "valid", "--batch-size", "3", "--cpu"])
    expected = {"data": "data", "path": "a.pt", "gen_subset": "valid", "batch_size": 3, "cpu": True}
    assert got | expected == got
    assert got["eval_window"] is None and got["command"] is eval_lm


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_the_user_can_mend_is_one_line_and_status_1(does, capsys, options):
    does(raising(FairseqDocError("--lr: expected 20; got x")))
    assert main([*LINE, *options]) == 1
    told = "fairseq-doc eval-lm: error: --lr: expected 20; got x\n"
    assert capsys.readouterr() == ("", told)


def test_an_error_that_was_wrapped_is_told_as_well(does, capsys):
    error = RuntimeError("Cannot load model parameters")
    error.__context__ = FairseqDocError("of another dictionary")
    does(raising(error))
    assert main(LINE) == 1
    assert capsys.readouterr().err == "fairseq-doc eval-lm: error: of another dictionary\n"


def test_a_real_error_of_a_real_command(tmp_path, capsys):
    assert main(["eval-lm", str(tmp_path), "--path", f"{tmp_path}/none.pt", "--json"]) == 1
    printed, told = capsys.readouterr()
    assert printed == ""
    assert len(told.splitlines()) == 1 and f"no checkpoint at {tmp_path}/none.pt" in told


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("a"), SystemExit(3)])
def test_every_other_error_is_raised(does, error):
    does(raising(error))
    with pytest.raises(type(error)) as caught:
        main(LINE)
    assert caught.value is error


def test_an_interrupt_has_its_own_status(does, capsys):
    does(raising(KeyboardInterrupt()))
    assert main(LINE) == 130
    assert capsys.readouterr() == ("", "")


def test_information_is_not_logged_and_warnings_are_on_standard_error(does, capsys):
    def run(args):
        logging.getLogger("fairseq_doc.tasks.x").info("dictionary: 5 words")
        logging.getLogger("fairseq_doc.tasks.x").warning("careful")
        return RESULT

    does(run)
    assert main([*LINE, "--json"]) == 0
    printed, told = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert "careful" in told and "dictionary" not in told
