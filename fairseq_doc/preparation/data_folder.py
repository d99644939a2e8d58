"""A data folder, which is written whole or not at all, and the settings it was prepared with."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import flush, read_text, write_lines

Say = Callable[[str], object]  # prints one line of a report
SETTINGS = "settings.json"
MADE_BY = "made by"  # the key that marks a preparation's settings


def check_destination(destination: Path) -> None:
    """Raise ``FairseqDocError`` if a folder cannot be made there."""
    # fairseq-preprocess splits at commas, fairseq-train and the commands at colons.
    if any(mark in str(destination) for mark in (",", os.pathsep)):
        raise FairseqDocError(f"{destination}: expected a folder's name without a comma or colon")
    if destination.exists():
        raise FairseqDocError(f"{destination} exists; remove it, or name another folder")


@contextlib.contextmanager
def new_data_folder(destination: Path, say: Say) -> Iterator[tuple[Path, Say]]:
    """Yields a folder to fill, and a function that prints a line and keeps it for ``prepare.log``.

    When all is done, the folder gets the checksums of its files and is renamed to ``destination``;
    after an error or an interruption nothing is left but new parent folders. Intermediate files go
    beside it, into its parent, which is removed.
    """
    check_destination(destination)
    work = destination.with_name(f"{destination.name}.{secrets.token_hex(4)}.part")
    report: list[str] = []

    def say_and_keep(line: str) -> None:
        say(line)
        report.append(line)

    try:
        data = work / "data"
        data.mkdir(parents=True)
        yield data, say_and_keep
        checksums.write(data, [path.name for path in data.iterdir() if path.is_file()])
        write_lines(data / "prepare.log", report)
        for path in [*data.rglob("*"), data]:
            flush(path)
        data.rename(destination)
        flush(destination.absolute().parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_settings(
    folder: Path, kind: type, settings: Any, files: Mapping[str, Path], made_by: dict[str, str]
) -> None:
    """Write what determines the data: ``settings`` (the fields of ``kind``), the checksums of the
    files read, the versions of the tools and of ``made_by``. Folders are left out: the same text
    elsewhere gives the same data."""
    import fairseq

    values, folders = asdict(settings), ("folder", "like")
    tools = {tool: version(tool) for tool in ("sacremoses", "subword-nmt", "sentencepiece")}
    content = {
        **{x.name: values[x.name] for x in fields(kind) if x.name not in folders},
        "sha256": {name: checksums.sha256_of(path) for name, path in files.items()},
        MADE_BY: {**made_by, **tools, "fairseq": fairseq.__version__},
    }
    write_lines(folder / SETTINGS, [json.dumps(content, indent=1)])


def read_settings(folder: Path) -> dict[str, Any] | None:
    """The settings that a preparation wrote into a folder; None if it wrote no such file. Raises
    ``FairseqDocError`` for a file that differs from its checksum, was removed, or is no
    preparation's."""
    path = folder / SETTINGS
    checksums.check(path)
    if not path.exists():
        return None
    settings = json.loads(read_text(path))
    if MADE_BY not in settings:
        raise FairseqDocError(
            f"{path}: expected the settings that preparation wrote, with {MADE_BY!r}; prepare the "
            "data again"
        )
    return settings
