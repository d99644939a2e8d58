"""Reading and writing embeddings as text files."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

if TYPE_CHECKING:
    from fairseq.data import Dictionary

FORM = "a header with the number of words and the width, then one word and its numbers per line"

logger = logging.getLogger(__name__)


@torch.no_grad()
def load_embedding_file(embedding: Tensor, path: str, dictionary: "Dictionary") -> None:
    """Set the rows of ``embedding`` (V, width) in place for the words in a text file, which may be
    gzipped: the header of word2vec and fastText, then one word and its ``width`` numbers per line.
    Raises ``FairseqDocError`` for a missing file, a different format or a different width."""
    lines = text_lines(path)
    header = next(lines, "").split()
    if len(header) != 2 or not all(map(str.isdecimal, header)):
        raise FairseqDocError(f"{path}: expected {FORM}; got no header")
    words, width, rows = 0, embedding.size(1), {}
    if int(header[1]) != width:
        raise FairseqDocError(
            f"{path}: expected {width} numbers per word, the width of the embedding; got {header[1]}"
        )
    for words, line in enumerate(lines, start=1):
        word, *numbers = line.rstrip().rsplit(" ", width)  # a word of GloVe may contain blanks
        if len(numbers) != width:
            raise FairseqDocError(
                f"{path}: line {words + 1}: expected {width} numbers; got {len(numbers)} for "
                f"{shown(word)}"
            )
        row = dictionary.indices.get(word)
        if row is not None:
            rows[row] = _finite(numbers, f"{path}: line {words + 1}")
    if words != int(header[0]):
        raise FairseqDocError(
            f"{path}: expected {int(header[0]):,} words according to its header; got {words:,}"
        )
    logger.info("%s of %s words of the dictionary found in %s", len(rows), len(dictionary), path)
    for row, vector in rows.items():
        embedding[row] = vector


def _finite(numbers: list[str], where: str) -> Tensor:
    vector = torch.tensor(())
    with contextlib.suppress(ValueError):
        vector = torch.tensor(list(map(float, numbers)))
    if not (len(vector) and vector.isfinite().all()):
        raise FairseqDocError(f"{where}: expected finite numbers; got {shown(' '.join(numbers))}")
    return vector


def embedding_lines(embedding: Tensor, dictionary: "Dictionary") -> Iterator[str]:
    """The lines of an embedding file with every word of the dictionary, and as many digits as a
    float32 needs to be read back exactly."""
    yield f"{len(dictionary)} {embedding.size(1)}"
    rows = embedding.detach().float().cpu().numpy()
    for word, row in zip(dictionary.symbols, rows, strict=True):
        yield f"{word} {' '.join(map(str, row))}"
