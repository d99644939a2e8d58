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
        is_damaged = isinstance(dataset, MMapIndexedDataset) and not _fits(dataset)
    except Exception as error:  # a damaged file can fail anywhere in its reader
        raise _damaged(path, str(error) or type(error).__name__) from error
    if is_damaged:
        raise _damaged(path, "sizes or offsets that do not fit the .bin file")
    if isinstance(dataset, MMapIndexedDataset) and dictionary is not None:
        _check_words(path, dataset, len(dictionary))
    return dataset


@replaces(MMapIndexedDataset, "__del__")
@replaces(MMapIndexedDataset.Index, "__del__")
def close_what_is_open(close, dataset):
    """Close only what was opened. After an error in opening, fairseq's own ``close`` prints a second
    error."""
    with contextlib.suppress(AttributeError):
        close(dataset)


def _fits(dataset):
    """Whether the words are integers whose sentences follow each other and fill the .bin file."""
    dtype, sizes = np.dtype(dataset._index.dtype), dataset._index.sizes
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) * dtype.itemsize
    in_order = (sizes >= 0).all() and np.array_equal(dataset._index._pointers, ends[:-1])
    return dtype.kind in "iu" and in_order and ends[-1] == len(dataset._bin_buffer)


def _check_words(path, dataset, words):
    tokens = np.frombuffer(dataset._bin_buffer, dataset._index.dtype)
    least, largest = tokens.min(initial=0), tokens.max(initial=0)
    if least < 0 or largest >= words:
        raise FairseqDocError(
            f"{path}.bin is damaged or was binarised with a different dictionary: it has a word "
            f"number {least if least < 0 else largest}, but the dictionary has {words} words"
        )


def _damaged(path, got):
    return FairseqDocError(
        f"{path} is damaged: expected {path}.bin and .idx as fairseq-preprocess wrote them; got "
        f"{' '.join(got.split())[:200]}; prepare the data again"
    )
