"""How a long computation shows its progress."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

# (iterable with a length, name) -> an iterable over the same items. The command line's shows a bar.
Progress: TypeAlias = Callable[[Any, str], Iterable[Any]]


def no_progress(iterable: Any, name: str) -> Iterable[Any]:
    """Show nothing."""
    return iterable
