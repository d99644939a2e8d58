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


def report(
    name: str,
    settings: PreparationOptions,
    destination: Path,
    prepare: Callable[[Path, Say], dict[str, Any]],
) -> dict[str, Any]:
    """Prepare ``destination`` and print what is reported, on standard error if the result is JSON.
    The result is ``destination``, what ``prepare`` gives, and ``report``, the printed lines."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        with contextlib.suppress(BrokenPipeError):  # the reader is gone; the work continues
            out = sys.stderr if settings.json else sys.stdout
            print(f"{name.replace('-', '_')}: {line}", file=out, flush=True)

    counts = prepare(destination, say)
    return {"destination": os.fspath(destination), **counts, "report": lines}


def closing_line(name: str, result: dict[str, Any]) -> str:
    """The last line that a command prints."""
    return f"{name.replace('-', '_')}: wrote {result['destination']}"
