"""Hides the warnings that fairseq's own code causes, about twenty lines at each start.

This file imports neither torch nor fairseq, so ``fairseq-doc`` also hides warnings raised while
fairseq is imported. fairseq's own commands import this file later and show earlier warnings.
"""

import os
import re
import warnings
from importlib.util import find_spec

_DEPRECATIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, SyntaxWarning)
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
    files = _files_of_fairseq()
    for category in _DEPRECATIONS:
        warnings.filterwarnings("ignore", category=category, module=files)
    warnings.filterwarnings("ignore", _OF_COMPILED_TORCH, UserWarning, files)
    for message in _MESSAGES:
        warnings.filterwarnings("ignore", message)


def _files_of_fairseq() -> str:
    """Pattern of a warning's module in fairseq: its name, or its path where the compiler warns."""
    specs = [spec for spec in map(find_spec, ("fairseq", "fairseq_cli")) if spec]
    folders = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    paths = [re.escape(folder + os.sep) for folder in folders]
    return "|".join([r"fairseq(_cli)?(\.|\Z)", *paths])
