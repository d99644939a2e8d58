"""Output files of a command, and its remarks; imports neither torch nor fairseq."""

import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output
from fairseq_doc.options import files_read

# Files that fairseq-preprocess and the preparation commands write into a data folder.
DATA_FILES = (
    *(
        "dict*.txt",
        "*.idx",
        "*.bin",
        "SHA256SUMS",
        "settings.json",
        "raw_counts.json",
        "prepare.log",
    ),
    *("bpe.codes*", "sentencepiece.*"),
)


def remark(command: str, text: str) -> None:
    """Print a line on standard error."""
    print(f"fairseq-doc {command}: {text}", file=sys.stderr, flush=True)


def first_ten(names: Iterable[Any]) -> str:
    """The first ten names, followed by dots if there are more."""
    ten = [*map(str, itertools.islice(names, 11))]
    return ", ".join(ten[:10]) + (", ..." if len(ten) > 10 else "")


def check_outputs(
    settings: Any,
    *paths: Any,
    inputs: Iterable[Any] = (),
    replaced: Iterable[Any] = (),
    alone: Iterable[Any] = (),
) -> None:
    """Check, before any work, that a command can write its output files, that they are distinct, and
    that no option ``reads`` them. Outputs that are None are skipped.

    Args:
        settings: settings of the command; unless they have ``overwrite``, no output may exist.
        paths: the outputs.
        inputs: further files that are read.
        replaced: further outputs, which are always replaced.
        alone: inputs that no other option may read.
    """
    kept = [path for path in replaced if path]
    outputs = [*filter(None, paths), *kept]
    read = [path for path in (*files_read(settings), *inputs) if path and path != "-"]
    writes = Counter(map(os.path.realpath, outputs))
    reads = Counter(os.path.realpath(path) for one in read for path in _files_of(one))
    twice = [path for path in outputs if (writes + reads)[os.path.realpath(path)] > 1]
    twice += [path for path in alone if reads[os.path.realpath(path)] > 1]
    if twice:
        raise FairseqDocError(f"each input and output needs its own file; {twice[0]} is used twice")
    for path in outputs:
        check_output(path, getattr(settings, "overwrite", False) or path in kept)


def _files_of(path: Any) -> Iterable[Any]:
    """A file, or the files in a data folder."""
    if not os.path.isdir(path):
        return [path]
    return [file for pattern in DATA_FILES for file in Path(path).glob(pattern)]


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """The given options among these, as entries of a result."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """Those entries as lines."""
    return [f"wrote {result[option]}" for option in options if option in result]
