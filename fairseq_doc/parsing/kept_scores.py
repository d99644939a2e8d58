"""Scores of the language model kept in a file, so that an interrupted run continues to the same
result."""

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any

import numpy as np

from fairseq_doc.errors import FairseqDocError


class KeptScores:
    """A file of scores, a context manager that closes it.

    The first line says what the scores depend on, in JSON. Each further line holds a sentence's
    scores, written as Python writes floats, so that no digit is lost.

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
        self._head = json.dumps(stamp, sort_keys=True)
        self._kept: list[np.ndarray] = []
        if os.path.exists(path):
            self._file = self._open("r+")
            try:
                self._kept = self._read(self._file)
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
        file = open(self._path, mode, encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FairseqDocError(f"{self._path}: another run is writing these scores") from None
        return file

    def _read(self, file: IO[str]) -> list[np.ndarray]:
        """The scores of each sentence in the file."""
        lines = file.read().split("\n")[:-1]  # ignores a line that is cut off
        if not lines or lines[0] != self._head:
            raise FairseqDocError(
                f"{self._path}: expected scores of these models on this list; got another file; "
                "remove it, or name another"
            )
        kept = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                scores = np.array(json.loads(line), dtype=float)
            except (ValueError, TypeError):
                scores = np.array(np.nan)
            if scores.ndim != 1 or not np.isfinite(scores).all():
                raise FairseqDocError(
                    f"{self._path}: line {number} is damaged: expected a list of scores; remove "
                    "the file, or its lines from there on"
                )
            kept.append(scores)
        return kept

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
        self._write(map(_as_line, scores))

    def _begin_writing(self, kept: Iterable[np.ndarray]) -> None:
        """Write the file with these scores alone, and be ready to append."""
        if self._file is None:
            self._file = self._open("x")
        self._file.seek(0)
        self._write([self._head, *map(_as_line, kept)])
        self._file.truncate()
        self._writing = True

    def _write(self, lines: Iterable[str]) -> None:
        assert self._file is not None
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()


def _as_line(scores: np.ndarray) -> str:
    return json.dumps(scores.tolist())
