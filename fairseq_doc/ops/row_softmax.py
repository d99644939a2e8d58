"""Softmaxes of rows of logits, in place, block by block; the log-softmax of each row's target, and
the posteriors that follow from it.

A softmax finds the largest logit of a row, subtracts it, and divides by the sum: three passes over
(R, V) numbers that the gradients of the mixture do not need. With E = exp(l) and its sum Z,

    r (E / Z - [v = y]) = (r / Z) (E - Z [v = y])

whose factor is applied to vectors of width d. So :func:`exp_` has one pass for exp and one for the
sum. If the sums show that logits are too large or too small, :func:`softmax_` is used instead.

Axes: R rows, V vocabulary, J components.
"""

import math

import torch
from torch import Tensor

from fairseq_doc.ops.matmul import backend
from fairseq_doc.ops.mixture import sum_dtype
from fairseq_doc.ops.mixture_chunks import tokens_per_block

# If a sum of exp(l) is between the inverse of this number and this number, it has neither
# overflowed nor lost a relevant word, and a posterior divided by it does not vanish.
LARGEST_SUM = 2.0**60
LOG2_E = math.log2(math.e)
# Posteriors below this are set to zero: their products would be denormal numbers, on which a CPU is
# thirty times slower.
NEGLIGIBLE = {dtype: torch.finfo(dtype).tiny ** 0.5 for dtype in (torch.float32, torch.float64)}


def exp_(rows: Tensor, row_target: Tensor, write: bool) -> tuple[Tensor, Tensor]:
    """Z, the sum of exp over each row of logits (R, V), and the log-softmax of the row's target,
    both (R, 1) in float32 or wider. They are valid only if :func:`are_moderate` accepts Z. If
    ``write``, the rows are replaced by exp(l), minus Z at the target, and Z is adjusted by
    :func:`at_target`."""
    logits = rows.gather(1, row_target).to(sum_dtype(rows.dtype))
    sums = exp_sums(rows, write)
    log_softmax = logits - sums.log()
    if write:
        entry, sums = at_target(logits, sums, rows.dtype)
        # Not by scatter_, which would widen the whole 16-bit tensor.
        rows[torch.arange(len(rows)), row_target.squeeze(1)] = entry.squeeze(1)
    return sums, log_softmax


def at_target(logits: Tensor, sums: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The entry of a row at its target, exp(l) - Z, in ``dtype``, and the divisor of the row. The
    entry makes up most of the row's norm, and Z has more digits than 16 bits hold. So the divisor is
    Z times the relative rounding of this entry, which makes the entry exact."""
    exact = logits.exp() - sums
    entry = exact.to(dtype)
    return entry, torch.where(exact < 0, sums * (entry.to(sums.dtype) / exact), sums)


def exp_sums(rows: Tensor, write: bool) -> Tensor:
    """Z (R, 1) of logits (R, V), in float32 or wider; if ``write``, exp(l) replaces the logits."""
    wide = sum_dtype(rows.dtype)
    in_place = write and wide == rows.dtype
    sums = rows.new_empty(len(rows), 1, dtype=wide)
    block = tokens_per_block(1, rows.size(1))
    scratch = None if in_place else rows.new_empty(min(block, len(rows)), rows.size(1), dtype=wide)
    for start in range(0, len(rows), block):
        of_block = slice(start, start + block)
        part = rows[of_block]
        exp = part if scratch is None else scratch[: len(part)]
        if wide == rows.dtype:
            torch.exp(part, out=exp)
        elif backend() == "onednn":
            # torch's exp is MKL's, which takes three times as long as exp2 on processors that are
            # not Intel's. 24 bits of the exponent are far more than 16-bit logits have.
            exp.copy_(part).mul_(LOG2_E).exp2_()
        else:
            exp.copy_(part).exp_()
        torch.sum(exp, 1, keepdim=True, out=sums[of_block])
        if write and not in_place:
            rows[of_block] = exp
    return sums


def are_moderate(sums: Tensor) -> bool:
    """Whether the sums of :func:`exp_` are valid."""
    if sums.numel() == 0:
        return True
    least, most = sums.aminmax()
    return 1 / LARGEST_SUM < least.item() and most.item() < LARGEST_SUM


def softmax_(rows: Tensor, row_target: Tensor, minus_one: bool = False) -> Tensor:
    """Replace logits (R, V) by their softmaxes in place, minus one at the target if ``minus_one``,
    rounded once. Returns the log-softmax of each row's target, (R, 1), in float32 or wider. The sum
    follows from the largest entry: log Z = m - log max_v s_v, where m is the largest logit."""
    wide = sum_dtype(rows.dtype)
    log_softmax = rows.new_empty(len(rows), 1, dtype=wide)
    block = len(rows)
    if rows.device.type == "cpu":
        block = tokens_per_block(1, rows.size(1))
    scratch = None if wide == rows.dtype else rows.new_empty(block, rows.size(1), dtype=wide)
    for start in range(0, len(rows), block):
        part, target = rows[start : start + block], row_target[start : start + block]
        softmax = part if scratch is None else scratch[: len(part)].copy_(part)
        logit = softmax.gather(1, target)
        logit -= softmax.amax(1, keepdim=True)
        torch.softmax(softmax, 1, out=softmax)  # its kernels read a row before they write it
        logit += softmax.amax(1, keepdim=True).log_()
        log_softmax[start : start + block] = logit
        if minus_one:
            softmax.scatter_add_(1, target, softmax.new_full(target.shape, -1.0))
        if scratch is not None:
            part.copy_(softmax)
    return log_softmax


def posterior_and_nll(log_weights: Tensor, log_softmax: Tensor) -> tuple[Tensor, Tensor]:
    """r_j (c, J) and the NLL (c,) of c tokens, from log pi (c, J) and the log-softmax of the target
    in each of their rows, (c J, 1)."""
    joint = log_weights + log_softmax.view_as(log_weights)
    nll = -joint.logsumexp(1)
    posterior = (joint + nll.unsqueeze(1)).exp()
    return posterior.masked_fill_(posterior < NEGLIGIBLE[posterior.dtype], 0), nll
