"""How the patches replace a function of fairseq by one that calls it."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Let ``owner.name(...)`` call ``wrapper(original, ...)``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, wrapped)
