"""How many tokens are taken at once."""

import pytest

from fairseq_doc.ops.mixture_chunks import even_chunk, tokens_per_chunk


@pytest.mark.parametrize(
    "j, v, size, tokens", [(20, 10_000, 24 * 2**20, 31), (1, 1, 11, 2), (2, 3, 24, 1), (9, 9, 1, 1)]
)
def test_tokens_per_chunk(j, v, size, tokens):
    """The largest number whose float32 logits fit, and at least one."""
    assert tokens_per_chunk(j, v, size) == tokens


@pytest.mark.parametrize(
    "tokens, chunk, most, even",
    [
        (128, 125, 200, 128),
        (640, 125, 200, 128),
        (128, 125, 125, 64),  # as large as may be already
        (640, 125, 125, 107),
        (1, 125, 200, 1),
        (190, 125, 200, 95),
        (250, 125, 125, 125),
        (0, 5, 5, 1),
    ],
)
def test_chunks_are_even(tokens, chunk, most, even):
    assert even_chunk(tokens, chunk, most) == even
