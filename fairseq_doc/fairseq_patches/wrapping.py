"""Replacing a function of fairseq by a wrapper that calls it."""

import functools
from collections.abc import Callable
from typing import Any

_replacements: list[Callable[[], None]] = []


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a ``wrapper``: after :func:`apply`, ``owner.name(...)`` calls
    ``wrapper(original, ...)``."""

    def decorate(wrapper):
        def replace():
            original = getattr(owner, name)

            @functools.wraps(original)
            def wrapped(*args, **kwargs):
                return wrapper(original, *args, **kwargs)

            setattr(owner, name, wrapped)

        _replacements.append(replace)
        return wrapper

    return decorate


def apply() -> None:
    """Apply the replacements in the order in which their files were imported."""
    for replace in _replacements:
        replace()
