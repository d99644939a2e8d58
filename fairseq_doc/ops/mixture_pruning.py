"""A mixture without the components that weigh least, for evaluation: softmaxes of the others only.

At each token the components of a weight below a threshold are left out, and the weights of the rest sum
to one again; the heaviest always stays. The N tokens then have R <= N J softmaxes, and time falls with R.

Axes: N tokens, J components, d width of a component's vector, V vocabulary, R kept components of all
tokens, row by row.
"""

import torch

from fairseq_doc.ops import reference
from fairseq_doc.ops.matmul import autocast_off, matmul
from fairseq_doc.ops.mixture_chunks import (
    chunk_size,
    mixture_matmul_dtype,
    smallest_sum,
    tokens_per_block,
)
from fairseq_doc.ops.reference import sum_dtype
from fairseq_doc.ops.row_softmax import target_log_softmax


def pruned_log_weights(log_weights: torch.Tensor, threshold: float) -> torch.Tensor:
    """log pi (N, J) without the weights below ``threshold``, which become -inf; a row's others sum to
    one."""
    heaviest = log_weights.amax(1, keepdim=True)
    light = (log_weights.exp() < threshold) & (log_weights < heaviest)
    return log_weights.masked_fill(light, -torch.inf).log_softmax(1)


def pruned_mixture_nll(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "sum",
    precision: torch.dtype = torch.float32,
) -> torch.Tensor:
    """-log P(target), without a gradient; arguments and result as
    :func:`fairseq_doc.ops.reference.mixture_nll`, ``precision`` as in
    :func:`fairseq_doc.ops.mixture_nll.mixture_nll`. Components of a log weight of -inf, and ignored
    targets, take no time."""
    reference.check_shapes(components, log_weights, weight, bias, target)
    counted = target.ne(ignore_index)
    kept = (log_weights > -torch.inf) & counted.unsqueeze(1)  # (N, J)
    token, component = kept.nonzero(as_tuple=True)  # (R,)
    joint = log_weights.to(sum_dtype(log_weights.dtype)).masked_fill(~kept, -torch.inf)  # (N, J)
    parts = []
    for rows, logits in _logits(components[token, component], weight, bias, precision, components):
        parts.append(target_log_softmax(logits, target[token[rows]].unsqueeze(1)).squeeze(1))
    if parts:
        joint[token, component] += torch.cat(parts).to(joint.dtype)
    nll = torch.where(counted, -joint.logsumexp(1), 0.0)
    return reference.reduce_nll(nll, target, ignore_index, reduction)


def pruned_mixture_log_probs(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    precision: torch.dtype = torch.float32,
) -> torch.Tensor:
    """log P of every word, (N, V), without a gradient; arguments as in :func:`pruned_mixture_nll`."""
    reference.check_shapes(components, log_weights, weight, bias)
    kept = log_weights > -torch.inf  # (N, J)
    token, component = kept.nonzero(as_tuple=True)  # (R,)
    pi = log_weights[token, component].exp().unsqueeze(1)  # (R, 1)
    probs = log_weights.new_zeros(len(components), len(weight), dtype=sum_dtype(log_weights.dtype))
    for rows, logits in _logits(components[token, component], weight, bias, precision, components):
        block = tokens_per_block(1, len(weight)) if logits.device.type == "cpu" else len(logits)
        of_block = (x.split(block) for x in (logits, pi[rows], token[rows]))
        for some, shares, tokens in zip(*of_block, strict=True):
            probs.index_add_(0, tokens, (some.to(probs.dtype).softmax(1).mul_(shares)))
    if probs.numel() and probs.min() < smallest_sum(probs):  # in log space
        return reference.mixture_log_probs(components, log_weights, weight, bias)
    return probs.log_()


def _logits(vectors, weight, bias, precision, components):
    """(a range of the R kept components, their logits (r, V)), chunk by chunk."""
    dtype = mixture_matmul_dtype(components, weight, precision)
    size = chunk_size(components, weight, dtype, None) * components.size(1)
    with autocast_off(components):
        weight = weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        for start in range(0, len(vectors), size):
            rows = slice(start, start + size)
            yield rows, matmul(vectors[rows].to(dtype), weight, bias)
