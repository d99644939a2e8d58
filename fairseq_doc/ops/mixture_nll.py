"""The mixture's negative log likelihood without the (N, J, V) tensor.

:mod:`fairseq_doc.ops.reference` is the definition. All J rows of a token are in one chunk, so the
chunk's gradients are computed with its loss: three matrix products, memory for one chunk.

Derivation. With l_jv = (W k_j + b)_v, the row's normaliser Z_j = sum_v exp(l_jv) and s_jv =
exp(l_jv) / Z_j the softmax, the joint is a_j = log pi_j + l_jy - log Z_j, and

    L       = -logsumexp_j a_j
    r_j     = exp(a_j + L)                     the posterior of component j
    dL/d log pi_j = -r_j
    dL/d l_jv     =  r_j e_jv,   e_jv = s_jv - [v = y]

so the factor r_j is applied to vectors of width d, not to the (rows, V) array e,

    dL/dk_j = r_j e_j W,     dL/dW = sum_j e_j^T r_j k_j,     dL/db = sum_j r_j e_j.

Nor is exp(l) divided: Z_j e_jv = exp(l_jv) - Z_j [v = y] replaces e, with the factor r_j / Z_j
(:mod:`fairseq_doc.ops.row_softmax`). dW is summed transposed, (d, V), with db as one more row.

With smoothed labels w_v = u for every word, plus a for the target, L = - sum_v w_v log P(v). The
posterior at any word v is A_jv = pi_j s_jv / P(v), and with
g_j = sum_v w_v A_jv = a r_j + u sum_v A_jv

    dL/d log pi_j = -g_j
    dL/d l_jv     =  g_j s_jv - w_v A_jv  =  s_jv (g_j - u pi_j / P(v)) - a [v = y] r_j

Sampled gradients replace the factor r_j (:mod:`fairseq_doc.ops.gradient_sampling`). With 16-bit
products, everything between the products and all sums over chunks are in float32, and e is rounded
once.
"""

import torch
from torch import Tensor

from fairseq_doc.errors import require
from fairseq_doc.ops import reference
from fairseq_doc.ops.chunked_loss import ChunkedLoss, Losses, LossInputs, LossSettings, Wanted
from fairseq_doc.ops.gradient_sampling import threshold_on
from fairseq_doc.ops.matmul import autocast_off, is_on_cpu, needs_gradient
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_chunks import mixture_matmul_dtype, takes_tiles
from fairseq_doc.ops.tiled_loss import TiledLoss


def _losses(inputs: LossInputs) -> Losses:
    """The loss and gradients, in tiles for a large vocabulary, else in chunks of tokens."""
    settings, tiled = inputs.settings, takes_tiles(inputs.mixture.weight, inputs.settings.dtype)
    tiled = tiled and settings.chunk_bytes is None and not settings.smoothing
    with autocast_off(inputs.target):
        losses = TiledLoss(inputs).run() if tiled else None
        return losses or ChunkedLoss(inputs).run()


class _MixtureNLL(torch.autograd.Function):
    """The loss and, without a gradient, the NLL. If ``settings.summed``, the forward pass computes
    the gradients and the backward pass scales them. Otherwise only the backward pass knows each
    token's factor, and runs over the chunks again; the second output is then None."""

    @staticmethod
    def forward(ctx, components, log_weights, weight, bias, target, settings, wanted):
        mixture = Mixture(components, log_weights, weight, bias)
        ctx.dtypes = [None if x is None else x.dtype for x in mixture]
        ctx.settings, ctx.wanted = settings, wanted
        draw = None
        if settings.sampling and any(wanted):
            draw = 1 - torch.rand(log_weights.shape, dtype=torch.float64)  # u
        if not settings.summed:
            ctx.save_for_backward(*mixture, target, draw)
            return _losses(LossInputs(mixture, target, settings))[0], None
        inputs = LossInputs(mixture, target, settings, wanted, draw)
        nll, smoothing_loss, gradients = _losses(inputs)
        ctx.save_for_backward(*gradients)
        nll = nll.sum()
        ctx.mark_non_differentiable(nll)
        return settings.labels(len(weight))[1] * nll + smoothing_loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output, _):
        if ctx.settings.summed:
            gradients = ctx.saved_tensors
            # Checking for the usual factor, one, saves a product.
            if not is_on_cpu(grad_output) or grad_output.item() != 1.0:
                gradients = [None if g is None else g * grad_output for g in gradients]
        else:
            *tensors, target, draw = ctx.saved_tensors
            mixture, settings = Mixture(*tensors), ctx.settings
            inputs = LossInputs(mixture, target, settings, ctx.wanted, draw, grad_output)
            gradients = _losses(inputs)[2]
        pairs = zip(gradients, ctx.dtypes, strict=True)
        return (*(g if g is None else g.to(dtype) for g, dtype in pairs), None, None, None)


def fused_mixture_nll(
    mixture: Mixture,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "sum",
    chunk_bytes: int | None = None,
    precision: torch.dtype = torch.float32,
    gradient_sampling: float = 0.0,
) -> Tensor:
    """-log P(target) in chunks; see :func:`fairseq_doc.ops.reference.mixture_nll`.

    Under autocast, or with 16-bit inputs, matrix products are in that dtype; everything else,
    including the result, is in float32. On a CPU ignored targets take no time.

    Args:
        chunk_bytes: memory for one chunk of logits. None: 512 MiB, but on a CPU as much as the
            output matrix (twice that with 16-bit products), from 16 to 256 MiB, and for larger
            matrices tiles (``tiled_loss.py``). Sampled gradients take as much again.
        precision: of the products' factors, see :func:`fairseq_doc.ops.matmul.matmul_dtype`.
        gradient_sampling: tau, at least 0; 0: exact gradients. A component with a posterior
            r < tau takes part in the gradients of components, matrix and bias with probability
            r / tau and the factor tau: unbiased, but cheaper. On a GPU gradients are exact, with a
            warning.

    Raises:
        FairseqDocError: shapes that do not fit, an unknown reduction, or a negative tau.
    """
    require(gradient_sampling >= 0, "gradient_sampling", "at least 0", gradient_sampling)
    mixture.check(target)
    dtype, tau = mixture_matmul_dtype(mixture, precision), threshold_on(target, gradient_sampling)
    settings = LossSettings(ignore_index, dtype, chunk_bytes, reduction != "none", sampling=tau)
    wanted = Wanted(*map(needs_gradient, mixture))
    nll, _ = _MixtureNLL.apply(*mixture, target, settings, wanted)
    return reference.reduce_nll(nll, target, ignore_index, reduction)


def fused_smoothed_mixture_nll(
    mixture: Mixture,
    target: Tensor,
    smoothing: float,
    ignore_index: int = -100,
    chunk_bytes: int | None = None,
    precision: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """:func:`fairseq_doc.ops.reference.smoothed_mixture_nll` in chunks; see
    :func:`fused_mixture_nll`."""
    require(0 <= smoothing < 1, "smoothing", "in [0, 1)", smoothing)
    mixture.check(target)
    dtype = mixture_matmul_dtype(mixture, precision)
    settings = LossSettings(ignore_index, dtype, chunk_bytes, smoothing=smoothing)
    wanted = Wanted(*map(needs_gradient, mixture))
    return _MixtureNLL.apply(*mixture, target, settings, wanted)


# The names of their plain forms in reference.py, so that one can take the other's place.
mixture_nll, smoothed_mixture_nll = fused_mixture_nll, fused_smoothed_mixture_nll
