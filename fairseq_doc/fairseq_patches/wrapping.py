"""Replacing a function of fairseq by a wrapper that calls it."""

import functools
import os
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
            if changed is not owner:
                # In processes that fairseq starts, the program's functions have other globals.
                changed.main.__globals__[name] = wrapped

        _replacements.append(replace)
        return wrapper

    return decorate


def running(owner: Any) -> Any:
    """The module or class ``owner``; or ``__main__``, if it is a second copy of the module
    ``owner``, as with ``python -m fairseq_cli.train``."""
    program = sys.modules["__main__"]
    files = [getattr(module, "__file__", None) for module in (owner, program)]
    is_copy = None not in files and len(set(map(os.path.realpath, files))) == 1
    return program if is_copy else owner


def apply() -> None:
    """Apply the replacements in the order in which their files were imported."""
    for replace in _replacements:
        replace()
