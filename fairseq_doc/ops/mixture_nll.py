"""The mixture's negative log likelihood without the (N, J, V) tensor.

Same signatures and values as :mod:`fairseq_doc.ops.reference`, which is the definition. Tokens are
taken in chunks; of a chunk's logits only the target's and the row's normaliser are needed for the
loss, and since all J rows of a token lie in one chunk, its gradients can be formed there too: three
matrix products, no recomputation, one chunk of memory.

Derivation. With l_jv = (W k_j + b)_v, the row's normaliser Z_j = sum_v exp(l_jv - m_j) where m_j is
the row's maximum, and s_jv = exp(l_jv - m_j) / Z_j the softmax, the joint is
a_j = log pi_j + log s_jy, and

    L       = -logsumexp_j a_j
    r_j     = exp(a_j + L)                     the posterior of component j
    dL/d log pi_j = -r_j
    dL/d l_jv     =  r_j (s_jv - [v = y])  =  (r_j / Z_j) e_jv,   e_jv = exp(l_jv - m_j) - [v = y] Z_j

so the (rows, V) array e needs no scaling of its own: its factor r_j / Z_j is applied to vectors of
width d,

    dL/dk_j = (r_j / Z_j) e_j W,     dL/dW = sum_j e_j^T (r_j / Z_j) k_j,     dL/db = sum_j (r_j / Z_j) e_j.

dW is summed transposed, (d, V), with db as one more row of the same product.

With smoothed labels w_v, a for the target and u for every word besides, L = - sum_v w_v log P(v). The
posterior at any word v is A_jv = pi_j s_jv / P(v), and with g_j = sum_v w_v A_jv = a r_j + u sum_v A_jv

    dL/d log pi_j = -g_j
    dL/d l_jv     =  g_j s_jv - w_v A_jv  =  (1 / Z_j) (exp(l_jv - m_j) (g_j - u pi_j / P(v)) - a [v = y] r_j Z_j)
"""

import torch

from fairseq_doc.ops import reference
from fairseq_doc.ops.matmul import add_matmul_, autocast_off, matmul, matmul_dtype
from fairseq_doc.ops.reference import sum_dtype

# Bytes of one chunk of float32 logits. On a CPU a chunk should stay in the last-level cache, yet
# every chunk also reads and writes the gradient of the output matrix, so the two are made as large
# as each other within these bounds; above the second, glibc's allocator maps every chunk anew.
CPU_CHUNK_BYTES = (8 * 2**20, 30 * 2**20)
GPU_CHUNK_BYTES = 512 * 2**20
# Of a CPU's chunk so many bytes are made softmaxes and mixed at once, in its second-level cache.
CPU_BLOCK_BYTES = 2 * 2**20

# A smaller posterior, beside those of the same token that sum to one, counts as zero: its products
# would be of denormal numbers, which take a CPU thirty times as long.
_NEGLIGIBLE = {dtype: torch.finfo(dtype).tiny ** 0.5 for dtype in (torch.float32, torch.float64)}


