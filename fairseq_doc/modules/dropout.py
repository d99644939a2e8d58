"""The dropouts of AWD-LSTM (Merity et al., 2018) as functions of (tensor, p, training).

All are inverted: what is kept is divided by 1 - p. With ``training`` false or p = 0 each returns
its input unchanged.
"""

import torch

from fairseq_doc.errors import FairseqDocError

_LEVELS = 2**16


def check_rates(**rates):
    """Raise ``FairseqDocError`` for a rate outside [0, 1)."""
    for name, p in rates.items():
        if not 0 <= p < 1:
            raise FairseqDocError(f"--{name.replace('_', '-')} must be in [0, 1); got {p}")


def keep_mask(shape, p, device):
    """A boolean mask that is true with probability 1 - p, p rounded to a 65,536th.

    ``bernoulli_`` draws one number after the other: on a CPU it takes longer for the recurrent
    matrices of a language model than their products. Here one 64-bit draw serves four entries.

    Returns:
        (mask, 1 / probability that an entry is kept).
    """
    dropped = min(round(p * _LEVELS), _LEVELS - 1)
    count = torch.Size(shape).numel()
    bits = torch.empty(-(-count // 4), dtype=torch.int64, device=device)
    # The whole range of int64: random_() alone would leave the sign bit zero.
    bits.random_(torch.iinfo(torch.int64).min, None)
    levels = bits.view(torch.int16)[:count].view(shape)
    return levels.ge(dropped - _LEVELS // 2), _LEVELS / (_LEVELS - dropped)


def locked_dropout(x, p, training, shared_dims=(0,)):
    """Dropout with one mask for all of ``shared_dims`` (variational dropout; Gal and Ghahramani,
    2016): by default one mask a sequence for x of shape (T, B, D), shared over time."""
    if not training or p == 0:
        return x
    shape = [1 if dim in shared_dims else size for dim, size in enumerate(x.shape)]
    mask, scale = keep_mask(shape, p, x.device)
    return x * (mask.to(x.dtype) * scale)


def embedded_dropout(embedding, tokens, p, training):
    """Rows of ``embedding`` (V, D) for ``tokens``, with whole words dropped: a word's row is kept
    or zero at all its places. The matrix itself is untouched."""
    rows = torch.nn.functional.embedding(tokens, embedding)  # (*tokens, D)
    if not training or p == 0:
        return rows
    mask, scale = keep_mask((embedding.size(0), 1), p, embedding.device)
    return rows * (mask.to(rows.dtype) * scale)[tokens]


class _WeightDropout(torch.autograd.Function):
    """weight * mask * scale, holding one byte an entry for the backward pass."""

    @staticmethod
    def forward(ctx, weight, mask, scale):
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (weight * mask).mul_(scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return (grad_output * mask).mul_(ctx.scale), None, None


def weight_dropout(weight, p, training):
    """DropConnect (Wan et al., 2013): each entry of ``weight`` dropped by itself."""
    if not training or p == 0:
        return weight
    mask, scale = keep_mask(weight.shape, p, weight.device)
    return _WeightDropout.apply(weight, mask, scale)
