import sys

import pytest

from fairseq_doc.errors import FairseqDocError, first_usage_error
from fairseq_doc.fairseq_patches.error_messages import print_usage_errors_in_one_line


@pytest.fixture
def hook(monkeypatch):
    """The installed hook; what it passes on is listed in ``hook.passed``."""
    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: passed.append(args))
    print_usage_errors_in_one_line()
    installed = sys.excepthook
    installed.passed = passed
    return installed


def caught(function):
    with pytest.raises(Exception) as info:
        function()
    return info.value


def usage_error():
    raise FairseqDocError("--lr: expected 20; got x")


def wrapped():
    """As fairseq wraps what load_state_dict raises."""
    try:
        usage_error()
    except Exception:
        raise Exception("Cannot load model parameters")  # noqa: B904


def chained():
    try:
        usage_error()
    except Exception as error:
        raise RuntimeError("no model") from error


def deep():
    try:
        wrapped()
    except Exception as error:
        raise KeyError("model") from error


def another():
    try:
        raise KeyError("model")
    except KeyError:
        raise ValueError("no model")  # noqa: B904


@pytest.mark.parametrize("function", [usage_error, wrapped, chained, deep])
def test_a_usage_error_is_one_line_wherever_it_is_in_the_chain(hook, capsys, function):
    error = caught(function)
    hook(type(error), error, error.__traceback__)
    assert capsys.readouterr() == ("", "fairseq_doc: error: --lr: expected 20; got x\n")
    assert hook.passed == []


@pytest.mark.parametrize(
    "error, words",
    [
        (AssertionError("Must specify batch size either with --max-tokens"), "got none"),
        (
            Exception(
                "Size of sample #3 is invalid (=(np.int64(1201), 0)) since max_positions=(1024, "
                "1024), skip this example with --skip-invalid-size-inputs-valid-test"
            ),
            "sentence 3 (counted from 0) has too many units: expected at most (1024, 1024) (of "
            "source and target), got (1201, 0);",
        ),
    ],
)
def test_what_fairseq_raises_for_the_user_is_one_line(hook, capsys, error, words):
    hook(type(error), error, error.__traceback__)
    printed, told = capsys.readouterr()
    assert printed == "" and told.count("\n") == 1
    assert told.startswith("fairseq_doc: error: ") and words in told


def test_every_other_error_keeps_its_traceback(hook, capsys):
    error = caught(another)
    hook(type(error), error, error.__traceback__)
    assert capsys.readouterr() == ("", "")
    assert hook.passed == [(ValueError, error, error.__traceback__)]


def test_first_usage_error():
    error = FairseqDocError("text")
    assert first_usage_error(error) is error
    assert first_usage_error(ValueError("text")) is None
    assert first_usage_error(None) is None


def test_a_chain_that_bites_its_tail_ends():
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    assert first_usage_error(one) is None


def test_it_is_a_value_error():
    assert issubclass(FairseqDocError, ValueError)
