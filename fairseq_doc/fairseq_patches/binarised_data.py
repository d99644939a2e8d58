"""Binarised text is checked when it is opened.

fairseq trusts an index: a wrong offset or size gives other words, or reads beyond the file. Here
checksums, if preparation wrote them, must agree; sizes and offsets must describe the whole .bin
file, sentence after sentence; and every word must be in the dictionary.
"""

import contextlib
import os
import struct

import numpy as np
from fairseq.data import indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.tasks.translation import TranslationTask

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.wrapping import wrap

_HEADER = struct.Struct("<9sQBQ")  # magic, version, type of the words, number of sentences
_SENTENCE = 4 + 8  # bytes of a size and an offset
_WORDS = 1 << 22  # compared at once


def apply() -> None:
    """Replace the functions that find and open every binarised file."""
    wrap(indexed_dataset, "get_indexed_dataset_to_local", find_checked)
    wrap(indexed_dataset, "make_dataset", make_checked)
    wrap(TranslationTask, "load_dataset", load_both_sides)
    for kind in (MMapIndexedDataset, MMapIndexedDataset.Index):
        wrap(kind, "__del__", close_what_is_open)


def find_checked(find, path):
    """The path of a dataset whose files have their checksums."""
    local = find(path)
    for file in (f"{local}.idx", f"{local}.bin"):
        if os.path.exists(file) and not os.path.isfile(file):
            raise FairseqDocError(f"{file}: expected a regular file; got something else")
        checksums.check(file)
    return local


def make_checked(make_dataset, path, impl, fix_lua_indexing=False, dictionary=None):
    """The dataset, its index and words checked."""
    try:
        if impl == "mmap" and MMapIndexedDataset.exists(path):
            check_index_and_words(path, None if dictionary is None else len(dictionary))
        return make_dataset(path, impl, fix_lua_indexing, dictionary)
    except FairseqDocError:
        raise
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "no memory is left"
        raise FairseqDocError(f"cannot read {path}.bin or .idx: {reason}") from None
    except Exception as error:  # a damaged file fails anywhere in its reader
        text = " ".join(str(error).split())[:200]
        raise _damaged(path, f"{type(error).__name__} ({text})") from error


def load_both_sides(load_dataset, task, split, *args, **kwargs):
    """fairseq takes a training split without its target side, and fails at the first update."""
    load_dataset(task, split, *args, **kwargs)
    if split == task.cfg.train_subset and getattr(task.datasets[split], "tgt", 0) is None:
        raise FairseqDocError(
            f"split {split!r} in {task.cfg.data} has sources without targets: expected the files "
            f"of {task.cfg.source_lang} and {task.cfg.target_lang}; prepare the data again"
        )


def close_what_is_open(close, dataset):
    """fairseq closes what an error kept it from opening, which prints another error."""
    with contextlib.suppress(AttributeError):
        close(dataset)


def check_index_and_words(path: str, words: int | None = None) -> None:
    """Check ``path``.idx and ``path``.bin (mmap); ``words`` is the dictionary's size."""
    dtype, sizes, offsets = _read_index(path)
    ends = np.cumsum(sizes, dtype=np.int64) * dtype.itemsize
    size = os.path.getsize(f"{path}.bin")
    if (sizes < 0).any() or offsets[:1].any() or (offsets[1:] != ends[:-1]).any():
        raise _damaged(path, "sentences that do not follow each other")
    if ends[-1:].sum() != size:
        raise _damaged(path, f"an index of {ends[-1:].sum():,} bytes and a .bin file of {size:,}")
    if size == 0:
        raise FairseqDocError(f"{path}.bin is empty: expected at least a sentence")
    if words is not None:
        _check_words(path, np.memmap(f"{path}.bin", dtype, mode="r"), words)


def _read_index(path):
    with open(f"{path}.idx", "rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise _damaged(path, f"an .idx file of {len(header)} bytes")
        magic, version, code, count = _HEADER.unpack(header)
        dtype = np.dtype(indexed_dataset._code_to_dtype.get(code, np.float64))
        if magic != MMapIndexedDataset.Index._HDR_MAGIC or version != 1 or dtype.kind not in "iu":
            raise _damaged(path, "an .idx file that begins differently")
        size = os.path.getsize(f"{path}.idx")
        if size != _HEADER.size + count * _SENTENCE:
            raise _damaged(path, f"an .idx file of {size:,} bytes for {count:,} sentences")
        sizes = np.fromfile(file, np.int32, count)
        offsets = np.fromfile(file, np.int64, count)
    return dtype, sizes, offsets


def _check_words(path, tokens, words):
    for start in range(0, len(tokens), _WORDS):
        part = tokens[start : start + _WORDS]
        least, largest = int(part.min()), int(part.max())
        if least < 0 or largest >= words:
            raise FairseqDocError(
                f"{path}.bin was binarised with another dictionary, or is damaged: it holds word "
                f"{least if least < 0 else largest}, and the dictionary has {words} words"
            )


def _damaged(path, got):
    return FairseqDocError(
        f"{path} is damaged: expected {path}.bin and .idx as fairseq-preprocess wrote them; got "
        f"{got}; prepare the data again"
    )
