"""Embeddings from a text file, and into one."""

import logging
from collections.abc import Iterator

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

FORM = "a header of two numbers (how many words, how wide) and then a word and its numbers a line"

logger = logging.getLogger(__name__)


def load_embedding_file(embedding: Tensor, path: str, dictionary: Dictionary) -> None:
    """Set the rows of ``embedding`` (V, width) in place for the words in a text file, compressed by
    gzip or not: the header of word2vec and fastText, then a word and its ``width`` numbers a line.
    ``FairseqDocError`` for a missing file, or one of another form or width."""
    lines = text_lines(path)
    header = next(lines, "").split()
    if len(header) != 2 or not all(part.isdecimal() and len(part) < 10 for part in header):
        raise FairseqDocError(f"{path}: expected {FORM}; got no header")
    words, width, rows = 0, embedding.size(1), {}
    for words, line in enumerate(lines, start=1):
        word, *numbers = line.rstrip().split(" ")
        where = f"{path}: line {words + 1}"
        if len(numbers) != width:
            raise FairseqDocError(
                f"{where}: expected {width} numbers a word, as wide as the embedding; got "
                f"{len(numbers)} for {shown(word)}"
            )
        row = dictionary.indices.get(word)
        if row is not None:
            rows[row] = _vector(numbers, where)
    if words != int(header[0]):
        raise FairseqDocError(
            f"{path}: expected {int(header[0]):,} words, as its header says; got {words:,}"
        )
    logger.info("%s of %s types found in %s", len(rows), len(dictionary), path)
    for row, vector in rows.items():
        embedding[row] = vector


def _vector(numbers: list[str], where: str) -> Tensor:
    try:
        vector = torch.tensor(list(map(float, numbers)))
    except ValueError:
        vector = torch.tensor(float("nan"))
    if not vector.isfinite().all():
        raise FairseqDocError(f"{where}: expected finite numbers; got {shown(' '.join(numbers))}")
    return vector


def embedding_lines(embedding: Tensor, dictionary: Dictionary) -> Iterator[str]:
    """The lines of such a file: every word of the dictionary, with as few digits as give the same
    float32 again."""
    yield f"{len(dictionary)} {embedding.size(1)}"
    rows = embedding.detach().float().cpu().numpy()
    for word, row in zip(dictionary.symbols, rows, strict=True):
        yield f"{word} {' '.join(map(str, row))}"
