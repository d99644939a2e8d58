"""Binarised text is checked when it is opened.

fairseq does not check an index: a wrong offset or size gives wrong words or reads beyond the file.
Here checksums, if preparation wrote them, must agree; sizes and offsets must describe the whole .bin
file, sentence after sentence; and every word must be in the dictionary.
"""

import contextlib
import os

import numpy as np
from fairseq.data import indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import check_input

_SENTENCE = 4 + 8  # bytes of a sentence's size and offset in the .idx file, after the header
_HEADER = 9 + 8 + 1 + 8  # bytes of the header: magic word, version, type of the words, count


@replaces(indexed_dataset, "get_indexed_dataset_to_local")
def find_checked(find, path):
    """The path of a dataset, after its checksums were verified."""
    local = find(path)
    for file in (f"{local}.idx", f"{local}.bin"):
        if os.path.exists(file):
            check_input(file, again=True)
        checksums.check(file)
    return local


@replaces(indexed_dataset, "make_dataset")
def make_checked(make_dataset, path, impl, fix_lua_indexing=False, dictionary=None):
    """The dataset, after its index and words were checked."""
    words = f"{path}.bin"
    if impl == "mmap" and os.path.exists(words) and not os.path.getsize(words):
        raise FairseqDocError(f"{words} is empty: expected at least one sentence")
    try:
        dataset = make_dataset(path, impl, fix_lua_indexing, dictionary)
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "out of memory"
        raise FairseqDocError(f"cannot read {path}.bin or .idx: {reason}") from None
    except Exception as error:  # a damaged file can fail anywhere in its reader
        text = " ".join(str(error).split())[:200]
        raise _damaged(path, f"{type(error).__name__} ({text})") from error
    if isinstance(dataset, MMapIndexedDataset):
        _check_index(path, dataset)
        if dictionary is not None:
            _check_words(path, dataset, len(dictionary))
    return dataset


@replaces(MMapIndexedDataset, "__del__")
@replaces(MMapIndexedDataset.Index, "__del__")
def close_what_is_open(close, dataset):
    """Close only what was opened. After an error in opening, fairseq's own ``close`` prints a second
    error."""
    with contextlib.suppress(AttributeError):
        close(dataset)


def _check_index(path, dataset):
    index = dataset._index
    dtype, sizes, offsets = np.dtype(index.dtype), index.sizes, index._pointers
    ends = np.cumsum(sizes, dtype=np.int64) * dtype.itemsize
    of_index, of_words = len(index._bin_buffer), len(dataset._bin_buffer)
    if dtype.kind not in "iu":
        raise _damaged(path, "an .idx file with another header")
    if of_index != _HEADER + len(sizes) * _SENTENCE:
        raise _damaged(path, f"an .idx file of {of_index:,} bytes for {len(sizes):,} sentences")
    if (sizes < 0).any() or offsets[:1].any() or (offsets[1:] != ends[:-1]).any():
        raise _damaged(path, "sentences that do not follow each other")
    if ends[-1:].sum() != of_words:
        raise _damaged(
            path, f"an index for {ends[-1:].sum():,} bytes and a .bin file of {of_words:,}"
        )


def _check_words(path, dataset, words):
    tokens = np.frombuffer(dataset._bin_buffer, dataset._index.dtype)
    least, largest = tokens.min(initial=0), tokens.max(initial=0)
    if least < 0 or largest >= words:
        raise FairseqDocError(
            f"{path}.bin is damaged or was binarised with another dictionary: it has a word number "
            f"{least if least < 0 else largest}, but the dictionary has {words} words"
        )


def _damaged(path, got):
    return FairseqDocError(
        f"{path} is damaged: expected {path}.bin and .idx as fairseq-preprocess wrote them; got "
        f"{got}; prepare the data again"
    )
