"""The bytes of a text -> fairseq's dictionary and binarised splits, in chunks.

A line feed is the end mark, so an entry of a split is a line. The last line may lack one.
"""

import re
from collections.abc import Iterator
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


def bytes_of(path: Path) -> np.ndarray:
    """(bytes,) a file, not in memory."""
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


def chunks_of(text: np.ndarray) -> Iterator[np.ndarray]:
    """The bytes of a text, ``CHUNK`` at a time."""
    for start in range(0, len(text), CHUNK):
        yield text[start : start + CHUNK]


def counts_of_bytes(text: np.ndarray) -> np.ndarray:
    """(256,) how often each byte occurs."""
    counts = (np.bincount(chunk, minlength=256) for chunk in chunks_of(text))
    return sum(counts, np.zeros(256, np.int64))


def line_ends(text: np.ndarray) -> np.ndarray:
    """(lines,) the offset after each line, with or without a line feed."""
    ends = [
        np.flatnonzero(chunk == LINE_FEED) + number * CHUNK + 1
        for number, chunk in enumerate(chunks_of(text))
    ]
    return np.unique(np.concatenate([[0], *ends, [len(text)]]).astype(np.int64))[1:]


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


def binarise_bytes(text: np.ndarray, prefix: Path, dictionary: Dictionary) -> tuple[int, int]:
    """Write a text that is not empty as fairseq-preprocess's ``PREFIX.bin`` and ``PREFIX.idx``;
    gives the numbers of lines and of unknown bytes."""
    dtype = best_fitting_int_dtype(len(dictionary))
    index_of = np.array([dictionary.index(name) for name in NAMES], dtype)
    unknown = 0
    with whole_file(f"{prefix}.bin", binary=True) as binarised:
        for chunk in chunks_of(text):
            tokens = index_of[chunk]
            binarised.write(tokens)
            unknown += int((tokens == dictionary.unk()).sum())
    sizes = np.diff(line_ends(text), prepend=0)
    if sizes.max() > MAX_LINE:
        raise FairseqDocError(
            f"{prefix.name}: expected lines of at most {MAX_LINE:,} bytes; got one of "
            f"{sizes.max():,}: split it"
        )
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes.tolist())
    return len(sizes), unknown
