"""A dictionary is read as every other text, and a damaged one is refused with its line.

fairseq keeps a byte order mark as part of the first word, and its errors name neither file nor
line. A line is a word and its count; ``#fairseq:overwrite`` after them replaces an earlier entry.
"""

import os

from fairseq.data import Dictionary
from fairseq.file_io import PathManager

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.fairseq_patches.wrapping import wrap
from fairseq_doc.files import text_lines

OVERWRITE = " #fairseq:overwrite"


def apply() -> None:
    """Replace the method that reads every dictionary."""
    wrap(Dictionary, "add_from_file", add_from_text)


def add_from_text(add_from_file, dictionary, file):
    """Read a path; anything else as fairseq does."""
    has_own_header = type(dictionary)._load_meta is not Dictionary._load_meta
    if not isinstance(file, str | os.PathLike) or has_own_header:
        return add_from_file(dictionary, file)
    path = PathManager.get_local_path(os.fspath(file))
    if not os.path.exists(path):
        raise FairseqDocError(
            f"no dictionary at {path}: expected a file that fairseq-preprocess wrote"
        )
    checksums.check(path)
    number = 0
    for number, line in enumerate(text_lines(path), start=1):
        _add(dictionary, line, f"{path}: line {number}")
    if number == 0:
        raise FairseqDocError(f"{path}: expected a word and its count a line; got an empty file")


def _add(dictionary, line, place):
    entry = line.rstrip()
    overwrite = entry.endswith(OVERWRITE)
    word, _, count = entry.removesuffix(OVERWRITE).rpartition(" ")
    try:
        number = int(count)
    except ValueError:
        number = None
    if not word or number is None:
        raise FairseqDocError(
            f"{place}: expected a word, a blank and its count; got {shown(line)}; is it the "
            "dict.txt that fairseq-preprocess wrote?"
        )
    if word in dictionary and not overwrite:
        raise FairseqDocError(
            f"{place}: expected every word once; got {shown(word)} again: remove one of the "
            f"lines, or end this one in{OVERWRITE}"
        )
    dictionary.add_symbol(word, n=number, overwrite=overwrite)
