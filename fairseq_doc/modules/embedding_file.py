"""Embeddings from a file."""

import os

import torch
from fairseq import utils
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError


def load_embedding_file(
    embedding: torch.Tensor, path: str, dictionary: Dictionary, option: str
) -> None:
    """Set the rows of the words in a file; the other rows do not change.

    Args:
        embedding: (V, width), changed in place.
        path: a text file: a header of two numbers, as word2vec and fastText write it, then a word and
            its ``width`` numbers a line.
        dictionary: the V words.
        option: the option that names the file, for messages.

    Raises:
        FairseqDocError: no such file, or a file of another form or width.
    """
    if not os.path.isfile(path):
        raise FairseqDocError(f"{option}: expected a file; got none at {path}")
    with open(path, encoding="utf-8") as file:
        header = file.readline().split()
    form = (
        "a header of two numbers (how many words, how wide) and then a word and its numbers a line"
    )
    if len(header) != 2 or not all(part.isdigit() for part in header):
        raise FairseqDocError(f"{option} {path}: expected {form}; got no header")
    try:
        vectors = utils.parse_embedding(path)
    except ValueError as error:
        raise FairseqDocError(f"{option} {path}: expected {form}; {error}") from error
    width = embedding.size(1)
    for word, vector in vectors.items():
        if len(vector) != width:
            raise FairseqDocError(
                f"{option} {path}: expected {width} numbers a word, as wide as the embedding; got "
                f"{len(vector)} for {word!r}"
            )
    utils.print_embed_overlap(vectors, dictionary)
    for index, word in enumerate(dictionary.symbols):
        if word in vectors:
            embedding[index] = vectors[word]