def tokens_per_chunk(n_components, vocabulary, chunk_bytes):
    """How many tokens' logits, J x V float32 numbers each, fit in ``chunk_bytes``; at least 1."""
    return max(1, chunk_bytes // (4 * n_components * max(1, vocabulary)))


def _chunk_size(components, weight, chunk_bytes):
    if chunk_bytes is None:
        chunk_bytes = GPU_CHUNK_BYTES
        if components.device.type == "cpu":
            least, most = CPU_CHUNK_BYTES
            chunk_bytes = min(max(4 * weight.numel(), least), most)
    return tokens_per_chunk(components.size(1), weight.size(0), chunk_bytes)


def _even_chunk(tokens, chunk, most):
    """Tokens a chunk, about ``chunk`` and at most ``most``, so that no small rest reads the whole
    output matrix again."""
    even = -(-tokens // max(1, round(tokens / chunk)))
    if even > most:
        even = -(-tokens // -(-tokens // chunk))
    return max(1, even)


def _matmul_dtype(components, weight):
    """As :func:`fairseq_doc.ops.matmul.matmul_dtype`, and 16 bits where one of the two has
    them."""
    dtype = matmul_dtype(components)
    return weight.dtype if weight.dtype in (torch.bfloat16, torch.float16) else dtype


class _Chunks:
    """One pass over the chunks: the losses and, where wanted, the gradients.

    ``wanted`` is four booleans: gradients of components, log weights, weight, bias.
    """

    def __init__(
        self, components, log_weights, weight, bias, target, ignore_index, dtype, chunk, smoothing
    ):
        self.dtype = dtype
        self.sums = sum_dtype(dtype)
        self.components = components.to(self.dtype)
        self.log_weights = log_weights.to(self.sums)
        self.weight = weight.to(self.dtype)
        self.bias = None if bias is None else bias.to(self.dtype)
        self.target = target
        kept = target.ne(ignore_index)
        self.all_kept = bool(kept.all())
        if self.all_kept:
            self.chunks = [slice(start, start + chunk) for start in range(0, len(target), chunk)]
        else:  # the others take no time
            self.chunks = kept.nonzero().squeeze(1).split(chunk) if kept.any() else ()
        self.of_word = smoothing / max(1, weight.size(0) - 1)  # u
        self.of_target = 1 - smoothing - self.of_word if smoothing else 1.0  # a

    def run(self, wanted, token_scale=None):
        """NLL (N,), zero where ignored; what smoothing adds to a times their sum; and the gradients of
        the whole, each token's loss times ``token_scale`` (N,)."""
        n, j, d = self.components.shape
        v = self.weight.size(0)
        want_k, want_pi, want_w, want_b = wanted
        if token_scale is not None:
            token_scale = token_scale.to(self.sums).unsqueeze(1)

        new = self.weight.new_empty if self.all_kept else self.weight.new_zeros
        nll = new(n, dtype=self.sums)
        added = nll.new_zeros(())
        d_k = new(n, j, d, dtype=self.sums) if want_k else None
        d_pi = new(n, j, dtype=self.sums) if want_pi else None
        height = d * want_w + want_b  # rows of the transposed sum: dW^T, then db
        d_w = self.weight.new_zeros(height, v, dtype=self.sums) if height else None

        for at in self.chunks:
            k = self.components[at].reshape(-1, d)  # (c J, d)
            row_target = self.target[at].repeat_interleave(j).unsqueeze(1)  # (c J, 1)

            rows = matmul(k, self.weight, self.bias).to(self.sums)  # (c J, V): logits
            target_logit = rows.gather(1, row_target)  # (c J, 1)
            top = rows.amax(1, keepdim=True)
            rows.sub_(top).exp_()
            normaliser = rows.sum(1, keepdim=True)  # (c J, 1): Z_j, at least 1
            log_softmax = (target_logit - top - normaliser.log()).view(-1, j)  # (c, J)
            joint = self.log_weights[at] + log_softmax
            nll[at] = -joint.logsumexp(1)
            if not (height or want_k or want_pi or self.of_word):
                continue

            posterior = (joint + nll[at].unsqueeze(1)).exp()  # (c, J)
            posterior.masked_fill_(posterior < _NEGLIGIBLE[self.sums], 0)
            if token_scale is not None:
                posterior *= token_scale[at]
            if self.of_word:
                loss, posterior = self._smooth(k, rows, normaliser, at, posterior, row_target)
                added += loss
            if want_pi:
                d_pi[at] = -posterior
            if not (height or want_k):
                continue

            factor = 1.0 if self.of_word else posterior.view(-1, 1)  # (c J, 1)
            if not self.of_word:
                rows.scatter_add_(1, row_target, -normaliser)
            if self.dtype == self.sums:
                factor = factor / normaliser
            else:  # normalised first: 16 bits hold softmaxes better than their small factors
                rows = rows.div_(normaliser).to(self.dtype)
            if want_k:
                d_k[at] = (matmul(rows, self.weight.t()) * factor).view(-1, j, d).to(self.sums)
            if height:
                left = [k * factor] if want_w else []
                left += [torch.ones_like(normaliser) * factor] if want_b else []
                left = torch.cat(left, dim=1).to(self.dtype)  # (c J, d + 1)
                add_matmul_(d_w, left.t(), rows.t())

        d_weight = d_w[:d].t().contiguous() if want_w else None
        d_bias = d_w[-1].clone() if want_b else None  # not a view that keeps all of d_w
        return nll, added, (d_k, d_pi, d_weight, d_bias)

    def _smooth(self, k, rows, normaliser, at, posterior, row_target):
        """What smoothing adds to a chunk's loss, and g (c, J); ``rows`` (c J, V), which come as
        exp(l - m), become Z_j dL/d l."""
        pi = self.log_weights[at].exp().unsqueeze(2)  # (c, J, 1)
        target, word = self.of_target * posterior.unsqueeze(2), self.of_word
        by_token = rows.view(*posterior.shape, -1)  # (c, J, V)
        over = pi / normaliser.view_as(pi)
        probs = torch.bmm(over.transpose(1, 2), by_token)  # (c, 1, V)
        if probs.min() > _smallest(probs):
            inverse = probs.reciprocal()
            g = target + word * over * torch.bmm(by_token, inverse.transpose(1, 2))  # (c, J, 1)
            by_token.mul_(g - word * pi * inverse)
            log_probs = probs.log_()
        else:  # a word to which every component gives next to nothing: in log space
            logits = matmul(k, self.weight, self.bias).to(self.sums).view_as(by_token)
            joint = self.log_weights[at].unsqueeze(2) + logits.log_softmax(2)
            log_probs = joint.logsumexp(1, keepdim=True)  # (c, 1, V)
            posteriors = (joint - log_probs).exp()  # (c, J, V)
            g = target + word * posteriors.sum(2, keepdim=True)
            by_token.mul_(g).sub_(posteriors * (word * normaliser.view_as(pi)))
        rows.scatter_add_(1, row_target, -target.view(-1, 1) * normaliser)
        return -word * log_probs.sum(), g.squeeze(2)


class _MixtureNLL(torch.autograd.Function):
    """``summed`` forms its gradients in the forward pass and the backward pass scales them; without
    it every token has a factor that only the backward pass knows, so it runs the chunks again.
    ``settings`` are the ignored index, the products' dtype, the chunk's tokens and the smoothing.

    Gives the loss, which for ``summed`` is with smoothed labels, and the NLL without a gradient.
    """

    @staticmethod
    def forward(ctx, components, log_weights, weight, bias, target, summed, settings):
        inputs = (components, log_weights, weight, bias)
        ctx.dtypes = [None if x is None else x.dtype for x in inputs]
        ctx.summed, ctx.settings = summed, settings
        chunks = _Chunks(*inputs, target, *settings)
        if not summed:
            ctx.save_for_backward(*inputs, target)
            nll, _, _ = chunks.run((False,) * 4)
            return nll, None
        nll, added, gradients = chunks.run(ctx.needs_input_grad[:4])
        ctx.save_for_backward(*gradients)
        nll = nll.sum()
        ctx.mark_non_differentiable(nll)
        return chunks.of_target * nll + added, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output, _):
        if ctx.summed:
            gradients = ctx.saved_tensors
            # A factor of one, the usual case, costs nothing where reading it costs nothing.
            if grad_output.device.type != "cpu" or grad_output.item() != 1.0:
                gradients = [None if g is None else g * grad_output for g in gradients]
        else:
            with autocast_off(grad_output):
                chunks = _Chunks(*ctx.saved_tensors, *ctx.settings)
                _, _, gradients = chunks.run(ctx.needs_input_grad[:4], grad_output)
        gradients = [
            g if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True)
        ]
        return (*gradients, None, None, None)


def mixture_nll(
    components,
    log_weights,
    weight,
    bias,
    target,
    ignore_index=-100,
    reduction="sum",
    chunk_bytes=None,
):
    """-log P(target) in chunks; arguments and result as
    :func:`fairseq_doc.ops.reference.mixture_nll`.

    Under autocast, or with 16-bit inputs, products are taken in that dtype and everything between
    them, the result too, in float32. Ignored targets take no time.

    Args:
        chunk_bytes: memory for one chunk of float32 logits; None: as much as the output
            matrix, from 8 to 30 MiB, on a CPU, 512 MiB elsewhere.
    """
    reference.check_shapes(components, log_weights, weight, bias, target)
    inputs = (components, log_weights, weight, bias)
    nll, _ = _run(inputs, target, ignore_index, reduction != "none", chunk_bytes)
    return reference.reduce_nll(nll, target, ignore_index, reduction)


def smoothed_mixture_nll(
    components,
    log_weights,
    weight,
    bias,
    target,
    smoothing,
    ignore_index=-100,
    chunk_bytes=None,
):
    """The cross entropy against smoothed labels and the NLL, in chunks; arguments and result as
    :func:`fairseq_doc.ops.reference.smoothed_mixture_nll`, dtypes and ``chunk_bytes`` as in
    :func:`mixture_nll`."""
    reference.check_smoothing(smoothing)
    reference.check_shapes(components, log_weights, weight, bias, target)
    inputs = (components, log_weights, weight, bias)
    return _run(inputs, target, ignore_index, True, chunk_bytes, smoothing)


def _run(inputs, target, ignore_index, summed, chunk_bytes, smoothing=0.0):
    """(loss, NLL), both sums, or with ``summed`` false the NLL of each target, None."""
    components, _, weight, _ = inputs
    settings = (
        ignore_index,
        _matmul_dtype(components, weight),
        _chunk_size(components, weight, chunk_bytes),
        smoothing,
    )
    with autocast_off(components):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            return _MixtureNLL.apply(*inputs, target, summed, settings)
        chunks = _Chunks(*inputs, target, *settings)
        nll, added, _ = chunks.run((False,) * 4)
        return (chunks.of_target * nll.sum() + added, nll.sum()) if summed else (nll, None)


def mixture_log_probs(components, log_weights, weight, bias, chunk_bytes=None):
    """log P of every word in chunks of tokens; arguments and result as
    :func:`fairseq_doc.ops.reference.mixture_log_probs`.

    Beyond the result, (N, V), only one chunk of logits exists, unless a gradient is asked for.
    """
    reference.check_shapes(components, log_weights, weight, bias)
    chunk = _chunk_size(components, weight, chunk_bytes)
    if chunk_bytes is None and components.device.type == "cpu":
        most = tokens_per_chunk(components.size(1), weight.size(0), CPU_CHUNK_BYTES[1])
        chunk = _even_chunk(len(components), chunk, most)
    dtype = _matmul_dtype(components, weight)
    inputs = (components, log_weights, weight, bias)
    asked = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    with autocast_off(components):
        components, weight = components.to(dtype), weight.to(dtype)
        log_weights, bias = (
            log_weights.to(sum_dtype(dtype)),
            None if bias is None else bias.to(dtype),
        )
        if asked:
            parts = [
                reference.mixture_log_probs(k, log_pi, weight, bias)
                for k, log_pi in zip(components.split(chunk), log_weights.split(chunk), strict=True)
            ]
            return torch.cat(parts)
        if len(components) <= chunk:
            return _log_probs_of_chunk(components, log_weights, weight, bias)
        log_probs = log_weights.new_empty(len(components), weight.size(0))
        for at in range(0, len(components), chunk):
            rows = slice(at, at + chunk)
            log_probs[rows] = _log_probs_of_chunk(components[rows], log_weights[rows], weight, bias)
        return log_probs


def _log_probs_of_chunk(components, log_weights, weight, bias):
    """log P of every word, (c, V), by way of the probabilities, which need half the exponentials;
    where one is too small for that, as the definition says."""
    c, j, d = components.shape
    rows = matmul(components.reshape(-1, d), weight, bias).to(log_weights.dtype)  # (c J, V)
    if j == 1:
        return rows.log_softmax(1).add_(log_weights)
    rows = rows.view(c, j, weight.size(0))
    pi = log_weights.exp().unsqueeze(1)  # (c, 1, J)
    block = tokens_per_chunk(*rows.shape[1:], CPU_BLOCK_BYTES) if rows.device.type == "cpu" else c
    probs = rows.new_empty(c, 1, weight.size(0))
    for at in range(0, c, max(1, block)):
        block_at = slice(at, at + block)
        torch.bmm(pi[block_at], rows[block_at].softmax(2), out=probs[block_at])
    probs = probs.squeeze(1)  # (c, V)
    if probs.numel() and probs.min() < _smallest(probs):
        return reference.mixture_log_probs(components, log_weights, weight, bias)
    return probs.log_()


def _smallest(probs):
    """Below this number a sum of probabilities loses digits."""
    return torch.finfo(probs.dtype).tiny ** 0.8
