"""The files that a command writes, and what it says about them; imports neither torch nor
fairseq."""

import os
from collections.abc import Iterable
from typing import Any

from fairseq_doc.errors import FairseqDocError


def check_distinct(own: Iterable[str], others: Iterable[Any]) -> None:
    """Refuse a file that is given twice: each of ``own``, such as the outputs, is one that no other
    option names. None is no file."""
    paths = [os.path.realpath(path) for path in own if path]
    if len(set(paths)) < len(paths) or {os.path.realpath(path) for path in others if path} & {
        *paths
    }:
        raise FairseqDocError("expected other files for every input and output; got one twice")


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """Those of the options that are given, as entries of a result."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """Those entries as lines."""
    return [f"wrote {result[option]}" for option in options if option in result]
