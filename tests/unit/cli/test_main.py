import contextlib
import io
import json
import logging
from pathlib import Path
from unittest import mock

import pytest

from fairseq_doc.cli import eval_lm
from fairseq_doc.cli.main import SUBCOMMANDS, TRACEBACK, main, make_parser
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import progress
from fairseq_doc.files import text_lines

pytestmark = pytest.mark.usefixtures("logging_of_its_own")

LINE = ["eval-lm", "data", "--path", "a.pt"]
RESULT = {"answer": 42, "words": ["a", "ü"], "nothing": None}


@pytest.fixture
def does(monkeypatch):
    """Give eval-lm something else to do and to say."""

    def replace(result=RESULT, **behaviour):
        monkeypatch.setattr(eval_lm, "run", mock.Mock(return_value=result, **behaviour))
        monkeypatch.setattr(eval_lm, "as_text", lambda result: f"answer:\n{result['answer']}")

    return replace


def test_a_result_is_printed_as_text_or_as_one_json_object(does, capsys):
    does()
    assert main(LINE) == 0
    assert capsys.readouterr() == ("answer:\n42\n", "")
    assert main([*LINE, "--json"]) == 0
    printed, err = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert len(printed.splitlines()) == 1 and err == ""


USAGE = FairseqDocError("--lr: expected 20; got x")
LAST_LINE = "fairseq-doc eval-lm: error: --lr: expected 20; got x\n"


@pytest.mark.parametrize(
    "error, status, line", [(USAGE, 1, LAST_LINE), (KeyboardInterrupt(), 130, "")]
)
def test_how_an_error_ends_a_command(does, capsys, error, status, line):
    """Also behind another one, which omegaconf's ``finally`` raises in settings half made."""
    outer = RuntimeError("Cannot load model parameters")
    outer.__context__ = error
    does(side_effect=outer)
    assert main([*LINE, "--json"]) == status
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("a"), SystemExit(3)])
def test_every_other_error_is_raised_if_the_environment_says_so(does, error):
    does(side_effect=error)
    with pytest.raises(type(error)) as caught:
        main(LINE)
    assert caught.value is error


def test_every_other_error_is_a_line_that_names_the_file(does, capsys, tmp_path, monkeypatch):
    def run(settings):
        next(text_lines(tmp_path / "a\nfile"))
        raise OverflowError("of\na number\x1b")

    monkeypatch.delenv(TRACEBACK)
    (tmp_path / "a\nfile").write_text("9")
    does(side_effect=run)
    assert main(LINE) == 70
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == "" and "error: OverflowError (of a number\\x1b)" in line
    assert str(tmp_path / "a\\nfile") in line and f"{TRACEBACK}=1" in line


def test_information_is_not_logged_and_warnings_are_on_standard_error(does, capsys):
    def run(args):
        assert progress.interval == 100  # a bar is shown
        logging.getLogger("fairseq_doc.tasks.x").info("dictionary: 5 words")
        logging.getLogger("fairseq_doc.tasks.x").warning("careful")
        return RESULT

    does(side_effect=run)
    assert main([*LINE, "--json"]) == 0
    printed, err = capsys.readouterr()
    assert json.loads(printed) == RESULT
    assert "careful" in err and "dictionary" not in err
    assert progress.interval is None  # what a program does later shows no bar


@pytest.mark.parametrize("text", ["-2:4:0.5", "-1e-3", "-.5"])
def test_a_value_may_begin_with_a_minus(text):
    words = ["rescore", "data", "nbest", "--path", "a.pt", "--bonuses", text]
    assert make_parser("rescore").parse_args(words).bonuses == text


def test_every_file_with_a_command_is_found():
    files = Path(eval_lm.__file__).parent.glob("*.py")
    commands = [path.stem.replace("_", "-") for path in files if "EXAMPLE =" in path.read_text()]
    assert set(commands) == SUBCOMMANDS.keys()


def printed_in_ascii(words):
    """What a command prints in a locale without UTF-8."""
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        main(words)
    out.flush()
    return out.buffer.getvalue().decode()


def test_help_and_names_of_files_are_printed_in_any_locale(does):
    assert "\u2047" in printed_in_ascii(["bleu", "--help"])
    does({"answer": "ü.pt".encode().decode("ascii", "surrogateescape")})
    assert printed_in_ascii(LINE) == "answer:\nü.pt\n"


@pytest.mark.parametrize("on_terminal, printed", [(True, "\\x1b[31m"), (False, "\x1b[31m")])
def test_nothing_that_is_printed_commands_the_terminal(
    does, capsys, monkeypatch, on_terminal, printed
):
    does({"answer": "\x1b[31m\ta\nb\ud800"})
    monkeypatch.setattr("sys.stdout.isatty", lambda: on_terminal)
    assert main(LINE) == 0
    assert capsys.readouterr().out == f"answer:\n{printed}\ta\nb\\ud800\n"
