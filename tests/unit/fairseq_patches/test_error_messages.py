import sys

import pytest

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import error_messages


@pytest.fixture
def hook(monkeypatch):
    """The installed hook; the errors that it passes on are listed in ``hook.passed``."""
    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: passed.append(args))
    error_messages.print_usage_errors_in_one_line()
    installed = sys.excepthook
    installed.passed = passed
    return installed


def test_a_usage_error_is_one_line_also_where_another_wraps_it(hook, capsys):
    error = RuntimeError("Cannot load model parameters")
    error.__cause__ = FairseqDocError("--lr: expected 20; got x")
    hook(type(error), error, None)
    assert capsys.readouterr() == ("", "fairseq_doc: error: --lr: expected 20; got x\n")
    assert hook.passed == []


@pytest.mark.parametrize(
    "error, facts",
    [
        (
            AssertionError("Must specify batch size either with --max-tokens"),
            ["expected --batch-size", "got none"],
        ),
        (
            Exception(
                "Size of sample #3 is invalid (=(np.int64(1201), 0)) since max_positions=(1024, "
                "1024), skip this example with --skip-invalid-size-inputs-valid-test"
            ),
            ["sentence 3", "at most (1024, 1024)", "got (1201, 0)", "--max-source-positions"],
        ),
    ],
)
def test_an_error_of_fairseq_that_the_user_can_correct_is_one_line(hook, capsys, error, facts):
    hook(type(error), error, None)
    printed, message = capsys.readouterr()
    assert printed == "" and message.count("\n") == 1
    assert message.startswith("fairseq_doc: error: ") and all(fact in message for fact in facts)


def test_every_other_error_keeps_its_traceback(hook, capsys):
    error = ValueError("no model")
    hook(ValueError, error, None)
    assert capsys.readouterr() == ("", "")
    assert hook.passed == [(ValueError, error, None)]


@pytest.mark.parametrize(
    "program, is_command",
    [
        ("/env/bin/fairseq-train", True),
        ("/env/lib/site-packages/fairseq_cli/train.py", True),
        ("/home/me/train.py", False),
        ("-c", False),
        ("", False),
    ],
)
def test_the_hook_is_installed_in_fairseqs_commands_alone(monkeypatch, program, is_command):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", [program])
    before = sys.excepthook
    error_messages.apply()
    assert (sys.excepthook is not before) == is_command
