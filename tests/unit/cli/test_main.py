import contextlib
import io
import json
import logging
import shlex

import pytest

from fairseq_doc.cli import eval_lm
from fairseq_doc.cli.main import COMMANDS, OF_FAIRSEQ, SUBCOMMANDS, main, make_parser, module_of
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
    printed, err = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert len(printed.splitlines()) == 1 and err == ""


def test_arguments_reach_the_subcommand(does, capsys):
    got = {}

    def run(args):
        got.update(vars(args))
        return RESULT

    does(run)
    main([*LINE, "--gen-subset", "valid", "--batch-size", "3", "--cpu"])
    expected = {"data": "data", "path": "a.pt", "gen_subset": "valid", "batch_size": 3, "cpu": True}
    assert got | expected == got
    assert got["eval_window"] is None and got["cache"] is None


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_error_of_the_user_is_one_line_and_status_1(does, capsys, options):
    does(raising(FairseqDocError("--lr: expected 20; got x")))
    assert main([*LINE, *options]) == 1
    line = "fairseq-doc eval-lm: error: --lr: expected 20; got x\n"
    assert capsys.readouterr() == ("", line)


def test_an_error_that_was_wrapped_is_found(does, capsys):
    error = RuntimeError("Cannot load model parameters")
    error.__context__ = FairseqDocError("of another dictionary")
    does(raising(error))
    assert main(LINE) == 1
    assert capsys.readouterr().err == "fairseq-doc eval-lm: error: of another dictionary\n"


def test_a_real_error_of_a_real_command(tmp_path, capsys):
    assert main(["eval-lm", str(tmp_path), "--path", f"{tmp_path}/none.pt", "--json"]) == 1
    printed, err = capsys.readouterr()
    assert printed == ""
    assert len(err.splitlines()) == 1 and f"no checkpoint at {tmp_path}/none.pt" in err


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
    printed, err = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert "careful" in err and "dictionary" not in err


@pytest.mark.parametrize("name", OF_FAIRSEQ)
def test_a_command_of_fairseq_is_named_in_one_line(name, capsys):
    assert name not in SUBCOMMANDS
    assert main([name, "data", "--lr", "1"]) == 2
    printed, err = capsys.readouterr()
    assert printed == "" and len(err.splitlines()) == 1
    assert f"got {name}, one of fairseq's: use fairseq-{name} with --user-dir" in err


def test_help_lists_every_command_in_the_order_of_work(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    words = capsys.readouterr().out.split()
    places = []
    for group, commands in COMMANDS.items():
        places += [words.index(word) for word in (f"{group}:", *commands)]
    assert places == sorted(places)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_every_command_has_an_example_that_it_accepts(name, capsys):
    command = module_of(name)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: fairseq-doc {name} [-h]") and "--json" in text
    assert "example:" in text and command.EXAMPLE in text
    assert getattr(command, "NAME", name) == name
    for line in command.EXAMPLE.splitlines():
        words = shlex.split(line.partition("fairseq-doc ")[2])
        assert make_parser().parse_args(words).command is command


def printed_in_ascii(words):
    """What a command prints in a locale without UTF-8."""
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        main(words)
    out.flush()
    return out.buffer.getvalue().decode()


def test_help_and_names_of_files_are_printed_in_any_locale(does):
    assert "\u2047" in printed_in_ascii(["bleu", "--help"])
    does(lambda args: {"answer": "ü.pt".encode().decode("ascii", "surrogateescape")})
    assert printed_in_ascii(LINE) == "answer:\nü.pt\n"
