"""Errors that the user can correct."""

import re
import signal
from collections.abc import Iterator, Sized


class FairseqDocError(ValueError):
    """An unusable setting, file or checkpoint. The message says what was expected, what was given
    and what to do. ``parameters`` are the names in it that are also command-line options; commands
    print their flags instead (:func:`fairseq_doc.options.with_flags`)."""

    def __init__(self, message: str, *parameters: str) -> None:
        super().__init__(message)
        self.parameters = parameters


def require(is_so: bool, name: str, expected: str, value: object) -> None:
    """Raise ``FairseqDocError`` for the value of the parameter ``name`` unless it is as expected."""
    if not is_so:
        raise FairseqDocError(f"{name} must be {expected}; got {value}", name)


def check_count(path: str, found: Sized, other: str, expected: Sized, advice: str = "") -> None:
    """Raise ``FairseqDocError`` for a file whose number of sentences differs from another's."""
    if len(found) != len(expected):
        raise FairseqDocError(
            f"{path}: expected {len(expected):,} sentences, as in {other}; got {len(found):,}"
            f"{advice}"
        )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, then all exceptions that it was raised from or during."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_usage_error(error: BaseException | None) -> FairseqDocError | None:
    """The first ``FairseqDocError`` among the causes of an error: fairseq wraps what
    ``load_state_dict`` raises."""
    return next((part for part in causes(error) if isinstance(part, FairseqDocError)), None)


def interruption(error: BaseException) -> BaseException | None:
    """The Ctrl-C or SIGTERM during which an error was raised: cleanup after an interruption may
    raise a second error that hides the first. Other exits, such as argparse's, are no interruption."""
    for part in causes(error):
        by_signal = isinstance(part, SystemExit) and part.code == 128 + signal.SIGTERM
        if by_signal or isinstance(part, KeyboardInterrupt):
            return part
    return None


def shown(text: str, limit: int = 80) -> str:
    """Input as quoted in an error: one line, control characters escaped, cut after ``limit``."""
    quoted = repr(text[:limit])
    if len(text) > limit or len(quoted) > limit + 3:
        return f"{quoted[: limit - 3]}..."
    return quoted


CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and line feed
LONE = "\ud800-\udc7f\udd00-\udfff"  # lone surrogates, except those of surrogateescape


def escaped(text: str, characters: str) -> str:
    """The text with these characters, given as in a regular expression's ``[...]``, as Python's
    escapes."""
    return re.sub(f"[{characters}]", lambda found: ascii(found[0])[1:-1], text)
