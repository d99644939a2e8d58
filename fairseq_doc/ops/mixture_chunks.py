"""How many tokens, and which dtypes, the chunked forms of the mixture take."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.ops.matmul import LARGEST_PRODUCT, matmul_dtype
from fairseq_doc.ops.mixture import Mixture

# Bytes of a chunk's logits on a CPU: within these bounds as many as the output matrix has, since
# each chunk reads it; twice as many with 16-bit products, which take half the time.
CPU_CHUNK_BYTES = (16 * 2**20, 256 * 2**20)
# Least bytes of the rows that sampled gradients collect. A matrix of this size is still in the
# cache after a chunk.
CPU_CACHED_BYTES = 30 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
CPU_BLOCK_BYTES = 2 * 2**20  # of softmaxes; fits the second-level cache
TILED_BYTES = 256 * 2**20  # of a float32 matrix from which a CPU takes tiles


def takes_tiles(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the matrix (V, d) is so large that a chunk would have few tokens."""
    on_cpu = weight.device.type == "cpu"
    return on_cpu and dtype != torch.float16 and 4 * weight.numel() >= TILED_BYTES


def tokens_per_chunk(
    n_components: int, vocabulary: int, chunk_bytes: int, itemsize: int = 4
) -> int:
    """How many tokens' logits, J V numbers each, fit in ``chunk_bytes``; at least 1."""
    return max(1, chunk_bytes // (itemsize * n_components * max(1, vocabulary)))


def chunk_size(
    mixture: Mixture, dtype: torch.dtype, chunk_bytes: int | None, sampled: bool = False
) -> int:
    """Tokens of a chunk with logits of ``dtype``. A chunk has the lower bound if its rows are
    ``sampled``, so multiplied later with other chunks', and the cache holds the matrix."""
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
    """How many rows of V numbers sampled gradients collect on a CPU before they are multiplied: as
    many as an exact chunk has, at least 30 MiB, or ``chunk_bytes``."""
    if chunk_bytes is None:
        chunk_bytes = max(CPU_CACHED_BYTES, _cpu_chunk_bytes(weight, dtype))
    return tokens_per_chunk(1, len(weight), chunk_bytes, min(4, dtype.itemsize))


def tokens_per_block(n_components: int, vocabulary: int) -> int:
    """How many tokens' softmaxes a CPU computes and mixes at once."""
    return tokens_per_chunk(n_components, vocabulary, CPU_BLOCK_BYTES)


def even_chunk_size(mixture: Mixture, chunk_bytes: int | None) -> int:
    """As :func:`chunk_size` for logits in float32; on a CPU all chunks have about the same size,
    unless ``chunk_bytes`` is given."""
    chunk = chunk_size(mixture, torch.float32, chunk_bytes)
    tokens, n_components, _ = mixture.components.shape
    if chunk_bytes is not None or mixture.components.device.type != "cpu":
        return chunk
    most = tokens_per_chunk(n_components, len(mixture.weight), LARGEST_PRODUCT)
    return even_chunk(tokens, min(chunk, most), most)


def even_chunk(tokens: int, chunk: int, most: int) -> int:
    """About ``chunk`` tokens, at most ``most``, such that all chunks are equally large: a small
    last one would read the whole output matrix again."""
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
    """A matrix (..., d) with one more column, then zeros up to a multiple of 16 for speed.
    Components with a column of ones times the output matrix with the bias give logits."""
    width = matrix.size(-1)
    wide = F.pad(matrix, (0, -width % 16 or 16))
    wide[..., width] = column
    return wide


def smallest_sum(probs: Tensor) -> float:
    """A sum of probabilities below this number loses digits."""
    return torch.finfo(probs.dtype).tiny ** 0.8
