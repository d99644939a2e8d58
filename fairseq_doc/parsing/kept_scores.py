"""Scores of the language model kept in a file, so that an interrupted run gives the same result."""

import json
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, lock

ROUNDING = 1e-3  # how far above 0 a log-probability may be


class KeptScores:
    """A file of scores, to be closed; ``stamp``, for JSON, is what the scores depend on.

    The first line holds the stamp. Each further line holds a checksum of all lines so far and a
    sentence's scores, written as Python writes floats, so that no digit is lost. A last line
    without line feed was cut off, and is written again.
    """

    def __init__(self, path: str, stamp: Any) -> None:
        self.taken = 0  # candidates with scores in the file, after begin()
        self._path = path
        self._file: IO[str] | None = None
        head = json.dumps({"checksums": "crc32", "scores of": stamp}, sort_keys=True)
        self._lines = [head]  # those that count
        self._scores: list[np.ndarray] = []  # of the lines after the first
        self._sum = zlib.crc32(head.encode())  # of the lines that count
        self._size = 0  # bytes of the file
        if os.path.lexists(path):
            check_input(path, again=True)
            self._read(f"{head}\n".encode())

    def _read(self, head: bytes) -> None:
        with open(self._path, "rb") as file:
            start = file.read(len(head))
            if not head.startswith(start):
                raise FairseqDocError(
                    f"{self._path}: expected scores of these models on this list; got another "
                    "file, or scores of another --matmul-precision; remove it, and the same "
                    "command computes the scores again, or name another"
                )
            content = file.read()
        self._size = len(start) + len(content)
        *lines, _ = content.decode(errors="replace").split("\n")
        checksum = self._sum
        for number, line in enumerate(lines, start=2):
            written, _, text = line.partition(" ")
            checksum = zlib.crc32(text.encode(), checksum)
            scores = _scores(text)
            if written != f"{checksum:08x}" or scores is None:
                raise FairseqDocError(
                    f"{self._path}: line {number} is damaged: expected its checksum and a list of "
                    "log-probabilities; remove the file, or its lines from there on"
                )
            self._lines.append(line)
            self._scores.append(scores)

    def begin(self, chunks: Sequence[Sequence[int]]) -> list[list[np.ndarray]]:
        """The scores of the first chunks, as far as the file has whole ones; :meth:`append` takes
        the others. A chunk lists how many candidates each of its sentences has."""
        kept: list[list[np.ndarray]] = []
        count = 0  # of sentences
        for sizes in chunks:
            found = self._scores[count : count + len(sizes)]
            if [len(scores) for scores in found] != list(sizes):
                break
            kept.append(found)
            count += len(sizes)
        self.taken = sum(map(sum, chunks[: len(kept)]))
        lines = self._lines[: 1 + count]
        text = "".join(f"{line}\n" for line in lines)  # in ASCII
        if len(kept) < len(chunks) or len(text) != self._size:
            in_use = f"{self._path}: another run is writing these scores"
            self._file = lock(self._path, in_use)
            if os.fstat(self._file.fileno()).st_size != self._size:
                raise FairseqDocError(in_use)
            self._file.truncate(min(self._size, len(text)))
            self._write(text[self._size :])
            if count:
                self._sum = int(lines[-1][:8], 16)
        return kept

    def append(self, scores: Iterable[np.ndarray]) -> None:
        lines = []
        for of_sentence in scores:
            text = json.dumps(of_sentence.tolist())
            self._sum = zlib.crc32(text.encode(), self._sum)
            lines.append(f"{self._sum:08x} {text}\n")
        self._write("".join(lines))

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise FairseqDocError(
                f"cannot write {self._path}: {error.strerror}; the same command continues with the "
                "scores that it holds"
            ) from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _scores(text: str) -> np.ndarray | None:
    """The log-probabilities of a line; None if it is damaged."""
    try:
        scores = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(scores, list) and all(isinstance(score, float) for score in scores)
    return np.array(scores) if is_list and all(-math.inf < x <= ROUNDING for x in scores) else None
