"""What a command writes, and what it says about it; imports neither torch nor fairseq."""

import itertools
import os
import sys
from collections.abc import Iterable
from typing import Any

from fairseq_doc.errors import FairseqDocError


def remark(command: str, text: str) -> None:
    """Print a line on standard error."""
    print(f"fairseq-doc {command}: {text}", file=sys.stderr, flush=True)


def first_ten(names: Iterable[Any]) -> str:
    """The first ten names, and dots for the others."""
    ten = [*map(str, itertools.islice(names, 11))]
    return ", ".join(ten[:10]) + (", ..." if len(ten) > 10 else "")


def check_distinct(own: Iterable[Any], others: Iterable[Any] = ()) -> None:
    """Refuse a file that is given twice: each of ``own``, such as the outputs, is one that no other
    option names. None is no file."""
    named = [path for path in own if path]
    paths, rest = (
        [os.path.realpath(path) for path in named],
        map(os.path.realpath, filter(None, others)),
    )
    taken = [*paths, *set(rest)]
    for path, place in zip(named, paths, strict=True):
        if taken.count(place) > 1:
            raise FairseqDocError(
                f"expected other files for every input and output; got one twice: {path}"
            )


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """Those of the options that are given, as entries of a result."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """Those entries as lines."""
    return [f"wrote {result[option]}" for option in options if option in result]
