"""What the mixture's chunked forms share: how many tokens they take at once, and in which dtype."""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional as F

from fairseq_doc.ops.matmul import LARGEST_PRODUCT, matmul_dtype

# Bytes of one chunk of logits on a CPU. Every chunk reads the output matrix, and reads and writes its
# gradient, so a chunk is as large as that matrix within these bounds, or with 16-bit products, which take
# half the time, twice as large.
CPU_CHUNK_BYTES = (16 * 2**20, 256 * 2**20)
# Of rows that sampled gradients gather, at least. A matrix of this size is still in the cache after a chunk.
CPU_CACHED_BYTES = 30 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
# Block size in which a CPU computes and mixes softmaxes; fits the second-level cache.
CPU_BLOCK_BYTES = 2 * 2**20


# From these bytes of the matrix in float32 on, a CPU takes tiles of rows and words instead of chunks.
TILED_BYTES = 256 * 2**20


def takes_tiles(weight: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the matrix (V, d) is so large that a chunk of tokens would have few rows."""
    on_cpu = weight.device.type == "cpu"
    return on_cpu and dtype != torch.float16 and 4 * weight.numel() >= TILED_BYTES


def tokens_per_chunk(
    n_components: int, vocabulary: int, chunk_bytes: int, itemsize: int = 4
) -> int:
    """How many tokens' logits, J x V numbers of ``itemsize`` bytes each, fit in ``chunk_bytes``; at
    least 1."""
    return max(1, chunk_bytes // (itemsize * n_components * max(1, vocabulary)))


def chunk_size(
    components: torch.Tensor,
    weight: torch.Tensor,
    dtype: torch.dtype,
    chunk_bytes: int | None,
    sampled: bool = False,
) -> int:
    """Tokens of a chunk whose logits have ``dtype``.

    Args:
        components: (N, J, d).
        weight: (V, d).
        dtype: of the logits.
        chunk_bytes: memory for one chunk of logits; None: as much as the output matrix, within the
            bounds above, or on a GPU 512 MiB.
        sampled: the gradients are, so that their rows meet the gradient of the matrix later, together
            with other chunks': where the cache holds the matrix, a chunk has the lower bound.
    """
    if chunk_bytes is None:
        chunk_bytes = GPU_CHUNK_BYTES
        if components.device.type == "cpu":
            chunk_bytes = _cpu_chunk_bytes(weight, dtype)
            if sampled and weight.numel() * dtype.itemsize <= CPU_CACHED_BYTES:
                chunk_bytes = CPU_CHUNK_BYTES[0]
    # On a GPU 16-bit logits are widened in one piece; float64 is for tests.
    itemsize = min(4, dtype.itemsize) if components.device.type == "cpu" else 4
    return tokens_per_chunk(components.size(1), weight.size(0), chunk_bytes, itemsize)


def _cpu_chunk_bytes(weight: torch.Tensor, dtype: torch.dtype) -> int:
    least, most = CPU_CHUNK_BYTES
    size = 4 * weight.numel() * (2 if dtype.itemsize == 2 else 1)
    return min(max(size, least), most)


def rows_per_product(weight: torch.Tensor, dtype: torch.dtype, chunk_bytes: int | None) -> int:
    """How many rows of V numbers sampled gradients gather on a CPU before they are multiplied: as many as
    a chunk of exact ones has, at least 30 MiB, or ``chunk_bytes``."""
    if chunk_bytes is None:
        chunk_bytes = max(CPU_CACHED_BYTES, _cpu_chunk_bytes(weight, dtype))
    return tokens_per_chunk(1, weight.size(0), chunk_bytes, min(4, dtype.itemsize))


def tokens_per_block(n_components: int, vocabulary: int) -> int:
    """How many tokens' softmaxes a CPU computes and mixes at once."""
    return tokens_per_chunk(n_components, vocabulary, CPU_BLOCK_BYTES)


def even_chunk_size(components: torch.Tensor, weight: torch.Tensor, chunk_bytes: int | None) -> int:
    """As :func:`chunk_size` for logits in float32; on a CPU, where ``chunk_bytes`` does not say how
    large, all chunks have about the same size."""
    chunk = chunk_size(components, weight, torch.float32, chunk_bytes)
    if chunk_bytes is not None or components.device.type != "cpu":
        return chunk
    most = tokens_per_chunk(components.size(1), weight.size(0), LARGEST_PRODUCT)
    return even_chunk(len(components), min(chunk, most), most)


def even_chunk(tokens: int, chunk: int, most: int) -> int:
    """Tokens per chunk, about ``chunk`` and at most ``most``, so that the chunks are equally large:
    a small last chunk would read the whole output matrix again."""
    n_chunks = max(1, round(tokens / chunk))
    even = math.ceil(tokens / n_chunks)
    if even > most:
        n_chunks = math.ceil(tokens / chunk)
        even = math.ceil(tokens / n_chunks)
    return max(1, even)


def mixture_matmul_dtype(
    components: torch.Tensor, weight: torch.Tensor, precision: torch.dtype
) -> torch.dtype:
    """As :func:`fairseq_doc.ops.matmul.matmul_dtype`, and 16 bits if one of the two has them."""
    dtype = matmul_dtype(components, precision)
    return weight.dtype if weight.dtype in (torch.bfloat16, torch.float16) else dtype


def with_bias(
    components: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Components (N, J, D) with a column of ones and the matrix (V, D) with the bias, so that their product
    has it; D is above d, and a multiple of 16 for the products' speed. The others are zeros."""
    d = weight.size(1)
    missing = -d % 16 or 16
    weight = F.pad(weight, (0, missing))
    weight[:, d] = bias
    components = F.pad(components, (0, missing))
    components[..., d] = 1
    return components, weight


def needs_gradient(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd will ask for the gradient of any of these."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def smallest_sum(probs: torch.Tensor) -> float:
    """A sum of probabilities below this number loses digits."""
    return torch.finfo(probs.dtype).tiny ** 0.8
