"""The negative log likelihood of a mixture of softmaxes in its plain form: the definition.

Axes: N tokens, J mixture components, d width of a component's vector, V vocabulary.

    log P(y) = logsumexp_j( log pi_j + log softmax(W k_j + b)_y )          (Eq. 7 in log space)

The whole (N, J, V) tensor is in memory; :mod:`fairseq_doc.ops.mixture_nll` and
:mod:`fairseq_doc.ops.mixture_log_probs` compute the same values in pieces.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.errors import require
from fairseq_doc.ops.mixture import Mixture, sum_dtype


def reduce_nll(nll: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """Reduce losses (N,), which are zero at ignored targets, by ``none``, ``sum``, or ``mean`` over
    the targets that are not ignored (zero if all are ignored)."""
    require(reduction in ("none", "sum", "mean"), "reduction", "none, sum or mean", reduction)
    if reduction == "none":
        return nll
    total = nll.sum()
    return total if reduction == "sum" else total / target.ne(ignore_index).sum().clamp(min=1)


def mixture_log_probs(mixture: Mixture) -> Tensor:
    """log P of every word, (N, V); the exponentials of a row sum to one."""
    mixture.check()
    components, log_weights, weight, bias = mixture
    logits = F.linear(components, weight, bias)  # (N, J, V)
    logits = logits.to(sum_dtype(logits.dtype))
    log_softmax = F.log_softmax(logits, dim=-1)  # (N, J, V)
    return torch.logsumexp(log_weights.to(logits.dtype).unsqueeze(-1) + log_softmax, dim=1)


def mixture_nll(
    mixture: Mixture, target: Tensor, ignore_index: int = -100, reduction: str = "sum"
) -> Tensor:
    """-log P(target) in nats for targets (N,). Targets equal to ``ignore_index`` have a loss of zero
    and no gradient. ``reduction``: ``none`` (N,), ``sum`` or ``mean``, see :func:`reduce_nll`."""
    mixture.check(target)
    counted = target.ne(ignore_index)
    index = target.where(counted, 0).unsqueeze(-1)
    nll = -mixture_log_probs(mixture).gather(1, index).squeeze(-1)  # (N,)
    return reduce_nll(torch.where(counted, nll, 0.0), target, ignore_index, reduction)


def smoothed_mixture_nll(
    mixture: Mixture, target: Tensor, smoothing: float, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    """The cross entropy against smoothed labels (Szegedy et al., 2016) as in fairseq: ``1 -
    smoothing`` for the target, the rest shared equally by the other V - 1 words; ``smoothing`` is
    in [0, 1). Returns (cross entropy, NLL), both summed over the targets; no gradient flows through
    the NLL. Other arguments as in :func:`mixture_nll`."""
    mixture.check(target)
    counted = target.ne(ignore_index)
    of_counted = mixture._replace(
        components=mixture.components[counted], log_weights=mixture.log_weights[counted]
    )
    log_probs = mixture_log_probs(of_counted)  # (counted targets, V)
    nll = -log_probs.gather(1, target[counted].unsqueeze(-1)).sum()
    each = smoothing / (mixture.weight.size(0) - 1)
    return (1 - smoothing - each) * nll - each * log_probs.sum(), nll.detach()
