"""Folders that are made in stages, so that an interrupted preparation can go on.

While a preparation is at work, and after it was interrupted, ``DEST.part`` holds

    settings.json   what decides the result; other settings start over
    lock            held by the preparation that is at work
    STAGE/          the files of a finished stage
    STAGE.log       what that stage reported
    STAGE.tmp/      the files of an unfinished stage

The last stage's folder becomes ``DEST``, and ``DEST.part`` is removed.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, flush, lock, read_text, whole_file

Say = Callable[[str], object]  # takes one line of what was done
Lines = Iterator[str]  # what a stage did, line by line
Stage = Callable[[Path], Lines]  # fills an empty folder

LOCK = "lock"
SETTINGS = "settings.json"
MAX_SETTINGS = 1 << 24  # bytes of the settings
MADE_BY = "made by"  # the key in the settings that shows a folder to be ours


def check_destination(destination: Path) -> None:
    """Raise ``FairseqDocError`` where a destination cannot be made: before any work."""
    if "," in str(destination):  # separates the prefixes that fairseq-preprocess reads
        raise FairseqDocError(f"{destination}: expected a folder's name without a comma")
    if destination.exists():
        raise FairseqDocError(f"{destination} exists; remove it, or name another folder")


def make_stamp(settings: dict, files: dict[str, Path], made_by: dict[str, str]) -> str:
    """What decides a result, as JSON text.

    Args:
        settings: of the preparation.
        files: {name: file that is read}; their contents count, not their places.
        made_by: {tool: version}.
    """
    digests = {}
    for name, path in files.items():
        check_input(path, again=True)
        digests[name] = checksums.sha256_of(path)
    return json.dumps({**settings, "sha256": digests, MADE_BY: made_by}, indent=1) + "\n"


class StagedFolder:
    """``DEST.part``, locked; see :func:`staged`."""

    def __init__(self, part: Path, say: Say) -> None:
        self.part = part
        self.say = say
        self.names: list[str] = []

    def run(self, name: str, stage: Stage) -> Path:
        """Run a stage unless it is done, and report its lines.

        Returns:
            The stage's folder.
        """
        self.names.append(name)
        folder = self.part / name
        log = self.part / f"{name}.log"
        unfinished = self.part / f"{name}.tmp"
        if folder.is_dir():
            self.say(f"{name}: done before")
            for line in log.read_text(encoding="utf-8").splitlines():
                self.say(line)
            return folder
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        lines = []
        for line in stage(unfinished):
            self.say(line)
            lines.append(f"{line}\n")
        log.write_text("".join(lines), encoding="utf-8")
        unfinished.rename(folder)
        return folder

    def finish(self, data: Path, destination: Path, copies: Iterable[Path] = ()) -> None:
        """Move the last stage's folder to the destination, with ``prepare.log`` and copies of these
        files and folders; remove the rest."""
        for path in copies:
            if path.is_dir():
                shutil.copytree(path, data / path.name, dirs_exist_ok=True)
            else:
                shutil.copy(path, data)
        logs = [self.part / f"{name}.log" for name in self.names]
        report = "".join(log.read_text(encoding="utf-8") for log in logs)
        (data / "prepare.log").write_text(report, encoding="utf-8")
        for path in [*data.rglob("*"), data]:
            flush(path)
        data.rename(destination)
        flush(destination.absolute().parent)
        shutil.rmtree(self.part)


@contextlib.contextmanager
def staged(destination: Path, stamp: str, say: Say) -> Iterator[StagedFolder]:
    """Take ``DEST.part`` for one preparation.

    It is removed when the text or the settings cannot be used (``FairseqDocError``), and kept after
    any other interruption.

    Args:
        destination: ``DEST``.
        stamp: of :func:`make_stamp`. Stages that were made with another are removed.
        say: takes one line at a time of what is done.

    Raises:
        FairseqDocError: ``DEST.part`` is not ours, or another preparation is at work there.
    """
    part = destination.with_name(f"{destination.name}.part")
    with _claim(part, stamp, say):
        try:
            check_destination(destination)  # another preparation may have finished meanwhile
            yield StagedFolder(part, say)
        except FairseqDocError:
            shutil.rmtree(part)
            raise


def _claim(part: Path, stamp: str, say: Say) -> IO[str]:
    """Take the folder; the lock that keeps others out until it is closed."""
    if not os.path.lexists(part):
        part.mkdir(parents=True, exist_ok=True)
    if not _is_ours(part):
        raise FairseqDocError(
            f"{part}: expected nothing, or an unfinished preparation; remove it, or name another "
            "destination"
        )
    held = take_lock(part)
    settings = part / SETTINGS
    if settings.exists() and read_text(settings, MAX_SETTINGS) != stamp:
        say(f"{part} is of other settings, other text or other tools: starting over")
        for path in part.iterdir():
            if path.name not in (LOCK, SETTINGS):
                _remove(path)
    # After everything else is gone: a preparation may be killed at any time.
    with whole_file(settings) as file:
        file.write(stamp)
    return held


def _remove(path: Path) -> None:
    """Remove a file or folder. A stage's folder that is half removed must not count as done, so it
    gets an unfinished stage's name first."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    unfinished = path if path.suffix == ".tmp" else path.with_name(f"{path.name}.tmp")
    if unfinished != path:
        shutil.rmtree(unfinished, ignore_errors=True)
        path.rename(unfinished)
    shutil.rmtree(unfinished)


def _is_ours(part: Path) -> bool:
    """Whether a preparation made this folder, or it is empty: only then may it be changed."""
    if part.is_symlink() or not part.is_dir():
        return False
    lock = part / LOCK
    if lock.exists() and lock.stat().st_size > 0:
        return False
    names = {path.name for path in part.iterdir()} - {LOCK}
    if all(name.startswith(f".{SETTINGS}.") for name in names):  # begun, and killed
        return True
    try:
        settings = json.loads(read_text(part / SETTINGS, MAX_SETTINGS))
    except (ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and MADE_BY in settings


def take_lock(folder: Path) -> IO[str]:
    """Keep other preparations out of an existing folder, until the returned file is closed.

    Raises:
        FairseqDocError: another preparation is at work there.
    """
    path = folder / LOCK
    held = lock(path, f"{folder}: another preparation is at work there")
    if not path.exists() or not os.path.samestat(os.fstat(held.fileno()), path.stat()):
        held.close()
        raise FairseqDocError(f"{folder}: another preparation has just finished there")
    return held
