"""What a command writes, and what it says about it; imports neither torch nor fairseq."""

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

# What fairseq-preprocess and the commands of preparation write into a folder of data.
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
    """The first ten names, and dots for the others."""
    ten = [*map(str, itertools.islice(names, 11))]
    return ", ".join(ten[:10]) + (", ..." if len(ten) > 10 else "")


def check_outputs(
    settings: Any,
    *paths: Any,
    inputs: Iterable[Any] = (),
    replaced: Iterable[Any] = (),
    alone: Iterable[Any] = (),
) -> None:
    """Check, before any work, the files that a command writes: each can be written, and is no other
    output and no file that an option ``reads``. None is no file.

    Args:
        settings: the command's; without its ``overwrite`` no file may exist.
        paths: the outputs.
        inputs: further files that are read.
        replaced: further outputs, which are replaced unasked.
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
        raise FairseqDocError(
            f"expected other files for every input and output; got one twice: {twice[0]}"
        )
    for path in outputs:
        check_output(path, getattr(settings, "overwrite", False) or path in kept)


def _files_of(path: Any) -> Iterable[Any]:
    """A file, or the files of a folder of data."""
    if not os.path.isdir(path):
        return [path]
    return [file for pattern in DATA_FILES for file in Path(path).glob(pattern)]


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """Those of the options that are given, as entries of a result."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """Those entries as lines."""
    return [f"wrote {result[option]}" for option in options if option in result]
