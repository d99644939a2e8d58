"""How a long computation shows its progress."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

# (iterable with a length, name) -> an iterable over the same items. The command line's shows a bar.
Progress: TypeAlias = Callable[[Any, str], Iterable[Any]]


def no_progress(iterable: Any, name: str) -> Iterable[Any]:
    """Show nothing."""
    return iterable


class Slice:
    """Items ``start`` to ``stop`` - 1 of an iterable with a length."""

    def __init__(self, items: Any, start: int, stop: int) -> None:
        self._items, self._start, self._stop = items, start, max(start, min(stop, len(items)))

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._items), self._start, self._stop)

    def __len__(self) -> int:
        return self._stop - self._start
