"""log P of every word without the (N, J, V) tensor.

Same signature and values as :func:`fairseq_doc.ops.reference.mixture_log_probs`, the definition. Tokens
are taken in chunks.
"""

import torch

from fairseq_doc.ops import reference
from fairseq_doc.ops.matmul import autocast_off, can_branch_on, matmul
from fairseq_doc.ops.mixture_chunks import (
    even_chunk_size,
    mixture_matmul_dtype,
    needs_gradient,
    smallest_sum,
    tokens_per_block,
)
from fairseq_doc.ops.reference import sum_dtype


def mixture_log_probs(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    chunk_bytes: int | None = None,
    precision: torch.dtype = torch.float32,
) -> torch.Tensor:
    """log P of every word in chunks of tokens; arguments and result as
    :func:`fairseq_doc.ops.reference.mixture_log_probs`, ``precision`` as in
    :func:`fairseq_doc.ops.mixture_nll.mixture_nll`.

    Besides the result, (N, V), memory holds one chunk of logits, or all of them if a gradient is
    needed.
    """
    reference.check_shapes(components, log_weights, weight, bias)
    dtype = mixture_matmul_dtype(components, weight, precision)
    chunk = even_chunk_size(components, weight, chunk_bytes)
    differentiable = needs_gradient((components, log_weights, weight, bias))
    with autocast_off(components):
        components, weight = components.to(dtype), weight.to(dtype)
        log_weights = log_weights.to(sum_dtype(dtype))
        bias = None if bias is None else bias.to(dtype)
        if differentiable:
            chunks = zip(components.split(chunk), log_weights.split(chunk), strict=True)
            return torch.cat(
                [reference.mixture_log_probs(k, log_pi, weight, bias) for k, log_pi in chunks]
            )
        if len(components) <= chunk:
            return _log_probs_of_chunk(components, log_weights, weight, bias)
        log_probs = log_weights.new_empty(len(components), weight.size(0))
        for start in range(0, len(components), chunk):
            tokens = slice(start, start + chunk)
            log_probs[tokens] = _log_probs_of_chunk(
                components[tokens], log_weights[tokens], weight, bias
            )
        return log_probs


def _log_probs_of_chunk(components, log_weights, weight, bias):
    """log P of every word, (c, V).

    The softmaxes are mixed as probabilities, which takes half as many exponentials as in log space;
    only if a probability is too small for that, log space is used."""
    c, j, d = components.shape
    rows = matmul(components.reshape(-1, d), weight, bias).to(log_weights.dtype)  # (c J, V)
    if j == 1:
        return rows.log_softmax(1).add_(log_weights)
    rows = rows.view(c, j, weight.size(0))
    if not can_branch_on(rows):
        return rows.log_softmax(2).add_(log_weights.unsqueeze(2)).logsumexp(1)
    pi = log_weights.exp().unsqueeze(1)  # (c, 1, J)
    block = tokens_per_block(j, weight.size(0))
    probs = rows.new_empty(c, 1, weight.size(0))
    for start in range(0, c, block):
        tokens = slice(start, start + block)
        torch.bmm(pi[tokens], rows[tokens].softmax(2), out=probs[tokens])
    probs = probs.squeeze(1)  # (c, V)
    if probs.numel() and probs.min() < smallest_sum(probs):
        return reference.mixture_log_probs(components, log_weights, weight, bias)
    return probs.log_()
