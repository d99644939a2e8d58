"""Scores of the language model kept in a file, so that an interrupted run continues to the same
result."""

import fcntl
import json
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, text_lines

MAX_LINE = 1 << 26  # bytes: a list of a million candidates
ROUNDING = 1e-3  # a log-probability may be above 0 by so much


class KeptScores:
    """A file of scores, a context manager that closes it.

    The first line says what the scores depend on, in JSON. Each further line holds a checksum and a
    sentence's scores, written as Python writes floats, so that no digit is lost. The checksum is that
    of all lines so far.

    Args:
        path: file to continue or to begin.
        stamp: what the scores depend on, as JSON can hold it.

    Attributes:
        taken: candidates whose scores were in the file.

    Raises:
        FairseqDocError: a file of something else, a damaged one, or one that another run is
            writing.
    """

    def __init__(self, path: str, stamp: Any) -> None:
        self.taken = 0
        self._path = path
        self._file: IO[str] | None = None
        self._writing = False
        self._head = json.dumps({"checksums": "crc32", "scores of": stamp}, sort_keys=True)
        self._sum = 0  # of what was written
        self._kept: list[np.ndarray] = []
        if os.path.lexists(path):
            check_input(path, again=True)
            self._file = self._open("r+")
            try:
                self._kept = self._read()
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> "KeptScores":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, mode: str) -> IO[str]:
        in_use = FairseqDocError(f"{self._path}: another run is writing these scores")
        try:
            file = open(self._path, mode, encoding="utf-8")  # noqa: SIM115
        except FileExistsError:
            raise in_use from None
        except OSError as error:
            raise FairseqDocError(f"cannot write {self._path}: {error.strerror}") from None
        try:
            # Not files.lock: text_lines closes another handle of this file, which would free that lock.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise in_use from None
        return file

    def _read(self) -> list[np.ndarray]:
        """The scores of each sentence in the file."""
        lines = text_lines(self._path, MAX_LINE, errors="replace")
        head = next(lines, "")
        if self._head.startswith(head) and next(lines, None) is None:
            return []  # nothing but the first line, or a part of it, where the disk was full
        lines = text_lines(self._path, MAX_LINE, errors="replace")
        if next(lines, None) != self._head:
            raise FairseqDocError(
                f"{self._path}: expected scores of these models on this list; got another file, one "
                "of another --matmul-precision or one of a version without checksums; remove it, and "
                "the same command computes the scores again, or name another"
            )
        kept: list[np.ndarray] = []
        found = _checksum(self._head, 0)
        wrong = 0  # the number of the first damaged line
        for number, line in enumerate(lines, start=2):
            if wrong:
                raise FairseqDocError(
                    f"{self._path}: line {wrong} is damaged: expected its checksum and a list of "
                    "log-probabilities; remove the file, or its lines from there on"
                )
            written, _, text = line.partition(" ")
            found = _checksum(text, found)
            scores = _scores(text)
            if written != f"{found:08x}" or scores is None:
                wrong = number  # the last line may be cut off; every other must be whole
            else:
                kept.append(scores)
        if kept and not wrong and not self._ends_with_a_line():
            kept.pop()  # its line is to be written whole
        return kept

    def _ends_with_a_line(self) -> bool:
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"

    def take(self, start: int, sizes: Sequence[int]) -> list[np.ndarray] | None:
        """The scores of the sentences from ``start`` on, which have so many candidates each. None
        where some are missing, and in every later call: from there on scores are computed and
        appended."""
        if self._writing:
            return None
        found = self._kept[start : start + len(sizes)]
        if [len(scores) for scores in found] == list(sizes):
            self.taken += sum(sizes)
            return found
        self._begin_writing(self._kept[:start])
        return None

    def append(self, scores: Iterable[np.ndarray]) -> None:
        """Keep the scores of the next sentences."""
        self._write(map(self._line, scores))

    def _begin_writing(self, kept: Iterable[np.ndarray]) -> None:
        """Write the file with these scores alone, and be ready to append."""
        if self._file is None:
            self._file = self._open("x")
        self._file.seek(0)
        self._sum = _checksum(self._head, 0)
        self._write([self._head, *map(self._line, kept)])
        self._file.truncate()
        self._writing = True

    def _line(self, scores: np.ndarray) -> str:
        text = json.dumps(scores.tolist())
        self._sum = _checksum(text, self._sum)
        return f"{self._sum:08x} {text}"

    def _write(self, lines: Iterable[str]) -> None:
        assert self._file is not None
        try:
            self._file.write("".join(f"{line}\n" for line in lines))
            self._file.flush()
        except OSError as error:
            raise FairseqDocError(
                f"cannot write {self._path}: {error.strerror}; the same command continues with the "
                "scores that it holds"
            ) from None


def _checksum(line: str, before: int) -> int:
    return zlib.crc32(line.encode(), before)


def _scores(text: str) -> np.ndarray | None:
    """The log-probabilities of a line; None for anything else."""
    try:
        scores = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(scores, list) or not all(isinstance(score, float) for score in scores):
        return None
    if not all(math.isfinite(score) and score <= ROUNDING for score in scores):
        return None
    return np.array(scores)
