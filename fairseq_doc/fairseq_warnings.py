"""Hides the warnings that fairseq's own code causes, about twenty lines at each start.

This file imports neither torch nor fairseq, so ``fairseq-doc`` also hides warnings raised while
fairseq is imported. fairseq's own commands import this file later and show earlier warnings.
"""

import warnings

_FAIRSEQ = r"fairseq(_cli)?(\.|\Z)"  # pattern of the module that a warning is about
_DEPRECATIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
# torch's compiled code raises deprecations as UserWarning, with the place in its source.
_OF_COMPILED_TORCH = r"(?s).*\(Triggered internally at "
# The beginnings of warnings that other packages raise when fairseq calls them.
_MESSAGES = (
    r"hydra\.experimental\.(initialize|compose)\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"\s*The strict flag in the compose API is deprecated",
    r"In 'config': Usage of deprecated keyword in package header",  # fairseq's config.yaml
    r"\s*'config' is validated against ConfigStore schema with the same name",
    r"`torch\.jit\.script` is deprecated",  # since torch 2.15, a FutureWarning
    r"'pin_memory'",  # fairseq always requests it; without a GPU nothing is pinned
)


def apply() -> None:
    """Add the filters; another call moves them to the front again."""
    for category in _DEPRECATIONS:
        warnings.filterwarnings("ignore", category=category, module=_FAIRSEQ)
    warnings.filterwarnings("ignore", _OF_COMPILED_TORCH, UserWarning, _FAIRSEQ)
    for message in _MESSAGES:
        warnings.filterwarnings("ignore", message)
