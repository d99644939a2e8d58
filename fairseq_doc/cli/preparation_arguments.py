"""Common options of the preparation commands, and how they report."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.files import text_lines
from fairseq_doc.options import option
from fairseq_doc.preparation.data_folder import Say

DATA_BIN = Path("data-bin")


@dataclass(frozen=True, kw_only=True)
class PreparationOptions:
    """Options of all preparation commands."""

    destination: Path | None = option(
        "folder to write, which must not exist (default: data-bin/NAME, named after the input)",
        positional=True,
        metavar="DESTDIR",
        nargs="?",
    )
    json: bool = option("print one JSON object", False)


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(PreparationOptions):
    """Options of preparation commands that use several processes."""

    workers: int = option("number of processes for binarisation", 1, least=1, metavar="N")


def named_after(folder: Path, suffix: str = "") -> Path:
    """data-bin/NAME, where NAME is the last part of the folder's path."""
    return DATA_BIN / f"{folder.resolve().name}{suffix}"


def printing(name: str, as_json: bool) -> Say:
    """A function that prints a line of the report, on standard error if the result is JSON."""

    def say(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader is gone; the work continues
            out = sys.stderr if as_json else sys.stdout
            print(f"{name.replace('-', '_')}: {line}", file=out, flush=True)

    return say


def result_of(destination: Path, counts: dict[str, Any]) -> dict[str, Any]:
    """``destination``, ``counts`` and ``report``, the printed lines."""
    report = list(text_lines(destination / "prepare.log"))
    return {"destination": os.fspath(destination), **counts, "report": report}


def closing_line(name: str, result: dict[str, Any]) -> str:
    """The last line that a command prints."""
    return f"{name.replace('-', '_')}: wrote {result['destination']}"
