"""How the patches replace a function of fairseq by one that calls it."""

import functools
from collections.abc import Callable
from typing import Any

_replacements: list[Callable[[], None]] = []


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """After :func:`apply`, ``owner.name(...)`` calls ``wrapper(original, ...)``, the decorated
    function."""

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
    """Make the replacements, in the order in which their files were imported."""
    for replace in _replacements:
        replace()
