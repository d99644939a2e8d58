"""How many tokens of a mixture are computed at once, and the dtype of its matrix products."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.ops.matmul import LARGEST_PRODUCT, matmul_dtype
from fairseq_doc.ops.mixture import Mixture

# Smallest and largest size in bytes of a chunk's logits on a CPU. In between, a chunk's logits are as
# large as the output matrix in float32, which each chunk reads; with 16-bit products, which take half
# the time, twice as large.
CPU_CHUNK_BYTES = (16 * 2**20, 256 * 2**20)
# Minimal size in bytes of the rows that sampled gradients collect. A matrix of this size is still in
# the cache after a chunk.
CPU_CACHED_BYTES = 30 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
CPU_BLOCK_BYTES = 2 * 2**20  # of softmaxes; fits the second-level cache
TILED_BYTES = 256 * 2**20  # size of a float32 matrix from which a CPU uses tiles


def takes_tiles(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether to compute in tiles: on a CPU, if the matrix (V, d) is so large that a chunk would
    have only a few tokens. Not in float16, where exp overflows."""
    on_cpu = weight.device.type == "cpu"
    return on_cpu and dtype != torch.float16 and 4 * weight.numel() >= TILED_BYTES


def tokens_per_chunk(
    n_components: int, vocabulary: int, chunk_bytes: int, itemsize: int = 4
) -> int:
    """The number of tokens, at least 1, whose logits, J V each, fit in ``chunk_bytes``."""
    return max(1, chunk_bytes // (itemsize * n_components * max(1, vocabulary)))


def chunk_size(
    mixture: Mixture, dtype: torch.dtype, chunk_bytes: int | None, sampled: bool = False
) -> int:
    """Tokens in a chunk with logits of ``dtype``. A chunk has the minimal size if its rows are
    ``sampled``, and so multiplied later together with those of other chunks, and the matrix fits
    in the cache."""
    weight, on_cpu = mixture.weight, mixture.components.device.type == "cpu"
    if chunk_bytes is None:
        chunk_bytes = _cpu_chunk_bytes(weight, dtype) if on_cpu else GPU_CHUNK_BYTES
        if on_cpu and sampled and weight.numel() * dtype.itemsize <= CPU_CACHED_BYTES:
            chunk_bytes = CPU_CHUNK_BYTES[0]
    # On a GPU 16-bit logits are widened all at once; float64 is used only in tests.
    itemsize = min(4, dtype.itemsize) if on_cpu else 4
    return tokens_per_chunk(mixture.components.size(1), len(weight), chunk_bytes, itemsize)


def _cpu_chunk_bytes(weight: Tensor, dtype: torch.dtype) -> int:
    least, most = CPU_CHUNK_BYTES
    size = 4 * weight.numel() * (2 if dtype.itemsize == 2 else 1)
    return min(max(size, least), most)


def rows_per_product(weight: Tensor, dtype: torch.dtype, chunk_bytes: int | None) -> int:
    """The number of rows of V numbers that sampled gradients collect on a CPU before multiplying:
    as many as fill ``chunk_bytes``; None: a chunk of exact gradients, but at least 30 MiB."""
    if chunk_bytes is None:
        chunk_bytes = max(CPU_CACHED_BYTES, _cpu_chunk_bytes(weight, dtype))
    return tokens_per_chunk(1, len(weight), chunk_bytes, min(4, dtype.itemsize))


def tokens_per_block(n_components: int, vocabulary: int) -> int:
    """The number of tokens whose softmaxes a CPU computes and mixes at once."""
    return tokens_per_chunk(n_components, vocabulary, CPU_BLOCK_BYTES)


def even_chunk_size(mixture: Mixture, chunk_bytes: int | None) -> int:
    """As :func:`chunk_size` for logits in float32. On a CPU, without ``chunk_bytes``, all chunks
    have about the same size, since even a small last one would read the whole output matrix."""
    chunk = chunk_size(mixture, torch.float32, chunk_bytes)
    tokens, n_components, _ = mixture.components.shape
    if chunk_bytes is not None or mixture.components.device.type != "cpu":
        return chunk
    most = tokens_per_chunk(n_components, len(mixture.weight), LARGEST_PRODUCT)
    chunk = min(chunk, most)
    even = math.ceil(tokens / max(1, round(tokens / chunk)))
    if even > most:
        even = math.ceil(tokens / math.ceil(tokens / chunk))
    return max(1, even)


def mixture_matmul_dtype(mixture: Mixture, precision: torch.dtype) -> torch.dtype:
    """As :func:`fairseq_doc.ops.matmul.matmul_dtype`, but the output matrix's dtype if that has 16
    bits."""
    dtype = mixture.weight.dtype
    if dtype in (torch.bfloat16, torch.float16):
        return dtype
    return matmul_dtype(mixture.components, precision)


def with_column(matrix: Tensor, column: Tensor | float) -> Tensor:
    """A matrix (..., d) with one more column, padded by zeros to a multiple of 16 for speed. The
    product of the components with a column of ones and the output matrix with the bias as a column
    is the logits, bias included."""
    width = matrix.size(-1)
    wide = F.pad(matrix, (0, -width % 16 or 16))
    wide[..., width] = column
    return wide


def smallest_sum(probs: Tensor) -> float:
    """A sum of probabilities below this number may have lost digits to underflow."""
    return torch.finfo(probs.dtype).tiny ** 0.8
