"""A command's wrong ending is found."""

from types import SimpleNamespace

import pytest
from harm.endings import check_ending, check_files

ERROR = "fairseq-doc score: error: "


def ended(status, out, err):
    return SimpleNamespace(words=["fairseq-doc", "score"], status=status, out=out, err=err)


@pytest.mark.parametrize(
    "status, out, err",
    [
        (-11, "", ""),
        (4, "", f"{ERROR}x"),
        (1, "", ""),
        (1, "", "the file is damaged"),
        (1, "3 1 4", f"{ERROR}x"),
        (1, "", f"Traceback (most recent call last)\n{ERROR}x"),
        (70, "", f"{ERROR}KeyError (x)"),
    ],
)
def test_a_wrong_ending(status, out, err):
    with pytest.raises(AssertionError):
        check_ending(ended(status, out, err))


def test_right_endings():
    check_ending(ended(0, "3 1 4", "a warning"))
    check_ending(ended(70, "", f"{ERROR}KeyError (x) after reading a.txt"))


def test_files_that_are_changed_or_left():
    failed, before = ended(1, "", ""), {"a": 1}
    for after in ({"a": 2}, {}, {"a": 1, "new": 1}):
        with pytest.raises(AssertionError):
            check_files(failed, before, after)
    check_files(ended(0, "", ""), before, {"a": 1, "new": 1})
