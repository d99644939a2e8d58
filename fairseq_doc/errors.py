"""One line instead of a traceback for what the user can mend."""

import re
import sys

# fairseq's own checks that come before any of this package's: how its message begins, and ours.
_FAIRSEQ_MESSAGES = (
    (
        re.compile("Must specify batch size"),
        "expected --batch-size, the number of sentences, or of columns a worker; got none",
    ),
    (
        re.compile(r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip"),
        "sentence {0} (counted from 0) has too many units: expected at most {2} (of source and "
        "target), got {1}; nothing was done with it or the sentences after it: give "
        "--max-source-positions and --max-target-positions, or leave it out by "
        "--skip-invalid-size-inputs-valid-test",
    ),
)


class FairseqDocError(ValueError):
    """A setting, a file or a checkpoint that cannot be used; the text says what was expected,
    what came, and what to do."""


def first_usage_error(error):
    """The ``FairseqDocError`` in a chain of exceptions, or None (fairseq wraps what
    ``load_state_dict`` raises into an ``Exception`` of its own)."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, FairseqDocError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def print_usage_errors_in_one_line():
    """Install an exception hook that prints a ``FairseqDocError`` as one line on standard error;
    every other exception keeps its traceback. The exit status stays 1."""
    previous = sys.excepthook

    def hook(kind, error, traceback):
        usage_error = first_usage_error(error) or _in_our_words(error)
        if usage_error is None:
            previous(kind, error, traceback)
        else:
            print(f"fairseq_doc: error: {usage_error}", file=sys.stderr)

    sys.excepthook = hook


def _in_our_words(error):
    """What the user can mend of what fairseq raises itself; None of anything else."""
    for pattern, words in _FAIRSEQ_MESSAGES:
        match = pattern.match(str(error))
        if match:
            numbers = [re.sub(r"np\.int64\((\d+)\)", r"\1", part) for part in match.groups()]
            return words.format(*numbers)
    return None
