"""The bytes of a text -> fairseq's dictionary and binarised splits.

A line feed is the end mark, so an entry of a split is a line. The last line may lack one.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import whole_file
from fairseq_doc.preparation.binarisation import SplitCounts
from fairseq_doc.preparation.text_form import LINE_FEED, NAMES

CHUNK = 1 << 22  # bytes that are converted at once
_PACKED = (b"\x1f\x8b\x08", b"PK\x03\x04", b"BZh91AY&SY", b"\xfd7zXZ\x00")  # gzip, zip, bzip2, xz


def check_not_packed(path: Path) -> None:
    """Raise ``FairseqDocError`` for a compressed file."""
    with open(path, "rb") as file:
        if file.read(10).startswith(_PACKED):
            raise FairseqDocError(f"{path} is compressed: unpack it")


def _chunks(text: np.ndarray) -> Iterator[np.ndarray]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def counts_of_bytes(text: np.ndarray) -> np.ndarray:
    """(256,) how often each byte occurs."""
    counts = (np.bincount(chunk, minlength=256) for chunk in _chunks(text))
    return sum(counts, np.zeros(256, np.int64))


def line_ends(text: np.ndarray) -> np.ndarray:
    """(lines,) the offset after each line, with or without a line feed."""
    ends = np.flatnonzero(text == LINE_FEED) + 1
    return np.unique(np.append(ends, len(text))) if len(text) else ends


def lines_of(text: np.ndarray) -> Iterator[str]:
    """The lines with their line feeds; a byte that is not UTF-8 becomes a lone surrogate."""
    start = 0
    for end in line_ends(text).tolist():
        yield text[start:end].tobytes().decode("utf-8", "surrogateescape")
        start = end


def make_dictionary(counts: np.ndarray, threshold: int = 0) -> Dictionary:
    """fairseq's dictionary of the bytes that occur at least ``threshold`` times, the most frequent
    first, without padding. ``counts``: (256,)."""
    dictionary = Dictionary()
    for byte in np.flatnonzero(counts):
        if byte != LINE_FEED:
            dictionary.add_symbol(NAMES[byte], n=int(counts[byte]))
    dictionary.finalize(threshold=threshold, padding_factor=1)
    return dictionary


def binarise_bytes(text: np.ndarray, prefix: Path, dictionary: Dictionary) -> SplitCounts:
    """Write a text as fairseq-preprocess's ``PREFIX.bin`` and ``PREFIX.idx``."""
    dtype = best_fitting_int_dtype(len(dictionary))
    index_of = np.array([dictionary.index(name) for name in NAMES], dtype)
    unknown = 0
    with whole_file(f"{prefix}.bin", binary=True) as binarised:
        for chunk in _chunks(text):
            tokens = index_of[chunk]
            binarised.write(tokens)
            unknown += int((tokens == dictionary.unk()).sum())
    sizes = np.diff(line_ends(text), prepend=0)
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes.tolist())
    return SplitCounts(len(sizes), len(text), unknown)
