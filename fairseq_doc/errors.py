"""Errors that the user can correct."""


class FairseqDocError(ValueError):
    """A setting, a file or a checkpoint that cannot be used. The text says what was expected, what
    came, and what to do."""


def first_usage_error(error: BaseException | None) -> FairseqDocError | None:
    """The ``FairseqDocError`` in a chain of exceptions, or None (fairseq wraps what
    ``load_state_dict`` raises into an ``Exception`` of its own)."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, FairseqDocError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
