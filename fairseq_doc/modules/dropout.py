"""Forms of dropout in AWD-LSTM (Merity et al., 2018).

All of them divide kept values by 1 - p. Those with ``training`` return the input without it, or with
p = 0.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_LEVELS = 2**16


def keep_mask(shape: Sequence[int], p: float, device: torch.device | str) -> tuple[Tensor, float]:
    """A boolean mask, true with probability 1 - p (p rounded to a multiple of 1/65,536), and the
    inverse of that probability. One random number of 64 bits decides four entries: on a CPU torch's
    ``bernoulli_`` takes longer than the matrix products of the recurrence."""
    dropped = min(round(p * _LEVELS), _LEVELS - 1)
    count = torch.Size(shape).numel()
    bits = torch.empty(math.ceil(count / 4), dtype=torch.int64, device=device)
    # The whole range of int64: random_() alone would leave the sign bit zero.
    bits.random_(torch.iinfo(torch.int64).min, None)
    levels = bits.view(torch.int16)[:count].view(shape)
    return levels.ge(dropped - _LEVELS // 2), _LEVELS / (_LEVELS - dropped)


def dropout_mask(shape: Sequence[int], p: float, training: bool, like: Tensor) -> Tensor | None:
    """A factor for each entry, zero or 1 / (1 - p), in the dtype of ``like``; None: no dropout."""
    if not training or p == 0:
        return None
    mask, scale = keep_mask(shape, p, like.device)
    return _as_numbers(mask, like.dtype).mul_(scale)


def _as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    # torch converts bytes seven times as fast as booleans.
    return mask.view(torch.uint8).to(dtype)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Independent dropout of each entry."""
    mask = dropout_mask(x.shape, p, training, x)
    return x if mask is None else x * mask


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Variational dropout of (T, B, D): one mask for all T (Gal and Ghahramani, 2016)."""
    mask = dropout_mask((1, *x.shape[1:]), p, training, x)
    return x if mask is None else x * mask


def embedded_dropout(embedding: Tensor, tokens: Tensor, p: float, training: bool) -> Tensor:
    """Rows of ``embedding`` (V, D) for ``tokens``, with whole words dropped: the row of a dropped
    word is zero at all its positions."""
    rows = torch.nn.functional.embedding(tokens, embedding)  # (*tokens, D)
    mask = dropout_mask((embedding.size(0), 1), p, training, rows)
    return rows if mask is None else rows * mask[tokens]


class _WeightDropout(torch.autograd.Function):
    """weight * mask * scale, which stores only one byte per entry for the backward pass."""

    @staticmethod
    def forward(ctx, weight, mask, scale):
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return _as_numbers(mask, weight.dtype).mul_(weight).mul_(scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return _as_numbers(mask, grad_output.dtype).mul_(grad_output).mul_(ctx.scale), None, None


def weight_dropout(weight: Tensor, p: float) -> Tensor:
    """DropConnect (Wan et al., 2013): each entry of ``weight`` is dropped independently."""
    mask, scale = keep_mask(weight.shape, p, weight.device)
    return _WeightDropout.apply(weight, mask, scale)
