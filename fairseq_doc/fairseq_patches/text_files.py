"""Dictionaries, BPE codes and lines to translate are read like all other text.

fairseq keeps a byte order mark as part of the first word, accepts an empty dictionary, and prints a
traceback for bytes that are not UTF-8; subword-nmt ends the process without naming the file. Here
the checksum of a dictionary is verified, and errors name the file.
"""

import io
import itertools
import os
from collections.abc import Iterator
from typing import Any

import fairseq_cli.interactive
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE
from fairseq.file_io import PathManager

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import text_lines
from fairseq_doc.preparation.tokenization import clean, make_segmenter


@replaces(Dictionary, "add_from_file")
def add_from_text(add_from_file, dictionary, file):
    """Read a dictionary as text and pass the lines to fairseq; ``<unk>`` keeps its single index."""
    if not isinstance(file, str | os.PathLike):
        return add_from_file(dictionary, file)
    path = PathManager.get_local_path(os.fspath(file))
    checksums.check(path)
    lines = [f"{line}\n" for line in text_lines(path)]
    try:
        add_from_file(dictionary, io.StringIO("".join(lines), newline="\n"))
    except (ValueError, RuntimeError) as error:
        raise FairseqDocError(f"{path}: {' '.join(str(error).split())[:300]}") from None
    # #fairseq:overwrite gives <unk> another index, which unknown words must also get.
    dictionary.unk_index = dictionary.index(dictionary.unk_word)
    if not lines or "" in dictionary:
        raise FairseqDocError(f"{path}: expected a word and its count on each line; got none")


@replaces(utils, "load_align_dict")
def refuse_replacing(load, replace_unk):
    """Refuse --replace-unk: fairseq 0.12 stores no alignment and fails at the first unknown word."""
    if replace_unk is not None:
        raise FairseqDocError(
            "--replace-unk needs the alignment of each hypothesis, which fairseq 0.12 does not "
            "store: leave it out; with subwords (fairseq-doc prepare-mt --bpe) no word is unknown"
        )
    return load(replace_unk)


@replaces(SubwordNMTBPE, "__init__")
@replaces(SentencepieceBPE, "__init__")
def make_checked(make, segmenter, cfg):
    """Check the codes or the model as preparation does, then create the segmenter."""
    if isinstance(segmenter, SubwordNMTBPE):
        bpe, path = "subword_nmt", cfg.bpe_codes
    else:
        bpe, path = "sentencepiece", cfg.sentencepiece_model
    if path is not None and "://" not in path:  # fairseq downloads a URL
        make_segmenter(bpe, path)
    make(segmenter, cfg)


@replaces(fairseq_cli.interactive, "buffered_read")
def read_in_buffers(_: Any, path: str, size: int) -> Iterator[list[str]]:
    """The lines of a file (``-``: standard input, as they arrive), ``size`` at a time, cleaned as
    in prepare-mt."""
    lines = map(clean, text_lines(path))
    while buffer := list(itertools.islice(lines, size)):
        yield buffer
