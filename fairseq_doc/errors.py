"""Errors that the user can correct."""

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires


class FairseqDocError(ValueError):
    """A setting, a file or a checkpoint that cannot be used. The text says what was expected, what
    came, and what to do."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and each from which or during which the one before was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_usage_error(error: BaseException | None) -> FairseqDocError | None:
    """The ``FairseqDocError`` in a chain of exceptions, or None (fairseq wraps what
    ``load_state_dict`` raises into an ``Exception`` of its own)."""
    return next((part for part in causes(error) if isinstance(part, FairseqDocError)), None)


def shown(text: str | bytes, limit: int = 80) -> str:
    """Input to be quoted in an error, on one line: in quotes, control characters escaped, what is
    beyond ``limit`` characters left out."""
    quoted = repr(text[:limit])
    if len(text) > limit or len(quoted) > limit + 3:
        return f"{quoted[: limit - 3]}..."
    return quoted


def pip_install(extra: str, *packages: str) -> str:
    """The command that installs what an extra of this package needs. The registry may have no
    ``fairseq_doc``, so it names the requirements: as this package's metadata has them, or
    ``packages`` where it is not installed."""
    try:
        lines = requires("fairseq_doc") or []
    except PackageNotFoundError:
        lines = []
    parts = [line.partition(";") for line in lines]
    needed = [need.strip() for need, _, marker in parts if f'extra == "{extra}"' in marker]
    return shlex.join(["pip", "install", *(needed or packages)])
