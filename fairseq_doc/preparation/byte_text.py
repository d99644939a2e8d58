"""The bytes of a text -> fairseq's dictionary and binarised splits, in chunks.

A line feed is the end mark, so an entry of a split is a line, as fairseq-preprocess makes them. A text
that does not end in a line feed has no end mark there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import whole_file
from fairseq_doc.preparation.byte_tokens import LINE_FEED, NAMES

if TYPE_CHECKING:
    from fairseq.data import Dictionary

CHUNK = 1 << 22  # bytes in memory at once
MAX_LINE = (1 << 31) - 1  # bytes; fairseq's index has 32 bits for it
_ARCHIVES = {
    "gzip": rb"\x1f\x8b\x08",
    "zip": rb"PK\x03\x04",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
}


def check_not_packed(path: Path) -> None:
    """Raise ``FairseqDocError`` for a compressed file, whose bytes are not the text's."""
    with open(path, "rb") as file:
        start = file.read(16)
    for kind, beginning in _ARCHIVES.items():
        if re.match(beginning, start):
            raise FairseqDocError(f"{path}: expected the text itself; got a {kind} file: unpack it")


def _chunks(file: IO[bytes], size: int | None = None) -> Iterator[np.ndarray]:
    """The next ``size`` bytes of a file, or all that are left, at most ``CHUNK`` at once."""
    while size is None or size > 0:
        chunk = np.fromfile(file, np.uint8, CHUNK if size is None else min(CHUNK, size))
        if len(chunk) == 0:
            return
        if size is not None:
            size -= len(chunk)
        yield chunk


def copy_bytes(source: IO[bytes], path: Path, size: int | None = None) -> np.ndarray:
    """Copy the next ``size`` bytes of an open file, or all that are left, into a new file.

    Returns:
        (256,) how often each byte occurs in them.
    """
    counts = np.zeros(256, np.int64)
    with whole_file(path, binary=True) as copy:
        for chunk in _chunks(source, size):
            counts += np.bincount(chunk, minlength=256)
            copy.write(chunk)
    return counts


def count_bytes(path: Path) -> np.ndarray:
    """(256,) how often each byte occurs in a file."""
    counts = np.zeros(256, np.int64)
    with open(path, "rb") as file:
        for chunk in _chunks(file):
            counts += np.bincount(chunk, minlength=256)
    return counts


def line_ends(path: Path) -> np.ndarray:
    """(lines,) the offset after each line of a file, whether the last has a line feed or not."""
    size, ends = 0, [np.zeros(1, np.int64)]
    with open(path, "rb") as file:
        for chunk in _chunks(file):
            ends.append(np.flatnonzero(chunk == LINE_FEED) + size + 1)
            size += len(chunk)
    return np.unique(np.append(np.concatenate(ends), size))[1:]


def make_dictionary(counts: np.ndarray, threshold: int = 0) -> "Dictionary":
    """fairseq's dictionary of bytes, the most frequent first, without padding.

    Args:
        counts: (256,) how often each byte occurs in training; those that do not are left out.
        threshold: so are those that occur less often than this.

    Raises:
        FairseqDocError: no byte but the line feed is left.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for byte in np.flatnonzero(counts):
        if byte != LINE_FEED:
            dictionary.add_symbol(NAMES[byte], n=int(counts[byte]))
    dictionary.finalize(threshold=threshold, padding_factor=1)
    if len(dictionary) == dictionary.nspecial:
        raise FairseqDocError(
            f"expected bytes other than line ends in train.txt, each at least {threshold} times; got "
            "none"
        )
    return dictionary


def binarise_bytes(path: Path, prefix: Path, dictionary: "Dictionary") -> tuple[int, int]:
    """Write the bytes of a file as ``PREFIX.bin`` and ``PREFIX.idx``, in the form of
    fairseq-preprocess.

    Args:
        path: a file that is not empty.
        prefix: of the new files.
        dictionary: of :func:`make_dictionary`; bytes outside it are unknown.

    Returns:
        The numbers of lines and of unknown bytes.

    Raises:
        FairseqDocError: a line of more than ``MAX_LINE`` bytes.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    dtype = best_fitting_int_dtype(len(dictionary))
    # The end mark's name is a symbol of fairseq's own, so the line feed needs no case of its own.
    index_of = np.array([dictionary.index(name) for name in NAMES], dtype)
    unknown = 0
    with open(path, "rb") as text, whole_file(f"{prefix}.bin", binary=True) as binarised:
        for chunk in _chunks(text):
            tokens = index_of[chunk]
            binarised.write(tokens)
            unknown += int((tokens == dictionary.unk()).sum())
    sizes = np.diff(line_ends(path), prepend=0)
    if sizes.max() > MAX_LINE:
        raise FairseqDocError(
            f"{path.name}: expected lines of at most {MAX_LINE:,} bytes; got one of {sizes.max():,}: "
            "split it"
        )
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes.tolist())
    return len(sizes), unknown
