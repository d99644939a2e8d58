"""Common options of the preparation commands, and how they report."""

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.options import option
from fairseq_doc.preparation.data_folder import Say


@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """Options of all preparation commands."""

    destination: Path | None = option(
        "folder to write, which must not exist (default: data-bin/NAME; NAME is the CORPUS of "
        "prepare-lm, FOLDER.SRC-TGT of prepare-mt, else the name of FOLDER)",
        positional=True,
        metavar="DESTDIR",
        nargs="?",
    )
    json: bool = option("print one JSON object", False)


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(PreparationOptions):
    """Options of preparation commands that use several processes."""

    workers: int = option("number of processes for binarisation", 1, least=1, metavar="N")


def report(
    settings: PreparationOptions, name: str, prepare: Callable[[Path, Say], dict[str, Any]]
) -> dict[str, Any]:
    """Prepare a folder, data-bin/NAME unless another one is given, and print the lines of the
    report, on standard error if the result is JSON. The result is ``destination``, what ``prepare``
    returns, and ``report``, the printed lines."""
    destination = settings.destination or Path("data-bin") / name
    command = type(settings).__module__.rpartition(".")[2]
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        with contextlib.suppress(BrokenPipeError):  # the reader is gone; the work continues
            out = sys.stderr if settings.json else sys.stdout
            print(f"{command}: {line}", file=out, flush=True)

    counts = prepare(destination, say)
    return {"destination": os.fspath(destination), **counts, "report": lines}


def closing_line(command: str, result: dict[str, Any]) -> str:
    """The last line that a command prints."""
    return f"{command}: wrote {result['destination']}"
