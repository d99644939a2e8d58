"""Replacing a function of fairseq by a wrapper that calls it."""

import functools
import sys
from collections.abc import Callable
from typing import Any

_replacements: list[Callable[[], None]] = []


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a ``wrapper``: after :func:`apply`, ``owner.name(...)`` calls
    ``wrapper(original, ...)``."""

    def decorate(wrapper):
        def replace():
            changed = running(owner)
            original = getattr(changed, name)

            @functools.wraps(original)
            def wrapped(*args, **kwargs):
                return wrapper(original, *args, **kwargs)

            setattr(changed, name, wrapped)

        _replacements.append(replace)
        return wrapper

    return decorate


def running(owner: Any) -> Any:
    """``owner``, or the program that runs if it is a second copy of this module, as with
    ``python -m fairseq_cli.train``."""
    program, file = sys.modules["__main__"], getattr(owner, "__file__", None)
    return program if file and getattr(program, "__file__", None) == file else owner


def apply() -> None:
    """Apply the replacements in the order in which their files were imported."""
    for replace in _replacements:
        replace()
