"""The bytes of a text -> fairseq's dictionary and binarised splits, in chunks.

A line feed is the end mark, so an entry of a split is a line. The last line may lack one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import whole_file
from fairseq_doc.preparation.byte_tokens import LINE_FEED, NAMES

CHUNK = 1 << 22  # bytes in memory at once
MAX_LINE = (1 << 31) - 1  # bytes; fairseq's index has 32-bit lengths
_ARCHIVES = {
    "gzip": rb"\x1f\x8b\x08",
    "zip": rb"PK\x03\x04",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
}


def check_not_packed(path: Path) -> None:
    """Raise ``FairseqDocError`` for a compressed file."""
    with open(path, "rb") as file:
        start = file.read(16)
    for kind, beginning in _ARCHIVES.items():
        if re.match(beginning, start):
            raise FairseqDocError(f"{path}: expected the text itself; got a {kind} file: unpack it")


@dataclass(frozen=True)
class Part:
    """``size`` bytes of a file from ``start``."""

    path: Path
    size: int
    start: int = 0

    @classmethod
    def whole(cls, path: Path) -> "Part":
        return cls(path, path.stat().st_size)

    def chunks(self) -> Iterator[np.ndarray]:
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for done in range(0, self.size, CHUNK):
                yield np.fromfile(file, np.uint8, min(CHUNK, self.size - done))

    def counts(self) -> np.ndarray:
        """(256,) how often each byte occurs."""
        return sum(
            (np.bincount(chunk, minlength=256) for chunk in self.chunks()), np.zeros(256, np.int64)
        )

    def line_ends(self) -> np.ndarray:
        """(lines,) the offset after each line, with or without a line feed."""
        done, ends = 0, [np.zeros(1, np.int64)]
        for chunk in self.chunks():
            ends.append(np.flatnonzero(chunk == LINE_FEED) + done + 1)
            done += len(chunk)
        return np.unique(np.append(np.concatenate(ends), done))[1:]


def make_dictionary(counts: np.ndarray, threshold: int = 0) -> Dictionary:
    """fairseq's dictionary of the bytes that occur at least ``threshold`` times, the most frequent
    first, without padding. ``counts``: (256,)."""
    dictionary = Dictionary()
    for byte in np.flatnonzero(counts):
        if byte != LINE_FEED:
            dictionary.add_symbol(NAMES[byte], n=int(counts[byte]))
    dictionary.finalize(threshold=threshold, padding_factor=1)
    if len(dictionary) == dictionary.nspecial:
        raise FairseqDocError(
            f"expected bytes other than line ends in training, each at least {threshold} times; "
            "got none"
        )
    return dictionary


def binarise_bytes(part: Part, prefix: Path, dictionary: Dictionary) -> tuple[int, int]:
    """Write a part that is not empty as fairseq-preprocess's ``PREFIX.bin`` and ``PREFIX.idx``;
    gives the numbers of lines and of unknown bytes."""
    dtype = best_fitting_int_dtype(len(dictionary))
    index_of = np.array([dictionary.index(name) for name in NAMES], dtype)
    unknown = 0
    with whole_file(f"{prefix}.bin", binary=True) as binarised:
        for chunk in part.chunks():
            tokens = index_of[chunk]
            binarised.write(tokens)
            unknown += int((tokens == dictionary.unk()).sum())
    sizes = np.diff(part.line_ends(), prepend=0)
    if sizes.max() > MAX_LINE:
        raise FairseqDocError(
            f"{part.path.name}: expected lines of at most {MAX_LINE:,} bytes; got one of "
            f"{sizes.max():,}: split it"
        )
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes.tolist())
    return len(sizes), unknown
