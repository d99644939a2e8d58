"""The dropouts of AWD-LSTM (Merity et al., 2018) as functions of (tensor, p, training).

All are inverted: kept values are divided by 1 - p. With ``training`` false or p = 0 each returns
its input unchanged.
"""

import math
from collections.abc import Sequence

import torch

_LEVELS = 2**16


def keep_mask(
    shape: Sequence[int], p: float, device: torch.device | str
) -> tuple[torch.Tensor, float]:
    """A boolean mask that is true with probability 1 - p, p rounded to a 65,536th.

    One random number of 64 bits decides four entries. torch's ``bernoulli_`` draws one number for
    each, which on a CPU takes longer than a recurrent matrix's products.

    Returns:
        (mask, 1 / probability that an entry is kept).
    """
    dropped = min(round(p * _LEVELS), _LEVELS - 1)
    count = torch.Size(shape).numel()
    bits = torch.empty(math.ceil(count / 4), dtype=torch.int64, device=device)
    # The whole range of int64: random_() alone would leave the sign bit zero.
    bits.random_(torch.iinfo(torch.int64).min, None)
    levels = bits.view(torch.int16)[:count].view(shape)
    return levels.ge(dropped - _LEVELS // 2), _LEVELS / (_LEVELS - dropped)


def dropout_mask(
    shape: Sequence[int], p: float, training: bool, like: torch.Tensor
) -> torch.Tensor | None:
    """A mask to multiply by, zero or 1 / (1 - p), dtype and device of ``like``; None if nothing is
    to be dropped."""
    if not training or p == 0:
        return None
    mask, scale = keep_mask(shape, p, like.device)
    return _as_numbers(mask, like.dtype).mul_(scale)


def _as_numbers(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as zeros and ones. torch converts bytes seven times as fast as booleans, and
    multiplies by them in a tenth of the time of ``torch.where``."""
    return mask.view(torch.uint8).to(dtype)


def dropout(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Dropout of each entry by itself."""
    mask = dropout_mask(x.shape, p, training, x)
    return x if mask is None else x * mask


def locked_dropout(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """Dropout with one mask a sequence, shared over time (variational dropout; Gal and Ghahramani,
    2016).

    Args:
        x: (T, B, D); the mask is (1, B, D).
    """
    mask = dropout_mask((1, *x.shape[1:]), p, training, x)
    return x if mask is None else x * mask


def embedded_dropout(
    embedding: torch.Tensor, tokens: torch.Tensor, p: float, training: bool
) -> torch.Tensor:
    """Rows of ``embedding`` (V, D) for ``tokens``, with whole words dropped: a dropped word's row
    is zero at all its positions. The matrix does not change."""
    rows = torch.nn.functional.embedding(tokens, embedding)  # (*tokens, D)
    mask = dropout_mask((embedding.size(0), 1), p, training, rows)
    return rows if mask is None else rows * mask[tokens]


class _WeightDropout(torch.autograd.Function):
    """weight * mask * scale; keeps one byte per entry for the backward pass."""

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


def weight_dropout(weight: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """DropConnect (Wan et al., 2013): each entry of ``weight`` is dropped independently."""
    if not training or p == 0:
        return weight
    mask, scale = keep_mask(weight.shape, p, weight.device)
    return _WeightDropout.apply(weight, mask, scale)
