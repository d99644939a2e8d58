"""Warnings that fairseq causes, and that its user can do nothing about, are not shown.

fairseq calls deprecated functions of Python, torch and Hydra: every training and evaluation began
with twenty lines about them. Hidden are deprecations in fairseq's own files, and the messages
below. Warnings of this package and of other code are shown.

This file imports neither torch nor fairseq, so that ``fairseq-doc`` hides what fairseq's import
raises too. fairseq's own commands import fairseq before ``--user-dir``: they show what is raised by
then, and fairseq-hydra-train what Hydra says while it reads the YAML.
"""

import os
import re
import warnings
from importlib.util import find_spec

_DEPRECATIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, SyntaxWarning)
# Of torch's compiled code, which names its source; in fairseq's files they are deprecations too.
_OF_COMPILED_TORCH = r"(?s).*\(Triggered internally at "
# Raised in other packages by what fairseq calls: how they begin.
_MESSAGES = (
    r"hydra\.experimental\.(initialize|compose)\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"\s*The strict flag in the compose API is deprecated",
    r"In 'config': Usage of deprecated keyword in package header",  # fairseq's config.yaml
    r"\s*'config' is validated against ConfigStore schema with the same name",
    r"`torch\.jit\.script` is deprecated",  # since torch 2.15, a FutureWarning
    r"'pin_memory'",  # fairseq always asks for it; without a GPU nothing is pinned
)


def apply() -> None:
    """Add the filters. A second call only puts them first again."""
    files = _files_of_fairseq()
    for category in _DEPRECATIONS:
        warnings.filterwarnings("ignore", category=category, module=files)
    warnings.filterwarnings("ignore", _OF_COMPILED_TORCH, UserWarning, files)
    for message in _MESSAGES:
        warnings.filterwarnings("ignore", message)


def _files_of_fairseq() -> str:
    """The pattern of what a warning in a file of fairseq names as its module: the module, or the
    file's path where Python's compiler warns."""
    specs = [spec for spec in map(find_spec, ("fairseq", "fairseq_cli")) if spec]
    folders = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    paths = [re.escape(folder + os.sep) for folder in folders]
    return "|".join([r"fairseq(_cli)?(\.|\Z)", *paths])
