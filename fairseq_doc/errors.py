"""One line instead of a traceback for what the user can mend."""

import sys


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
        usage_error = first_usage_error(error)
        if isinstance(error, AssertionError) and str(error).startswith("Must specify batch size"):
            # fairseq's own check comes before any of this package's.
            usage_error = "expected --batch-size, the number of columns a worker; got none"
        if usage_error is None:
            previous(kind, error, traceback)
        else:
            print(f"fairseq_doc: error: {usage_error}", file=sys.stderr)

    sys.excepthook = hook
