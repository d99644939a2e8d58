"""Output files of a command, and its remarks; imports neither torch nor fairseq."""

import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output
from fairseq_doc.options import files_read, files_written

PICTURES = (".png", ".pdf", ".svg", ".jpg")  # the formats of plots
# Files that fairseq-preprocess and the preparation commands write into a data folder.
DATA_FILES = (
    "dict*.txt *.idx *.bin SHA256SUMS settings.json raw_counts.json prepare.log bpe.codes* "
    "sentencepiece.*"
).split()


def remark(command: str, text: str) -> None:
    """Print a line on standard error."""
    print(f"fairseq-doc {command}: {text}", file=sys.stderr, flush=True)


def first_ten(names: Iterable[Any]) -> str:
    """The first ten names, followed by dots if there are more."""
    ten = [*map(str, itertools.islice(names, 11))]
    return ", ".join(ten[:10]) + (", ..." if len(ten) > 10 else "")


def table(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Rows in columns, each aligned to the left (<) or to the right (>)."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = zip(alignments, widths, strict=True)
    line = "  ".join(f"{{:{align}{width}}}" for align, width in cells)
    return [line.format(*row).rstrip() for row in rows]


def check_outputs(
    settings: Any, *paths: Any, inputs: Iterable[Any] = (), replace: bool = False
) -> None:
    """Check, before any work, that a command can write its output files, that they are distinct,
    and that no option reads them. They are those of the options declared with ``writes``, and
    ``paths``.

    Args:
        settings: settings of the command.
        inputs: files that are read and that no other option may read, besides those declared with
            ``reads="once"``.
        replace: allow existing outputs, as the option ``overwrite`` does.
    """
    outputs = [*files_written(settings).values(), *paths]
    alone = [*inputs, *files_read(settings, once=True)]
    read = [path for path in (*files_read(settings), *inputs) if path]
    uses = Counter(os.path.realpath(path) for one in read for path in _files_of(one))
    uses.update(map(os.path.realpath, outputs))
    for path in (*outputs, *alone):
        if uses[os.path.realpath(path)] > 1:
            raise FairseqDocError(f"each input and output needs its own file; {path} is used twice")
    for path in outputs:
        check_output(path, replace or getattr(settings, "overwrite", False))


def _files_of(path: Any) -> Iterable[Any]:
    """A file, or the files in a data folder."""
    if not os.path.isdir(path):
        return [path]
    return [file for pattern in DATA_FILES for file in Path(path).glob(pattern)]
