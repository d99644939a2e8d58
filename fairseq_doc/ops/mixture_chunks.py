"""What the mixture's chunked forms share: how many tokens they take at once, in which dtype."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.ops.matmul import LARGEST_PRODUCT, matmul_dtype
from fairseq_doc.ops.reference import Mixture

# Bytes of one chunk of logits on a CPU. Every chunk reads the output matrix, and reads and writes
# its gradient, so a chunk is as large as that matrix within these bounds, or with 16-bit products,
# which take half the time, twice as large.
CPU_CHUNK_BYTES = (16 * 2**20, 256 * 2**20)
# Least bytes of the rows that sampled gradients gather. A matrix of this size is still in the cache
# after a chunk.
CPU_CACHED_BYTES = 30 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
# Block size in which a CPU computes and mixes softmaxes; fits the second-level cache.
CPU_BLOCK_BYTES = 2 * 2**20
# From this size of the matrix in float32 on, a CPU takes tiles of rows and words.
TILED_BYTES = 256 * 2**20


def takes_tiles(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the matrix (V, d) is so large that a chunk of tokens would have few rows."""
    on_cpu = weight.device.type == "cpu"
    return on_cpu and dtype != torch.float16 and 4 * weight.numel() >= TILED_BYTES


def tokens_per_chunk(
    n_components: int, vocabulary: int, chunk_bytes: int, itemsize: int = 4
) -> int:
    """How many tokens' logits, J x V numbers of ``itemsize`` bytes each, fit in ``chunk_bytes``;
    at least 1."""
    return max(1, chunk_bytes // (itemsize * n_components * max(1, vocabulary)))


def chunk_size(
    mixture: Mixture, dtype: torch.dtype, chunk_bytes: int | None, sampled: bool = False
) -> int:
    """Tokens of a chunk.

    Args:
        mixture: see :class:`fairseq_doc.ops.reference.Mixture`.
        dtype: of the logits.
        chunk_bytes: memory for one chunk of logits; None: as much as the output matrix, within the
            bounds above, or on a GPU 512 MiB.
        sampled: whether the gradients are. Their rows are multiplied later, together with other
            chunks': where the cache holds the matrix, a chunk has the lower bound.
    """
    weight, on_cpu = mixture.weight, mixture.components.device.type == "cpu"
    if chunk_bytes is None:
        chunk_bytes = _cpu_chunk_bytes(weight, dtype) if on_cpu else GPU_CHUNK_BYTES
        if on_cpu and sampled and weight.numel() * dtype.itemsize <= CPU_CACHED_BYTES:
            chunk_bytes = CPU_CHUNK_BYTES[0]
    # On a GPU 16-bit logits are widened in one piece; float64 is for tests.
    itemsize = min(4, dtype.itemsize) if on_cpu else 4
    return tokens_per_chunk(mixture.components.size(1), len(weight), chunk_bytes, itemsize)


def _cpu_chunk_bytes(weight: Tensor, dtype: torch.dtype) -> int:
    least, most = CPU_CHUNK_BYTES
    size = 4 * weight.numel() * (2 if dtype.itemsize == 2 else 1)
    return min(max(size, least), most)


def rows_per_product(weight: Tensor, dtype: torch.dtype, chunk_bytes: int | None) -> int:
    """How many rows of V numbers sampled gradients gather on a CPU before they are multiplied: as
    many as a chunk of exact ones has, at least 30 MiB, or ``chunk_bytes``."""
    if chunk_bytes is None:
        chunk_bytes = max(CPU_CACHED_BYTES, _cpu_chunk_bytes(weight, dtype))
    return tokens_per_chunk(1, len(weight), chunk_bytes, min(4, dtype.itemsize))


def tokens_per_block(n_components: int, vocabulary: int) -> int:
    """How many tokens' softmaxes a CPU computes and mixes at once."""
    return tokens_per_chunk(n_components, vocabulary, CPU_BLOCK_BYTES)


def even_chunk_size(mixture: Mixture, chunk_bytes: int | None) -> int:
    """As :func:`chunk_size` for logits in float32; on a CPU, where ``chunk_bytes`` does not say
    how large, all chunks have about the same size."""
    chunk = chunk_size(mixture, torch.float32, chunk_bytes)
    tokens, n_components, _ = mixture.components.shape
    if chunk_bytes is not None or mixture.components.device.type != "cpu":
        return chunk
    most = tokens_per_chunk(n_components, len(mixture.weight), LARGEST_PRODUCT)
    return even_chunk(tokens, min(chunk, most), most)


def even_chunk(tokens: int, chunk: int, most: int) -> int:
    """Tokens per chunk, about ``chunk`` and at most ``most``, so that the chunks are equally large:
    a small last chunk would read the whole output matrix again."""
    even = math.ceil(tokens / max(1, round(tokens / chunk)))
    if even > most:
        even = math.ceil(tokens / math.ceil(tokens / chunk))
    return max(1, even)


def mixture_matmul_dtype(mixture: Mixture, precision: torch.dtype) -> torch.dtype:
    """As :func:`fairseq_doc.ops.matmul.matmul_dtype`, and 16 bits if the matrix has them."""
    dtype = mixture.weight.dtype
    if dtype in (torch.bfloat16, torch.float16):
        return dtype
    return matmul_dtype(mixture.components, precision)


def with_column(matrix: Tensor, column: Tensor | float) -> Tensor:
    """A matrix (..., d) with a column d; then zeros, up to a multiple of 16 for the products'
    speed. Components with ones and the output matrix with the bias have logits as their product."""
    width = matrix.size(-1)
    wide = F.pad(matrix, (0, -width % 16 or 16))
    wide[..., width] = column
    return wide


def smallest_sum(probs: Tensor) -> float:
    """A sum of probabilities below this number loses digits."""
    return torch.finfo(probs.dtype).tiny ** 0.8
