"""Preparation in stages, so that an interrupted one can resume.

Until it is finished, ``DEST.part`` holds

    settings.json   what decides the result; other settings start over
    lock            held while a preparation runs
    STAGE/          a stage's files
    STAGE.log       a stage's report; without it the stage is not finished
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import MAX_LINE, flush, lock, read_text, text_lines, write_lines
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS

Say = Callable[[str], object]  # takes one line of a report
Lines = Iterator[str]  # a stage's report, line by line
Stage = Callable[[Path], Lines]  # fills an empty folder

LOCK = "lock"
SETTINGS = "settings.json"
MADE_LINE = MAX_LINE << 6  # bytes; bound on a raw line after tokenisation and segmentation
_FOLDERS = {"folder", "like"}  # settings that name one
MADE_BY = "made by"  # the key that marks a preparation's settings


def check_destination(destination: Path) -> None:
    """Raise ``FairseqDocError`` if a folder cannot be made there."""
    if "," in str(destination):  # fairseq-preprocess splits at it
        raise FairseqDocError(f"{destination}: expected a folder's name without a comma")
    if destination.exists():
        raise FairseqDocError(f"{destination} exists; remove it, or name another folder")


def make_stamp(
    kind: type, settings: Any, files: dict[str, Path], made_by: dict[str, str]
) -> dict[str, Any]:
    """What decides a result: ``settings`` (the fields of ``kind``), the files' contents, the tools'
    versions. No folder's name: the same text elsewhere gives the same data."""
    import fairseq

    values, names = asdict(settings), [entry.name for entry in fields(kind)]
    return {
        **{name: values[name] for name in names if name not in _FOLDERS},
        "sha256": {name: checksums.sha256_of(path) for name, path in files.items()},
        MADE_BY: {**made_by, "fairseq": fairseq.__version__},
    }


def made_lines(path: Path) -> Iterator[str]:
    """The lines of a file that a stage made."""
    return text_lines(path, MADE_LINE)


def read_settings(folder: Path) -> dict[str, Any] | None:
    """The settings that a preparation wrote into a folder; None without a file of them. Raises
    ``FairseqDocError`` for a damaged one, one of something else, and one that was removed."""
    path = folder / SETTINGS
    checksums.check(path)
    if not os.path.lexists(path):
        return None
    text = read_text(path)
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict) or MADE_BY not in settings:
        raise FairseqDocError(
            f"{path}: expected the settings that preparation wrote, a JSON object with "
            f'"{MADE_BY}"; got {shown(text)}: prepare the data again'
        )
    return settings


def text_settings(folder: Path) -> dict[str, Any] | None:
    """:func:`read_settings` of a preparation of text, with a known ``tokenizer`` and ``bpe``."""
    settings = read_settings(folder)
    if settings is None:
        return None
    tokenizer, bpe = settings.get("tokenizer"), settings.get("bpe")
    if tokenizer not in TOKENIZERS or bpe not in BPE_KINDS:
        raise other_settings(folder, f"tokenizer {tokenizer!r} and BPE {bpe!r}")
    return settings


def other_settings(folder: Path, got: str) -> FairseqDocError:
    """The error of settings that are not those of prepared text."""
    return FairseqDocError(
        f"{folder / SETTINGS}: expected the settings of prepare-lm, prepare-mt or "
        f"prepare-headline; got {got}"
    )


@dataclass
class StagedFolder:
    """``DEST.part``, locked; see :func:`staged`."""

    part: Path
    say: Say
    report: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Path:
        return self.part / SETTINGS

    def run(self, name: str, stage: Stage) -> Path:
        """Run a stage unless it is finished, and report its lines; gives the stage's folder."""
        folder, log = self.part / name, self.part / f"{name}.log"
        finished = log.exists()
        if finished:
            self.say(f"{name}: already done")
            lines = text_lines(log)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            lines = stage(folder)
        begin = len(self.report)
        for line in lines:
            self.say(line)
            self.report.append(line)
        if not finished:
            write_lines(log, self.report[begin:])
        return folder

    def finish(self, data: Path, destination: Path, copies: Iterable[Path] = ()) -> None:
        """Rename a stage's folder to the destination, with ``prepare.log`` and copies of these
        files, whose checksums are added, and folders; remove the rest."""
        files = []
        for path in copies:
            if path.is_dir():
                shutil.copytree(path, data / path.name, dirs_exist_ok=True)
            else:
                shutil.copy(path, data)
                files.append(path.name)
        checksums.add(data, files)
        write_lines(data / "prepare.log", self.report)
        for path in [*data.rglob("*"), data]:
            flush(path)
        data.rename(destination)
        flush(destination.absolute().parent)
        shutil.rmtree(self.part)


@contextlib.contextmanager
def staged(destination: Path, stamp: dict[str, Any], say: Say) -> Iterator[StagedFolder]:
    """Open ``DEST.part`` for one preparation; stages made with another stamp are removed. Raises
    ``FairseqDocError`` if the folder is not ours or another preparation runs there.

    A ``FairseqDocError`` inside (unusable text or settings) removes the folder; any other
    interruption keeps it.
    """
    part = destination.with_name(f"{destination.name}.part")
    with _claim(part, json.dumps(stamp, indent=1), say):
        try:
            check_destination(destination)  # another may have finished meanwhile
            yield StagedFolder(part, say)
        except FairseqDocError:
            shutil.rmtree(part)
            raise


def _claim(part: Path, stamp: str, say: Say) -> IO[str]:
    """Take the folder; gives the lock that keeps others out until it is closed."""
    if not os.path.lexists(part):
        part.mkdir(parents=True, exist_ok=True)
    if not _is_ours(part):
        raise FairseqDocError(
            f"{part}: expected nothing, or an unfinished preparation; remove it, or name another "
            "destination"
        )
    path, settings = part / LOCK, part / SETTINGS
    held = lock(path, f"{part}: another preparation is running there")
    if not path.exists() or not os.path.samestat(os.fstat(held.fileno()), path.stat()):
        held.close()
        raise FairseqDocError(f"{part}: another preparation has just finished there")
    if settings.exists() and read_text(settings) != f"{stamp}\n":
        say(f"{part} was made with other settings, text or tools: starting over")
        for log in part.glob("*.log"):  # first: a stage that is half removed must not count
            log.unlink()
        for folder in filter(Path.is_dir, part.iterdir()):
            shutil.rmtree(folder)
    write_lines(settings, [stamp])  # when everything else is gone
    return held


def _is_ours(part: Path) -> bool:
    """Whether the folder is empty or a preparation made it: only then may it change."""
    if part.is_symlink() or not part.is_dir():
        return False
    names = [path.name for path in part.iterdir() if path.name != LOCK or path.stat().st_size]
    killed = all(name.startswith(f".{SETTINGS}.") for name in names)  # while it started
    try:
        return killed or read_settings(part) is not None
    except FairseqDocError:
        return False
