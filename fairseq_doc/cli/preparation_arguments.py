"""What the commands of preparation share: their arguments, and how they report."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq_doc import registration  # noqa: F401  # fairseq's preprocessing, as it is changed here
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.binarisation import counts_of
from fairseq_doc.preparation.parallel_text import Settings, prepare
from fairseq_doc.preparation.stages import Say
from fairseq_doc.preparation.tokenization import BPE_KINDS

DATA_BIN = Path("data-bin")


def add_destination(parser: argparse.ArgumentParser, default: str) -> None:
    """The folder to write; ``default`` names it in data-bin."""
    parser.add_argument(
        "destination",
        metavar="DESTDIR",
        nargs="?",
        type=Path,
        help=f"folder to write, which must not exist (default: {DATA_BIN / default})",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """``--workers``."""
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that binarise (default: 1)"
    )


def add_parallel_arguments(parser: argparse.ArgumentParser, default: Settings) -> None:
    """The options of parallel text, with their defaults."""
    _add_file_arguments(parser, default)
    add = parser.add_argument
    add(
        "--bpe",
        choices=BPE_KINDS,
        default=default.bpe,
        help="how words are cut into units (default: %(default)s)",
    )
    add(
        "--merges",
        type=int,
        default=default.merges,
        metavar="N",
        help="merges to learn a model; with sentencepiece the size of its vocabulary "
        "(default: %(default)s)",
    )
    add(
        "--joint",
        action=argparse.BooleanOptionalAction,
        default=default.joint,
        help="one model of units and one dictionary for both sides (default: %(default)s)",
    )
    add(
        "--max-words",
        type=int,
        default=default.max_words,
        metavar="N",
        help="drop training pairs with more words on a side (default: %(default)s)",
    )
    add(
        "--max-ratio",
        type=float,
        metavar="X",
        help="drop training pairs with a side more than X times as long as the other",
    )
    add(
        "--threshold",
        type=int,
        default=default.threshold,
        metavar="N",
        help="units that occur less often in training become <unk> (default: %(default)s)",
    )
    add_workers(parser)


def _add_file_arguments(parser: argparse.ArgumentParser, default: Settings) -> None:
    """``--train``, ``--valid`` and ``--test``."""
    parser.add_argument(
        "--train",
        default=default.train,
        metavar="FILE",
        help="training files, without their ending (default: %(default)s)",
    )
    for split, files in (("valid", default.valid), ("test", default.test)):
        parser.add_argument(
            f"--{split}",
            type=_names,
            default=",".join(files),
            metavar="FILE[,FILE]",
            help=f"the same for {split}, {split}1, and so on (default: %(default)s)",
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def prepare_parallel(name: str, args: argparse.Namespace, suffix: str = "") -> dict[str, Any]:
    """Prepare parallel text.

    Args:
        name: of the command.
        args: its arguments, among them one for each of :class:`Settings`.
        suffix: what follows the folder's name in the default destination.

    Returns:
        ``destination``; ``sides``: for each side the ``types`` of fairseq's dictionary and the
        ``splits``, each with its ``sentences`` and ``tokens``; ``report``, the lines that were printed.
    """
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    destination = args.destination
    if destination is None:
        destination = default_destination(settings.folder, suffix)
    with reporting(name, args.json) as (say, report):
        prepare(settings, destination, args.workers, say)
    sides = {}
    for side in settings.sides:
        dictionary = destination / f"dict.{side}.txt"
        sides[side] = counts_of(dictionary, settings.splits, f".{settings.pair}.{side}")
    return result_of(destination, report, sides=sides)


def default_destination(folder: str | Path, suffix: str = "") -> Path:
    """data-bin/FOLDER, FOLDER being the last part of the folder's name."""
    return DATA_BIN / f"{Path(folder).resolve().name}{suffix}"


@contextlib.contextmanager
def reporting(name: str, as_json: bool) -> Iterator[tuple[Say, list[str]]]:
    """Report lines as they come: on standard output, or on standard error where the result is
    JSON. An interruption is reported too; what the system refuses, such as a write to a full disk, is
    a ``FairseqDocError``.

    Yields:
        A function that reports a line, and the list of the lines reported.
    """
    lines: list[str] = []
    program = _program(name)

    def say(line: str) -> None:
        lines.append(line)
        with contextlib.suppress(BrokenPipeError):  # nobody reads on; the work goes on
            print(f"{program}: {line}", file=sys.stderr if as_json else sys.stdout, flush=True)

    try:
        yield say, lines
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on", file=sys.stderr)
        raise
    except OSError as error:
        at = "" if error.filename is None else f" at {error.filename}"
        raise FairseqDocError(
            f"{error.strerror or error}{at}; run the same command to continue"
        ) from None


def result_of(destination: Path, report: list[str], **counts: Any) -> dict[str, Any]:
    """What a command of preparation gives."""
    return {"destination": os.fspath(destination), **counts, "report": report}


def closing_line(name: str, result: dict[str, Any]) -> str:
    """The last line that a command of preparation prints."""
    return f"{_program(name)}: wrote {result['destination']}"


def _program(name: str) -> str:
    """What the lines of a command begin with."""
    return name.replace("-", "_")
