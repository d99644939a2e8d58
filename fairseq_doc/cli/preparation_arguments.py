"""Common options of the preparation commands, and how they report."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import option
from fairseq_doc.preparation.stages import Say

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


def default_destination(folder: Path, suffix: str = "") -> Path:
    """data-bin/NAME, where NAME is the last part of the folder's path."""
    return DATA_BIN / f"{folder.resolve().name}{suffix}"


@contextlib.contextmanager
def reporting(name: str, as_json: bool) -> Iterator[tuple[Say, list[str]]]:
    """A function that prints a line, on standard error if the result is JSON, and the list of
    printed lines. An interruption is reported, and an OSError becomes a ``FairseqDocError``."""
    lines: list[str] = []
    program = name.replace("-", "_")

    def say(line: str) -> None:
        lines.append(line)
        with contextlib.suppress(BrokenPipeError):  # the reader is gone; the work continues
            print(f"{program}: {line}", file=sys.stderr if as_json else sys.stdout, flush=True)

    try:
        yield say, lines
    except KeyboardInterrupt:
        print(f"{program}: interrupted; run the same command to continue", file=sys.stderr)
        raise
    except OSError as error:
        at = "" if error.filename is None else f" at {error.filename}"
        problem = f"{error.strerror or error}{at}"
        raise FairseqDocError(f"{problem}; run the same command to continue") from None


def closing_line(name: str, result: dict[str, Any]) -> str:
    """The last line that a command prints."""
    return f"{name.replace('-', '_')}: wrote {result['destination']}"
