"""The negative log likelihood of a mixture of softmaxes in its plain form: the definition.

Axes: N tokens, J mixture components, d width of a component's vector, V vocabulary.

    log P(y) = logsumexp_j( log pi_j + log softmax(W k_j + b)_y )          (Eq. 7 in log space)

Everything (N, J, V) exists at once here. :mod:`fairseq_doc.ops.mixture_nll` and
:mod:`fairseq_doc.ops.mixture_log_probs` compute the same in pieces, with the same signatures.
"""

import torch
from torch.nn import functional as F

from fairseq_doc.errors import FairseqDocError


def check_shapes(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor | None = None,
) -> None:
    """Raise ``FairseqDocError`` unless the shapes belong to one mixture."""
    if components.dim() != 3 or components.shape[:2] != log_weights.shape:
        raise FairseqDocError(
            "the mixture expects component vectors (N, J, d) and log weights (N, J); got "
            f"{tuple(components.shape)} and {tuple(log_weights.shape)}"
        )
    if weight.dim() != 2 or weight.size(1) != components.size(2):
        raise FairseqDocError(
            f"the mixture expects an output matrix (V, {components.size(2)}), as wide as its "
            f"component vectors; got {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise FairseqDocError(
            f"the mixture expects a bias ({weight.size(0)},); got {tuple(bias.shape)}"
        )
    if target is not None and target.shape != components.shape[:1]:
        raise FairseqDocError(
            f"the mixture expects targets ({components.size(0)},); got {tuple(target.shape)}"
        )


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums and normalisations: float32 if ``dtype`` has 16 bits, else ``dtype``."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def reduce_nll(
    nll: torch.Tensor, target: torch.Tensor, ignore_index: int, reduction: str
) -> torch.Tensor:
    """Reduce (N,) losses that are zero at ignored targets: ``none``, ``sum``, or ``mean`` over
    the targets that are not ignored (zero if there are none)."""
    if reduction == "none":
        return nll
    if reduction == "sum":
        return nll.sum()
    if reduction == "mean":
        return nll.sum() / target.ne(ignore_index).sum().clamp(min=1)
    raise FairseqDocError(f"reduction must be none, sum or mean; got {reduction!r}")


def mixture_log_probs(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """log P of every word.

    Args:
        components: k, (N, J, d).
        log_weights: log pi, (N, J); -inf is a weight of zero.
        weight: W, (V, d).
        bias: b, (V,) or None.

    Returns:
        (N, V); the exponentials of a row sum to one.
    """
    check_shapes(components, log_weights, weight, bias)
    logits = F.linear(components, weight, bias)  # (N, J, V)
    logits = logits.to(sum_dtype(logits.dtype))
    log_softmax = F.log_softmax(logits, dim=-1)  # (N, J, V)
    return torch.logsumexp(log_weights.to(logits.dtype).unsqueeze(-1) + log_softmax, dim=1)


def mixture_nll(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "sum",
) -> torch.Tensor:
    """-log P(target), natural logarithm.

    Args:
        components, log_weights, weight, bias: as in :func:`mixture_log_probs`.
        target: (N,) word indices.
        ignore_index: targets of this value have a loss of zero and no gradient.
        reduction: ``none`` (N,), ``sum`` or ``mean``, see :func:`reduce_nll`.
    """
    check_shapes(components, log_weights, weight, bias, target)
    counted = target.ne(ignore_index)
    log_probs = mixture_log_probs(components, log_weights, weight, bias)  # (N, V)
    index = target.where(counted, torch.zeros_like(target)).unsqueeze(-1)
    nll = -log_probs.gather(1, index).squeeze(-1)  # (N,)
    return reduce_nll(torch.where(counted, nll, 0.0), target, ignore_index, reduction)


def check_smoothing(smoothing: float) -> None:
    """Raise ``FairseqDocError`` unless ``smoothing`` is in [0, 1)."""
    if not 0 <= smoothing < 1:
        raise FairseqDocError(f"--label-smoothing must be in [0, 1); got {smoothing}")


def smoothed_mixture_nll(
    components: torch.Tensor,
    log_weights: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    smoothing: float,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cross entropy against smoothed labels (Szegedy et al., 2016), as fairseq defines them:
    1 - smoothing for the target, the rest in equal parts for the other V - 1 words.

    Args:
        components, log_weights, weight, bias, target, ignore_index: as in :func:`mixture_nll`.
        smoothing: in [0, 1).

    Returns:
        (cross entropy, NLL), sums over the targets; no gradient flows through the second.
    """
    check_smoothing(smoothing)
    check_shapes(components, log_weights, weight, bias, target)
    counted = target.ne(ignore_index)
    log_probs = mixture_log_probs(
        components[counted], log_weights[counted], weight, bias
    )  # (counted targets, V)
    nll = -log_probs.gather(1, target[counted].unsqueeze(-1)).sum()
    each = smoothing / (weight.size(0) - 1)
    return (1 - smoothing - each) * nll - each * log_probs.sum(), nll.detach()
