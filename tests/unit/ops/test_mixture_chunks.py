"""How many tokens are taken at once."""

import pytest
import torch

from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_chunks import (
    chunk_size,
    even_chunk_size,
    rows_per_product,
    takes_tiles,
)

MIB = 2**20

pytestmark = pytest.mark.cpu_only("sizes of chunks")


def mixture_of(words, device="cpu", tokens=9):
    shapes = [(tokens, 7, 300), (tokens, 7), (words, 300)]
    return Mixture(*(torch.empty(shape, device=device) for shape in shapes))


@pytest.mark.parametrize(
    "tokens, words, even",
    [
        (128, 20_000, 43),  # a chunk of 42: the matrix of 24 MB
        (128, 5_000, 128),  # a chunk of 119
        (128, 100_000, 11),  # the largest chunk
        (12, 100_000, 6),
        (0, 5_000, 1),
    ],
)
def test_chunks_are_even(tokens, words, even):
    mixture = mixture_of(words, tokens=tokens)
    assert even_chunk_size(mixture, None) == even
    assert even_chunk_size(mixture, MIB) == chunk_size(mixture, torch.float32, MIB)


@pytest.mark.parametrize(
    "device, words, dtype, chunk_bytes, expected",
    [
        ("cpu", 1_000, "float32", None, 16 * MIB),  # a matrix of 1.2 MB: the lower bound
        ("cpu", 20_000, "float32", None, 4 * 20_000 * 300),  # as large as the matrix
        ("cpu", 267_735, "float32", None, 256 * MIB),  # the upper bound
        ("cpu", 20_000, "bfloat16", None, 2 * 4 * 20_000 * 300),
        ("cpu", 20_000, "bfloat16", 5 * MIB, 5 * MIB),
        ("meta", 20_000, "float32", None, 512 * MIB),
        ("meta", 20_000, "bfloat16", None, 256 * MIB),  # widened in one piece
    ],
)
def test_bytes_of_a_chunks_logits(device, words, dtype, chunk_bytes, expected):
    """In the logits' own dtype, at most 32 bits."""
    mixture = mixture_of(words, device)
    dtype = getattr(torch, dtype)
    found = chunk_size(mixture, dtype, chunk_bytes)
    of_a_token = 7 * words * min(4, dtype.itemsize)
    assert found * of_a_token <= expected < (found + 1) * of_a_token


@pytest.mark.parametrize(
    "words, of_chunk, of_product",
    [
        (20_000, 16 * MIB, 30 * MIB),
        (100_000, 4 * 100_000 * 300, 4 * 100_000 * 300),  # read anew by every chunk
        (267_735, 256 * MIB, 256 * MIB),
    ],
)
def test_bytes_of_sampled_gradients(words, of_chunk, of_product):
    mixture = mixture_of(words)
    chunk = chunk_size(mixture, torch.float32, None, sampled=True)
    assert chunk == of_chunk // (7 * words * 4)
    assert rows_per_product(mixture.weight, torch.float32, None) == of_product // (words * 4)


@pytest.mark.parametrize("words, tiles", [(220_000, False), (230_000, True)])
def test_which_vocabularies_take_tiles(words, tiles):
    weight = torch.empty(words, 300)
    assert takes_tiles(weight, torch.float32) == takes_tiles(weight, torch.bfloat16) == tiles
    assert not takes_tiles(weight, torch.float16)
    assert not takes_tiles(weight.to("meta"), torch.float32)
