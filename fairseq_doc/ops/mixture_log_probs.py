"""log P of every word in chunks of tokens, without the (N, J, V) tensor;
:func:`fairseq_doc.ops.reference.mixture_log_probs` is the definition."""

import torch
from torch import Tensor

from fairseq_doc.ops import reference
from fairseq_doc.ops.matmul import autocast_off, is_on_cpu, matmul, needs_gradient
from fairseq_doc.ops.mixture import Mixture, sum_dtype
from fairseq_doc.ops.mixture_chunks import (
    even_chunk_size,
    mixture_matmul_dtype,
    smallest_sum,
    tokens_per_block,
)


def mixture_log_probs(
    mixture: Mixture, chunk_bytes: int | None = None, precision: torch.dtype = torch.float32
) -> Tensor:
    """log P of every word, (N, V); ``chunk_bytes`` (per chunk of logits) and ``precision`` as in
    :func:`fairseq_doc.ops.mixture_nll.fused_mixture_nll`. Memory holds the logits of one chunk, or
    of all chunks if a gradient is needed."""
    mixture.check()
    dtype = mixture_matmul_dtype(mixture, precision)
    chunk = even_chunk_size(mixture, chunk_bytes)
    with autocast_off(mixture.components):
        components, log_weights, weight, bias = mixture
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        components, log_weights = components.to(dtype), log_weights.to(sum_dtype(dtype))
        parts = zip(components.split(chunk), log_weights.split(chunk), strict=True)
        chunks = [Mixture(*part, weight, bias) for part in parts]
        if any(map(needs_gradient, mixture)):
            return torch.cat([reference.mixture_log_probs(of_chunk) for of_chunk in chunks])
        if len(chunks) == 1:
            return _log_probs_of_chunk(chunks[0])
        log_probs = log_weights.new_empty(len(components), len(weight))
        for rows, of_chunk in zip(log_probs.split(chunk), chunks, strict=True):
            rows.copy_(_log_probs_of_chunk(of_chunk))
        return log_probs


def _log_probs_of_chunk(mixture: Mixture) -> Tensor:
    """log P of every word, (c, V). On a CPU softmaxes are mixed as probabilities, which takes half
    as many exponentials as log space, unless a probability is too small for that."""
    components, log_weights, weight, bias = mixture
    (c, j, _), v = components.shape, len(weight)
    rows = matmul(components.flatten(0, 1), weight, bias).to(log_weights.dtype)  # (c J, V)
    if j == 1:
        return rows.log_softmax(1).add_(log_weights)
    rows = rows.view(c, j, v)
    if not is_on_cpu(rows):
        return rows.log_softmax(2).add_(log_weights.unsqueeze(2)).logsumexp(1)
    pi = log_weights.exp().unsqueeze(1)  # (c, 1, J)
    block = tokens_per_block(j, v)
    probs = rows.new_empty(c, 1, v)
    for start in range(0, c, block):
        tokens = slice(start, start + block)
        torch.bmm(pi[tokens], rows[tokens].softmax(2), out=probs[tokens])
    probs = probs.squeeze(1)  # (c, V)
    if probs.numel() and probs.min() < smallest_sum(probs):
        return reference.mixture_log_probs(mixture)
    return probs.log_()
