"""A dictionary is read as every other text, its checksum too, and an error names the file.

fairseq keeps a byte order mark as part of the first word, and takes an empty file.
"""

import io
import os

from fairseq.data import Dictionary
from fairseq.file_io import PathManager

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.wrapping import wrap
from fairseq_doc.files import text_lines


def apply() -> None:
    """Replace the method that reads every dictionary."""
    wrap(Dictionary, "add_from_file", add_from_text)


def add_from_text(add_from_file, dictionary, file):
    """Read a path as text; fairseq takes the lines."""
    if not isinstance(file, str | os.PathLike):
        return add_from_file(dictionary, file)
    path = PathManager.get_local_path(os.fspath(file))
    checksums.check(path)
    lines = [f"{line}\n" for line in text_lines(path)]
    try:
        add_from_file(dictionary, io.StringIO("".join(lines), newline="\n"))
    except (ValueError, RuntimeError) as error:
        raise FairseqDocError(f"{path}: {' '.join(str(error).split())[:300]}") from None
    if not lines or "" in dictionary:
        raise FairseqDocError(f"{path}: expected a word and its count a line; got none")
