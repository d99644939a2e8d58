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
"""

import torch

from fairseq_doc.ops import reference
from fairseq_doc.ops.products import add_product_, product
from fairseq_doc.ops.reference import sum_dtype

# Bytes of one chunk of float32 logits. On a CPU a chunk should stay in the last-level cache, yet
# every chunk also reads and writes the gradient of the output matrix, so the two are made as large
# as each other within these bounds; above the second, glibc's allocator maps every chunk anew.
CPU_CHUNK_BYTES = (8 * 2**20, 30 * 2**20)
GPU_CHUNK_BYTES = 512 * 2**20


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


def _product_dtype(components, weight):
    """The dtype in which products are taken: autocast's where it is on, else 16 bits where one of
    the two has them, else their own."""
    kind = components.device.type
    if torch.is_autocast_enabled(kind) and components.dtype == torch.float32:
        return torch.get_autocast_dtype(kind)
    return weight.dtype if weight.dtype in (torch.bfloat16, torch.float16) else components.dtype


def _as_written(components):
    """Autocast off: below, every dtype is chosen by name."""
    return torch.autocast(components.device.type, enabled=False)


class _Chunks:
    """One pass over the chunks: the losses and, where wanted, the gradients.

    ``wanted`` is four booleans: gradients of components, log weights, weight, bias.
    """

    def __init__(self, components, log_weights, weight, bias, target, ignore_index, dtype, chunk):
        self.dtype = dtype
        self.sums = sum_dtype(dtype)
        self.components = components.to(self.dtype)
        self.log_weights = log_weights.to(self.sums)
        self.weight = weight.to(self.dtype)
        self.bias = None if bias is None else bias.to(self.dtype)
        self.kept = target.ne(ignore_index)
        self.target = target.where(self.kept, torch.zeros_like(target))
        self.chunk = chunk

    def run(self, wanted, token_scale=None):
        """Losses (N,) and the gradients of their sum, each loss times ``token_scale`` (N,)."""
        n, j, d = self.components.shape
        v = self.weight.size(0)
        want_k, want_pi, want_w, want_b = wanted
        scale = self.kept.to(self.sums)
        if token_scale is not None:
            scale = scale * token_scale.to(self.sums)

        new = self.weight.new_empty
        nll = new(n, dtype=self.sums)
        d_k = new(n, j, d, dtype=self.sums) if want_k else None
        d_pi = new(n, j, dtype=self.sums) if want_pi else None
        height = d * want_w + want_b  # rows of the transposed sum: dW^T, then db
        d_w = self.weight.new_zeros(height, v, dtype=self.sums) if height else None

        for start in range(0, n, self.chunk):
            at = slice(start, start + self.chunk)
            k = self.components[at].reshape(-1, d)  # (c J, d)
            row_target = self.target[at].repeat_interleave(j).unsqueeze(1)  # (c J, 1)

            rows = product(k, self.weight, self.bias).to(self.sums)  # (c J, V): logits
            target_logit = rows.gather(1, row_target)  # (c J, 1)
            top = rows.amax(1, keepdim=True)
            rows.sub_(top).exp_()
            normaliser = rows.sum(1, keepdim=True)  # (c J, 1): Z_j, at least 1
            log_softmax = (target_logit - top - normaliser.log()).view(-1, j)  # (c, J)
            joint = self.log_weights[at] + log_softmax
            nll[at] = -joint.logsumexp(1)
            if not (height or want_k or want_pi):
                continue

            posterior = (joint + nll[at].unsqueeze(1)).exp() * scale[at].unsqueeze(1)  # (c, J)
            if want_pi:
                d_pi[at] = -posterior
            if not (height or want_k):
                continue

            rows.scatter_add_(1, row_target, -normaliser)
            if self.dtype == self.sums:
                factor = posterior.view(-1, 1) / normaliser  # (c J, 1)
            else:  # normalised first: 16 bits hold softmaxes better than their small factors
                rows = rows.div_(normaliser).to(self.dtype)
                factor = posterior.view(-1, 1)
            if want_k:
                d_k[at] = (product(rows, self.weight.t()) * factor).view(-1, j, d)
            if height:
                left = ([k * factor] if want_w else []) + ([factor] if want_b else [])
                left = torch.cat(left, dim=1).to(self.dtype)  # (c J, d + 1)
                add_product_(d_w, left.t(), rows.t())

        d_weight = d_w[:d].t().contiguous() if want_w else None
        d_bias = d_w[-1].clone() if want_b else None  # not a view that keeps all of d_w
        return nll.masked_fill_(~self.kept, 0.0), (d_k, d_pi, d_weight, d_bias)


class _MixtureNLL(torch.autograd.Function):
    """``summed`` forms its gradients in the forward pass and the backward pass scales them; without
    it every token has a factor that only the backward pass knows, so it runs the chunks again.
    ``settings`` are the ignored index, the products' dtype and the chunk's tokens."""

    @staticmethod
    def forward(ctx, components, log_weights, weight, bias, target, summed, settings):
        inputs = (components, log_weights, weight, bias)
        ctx.dtypes = [None if x is None else x.dtype for x in inputs]
        ctx.summed, ctx.settings = summed, settings
        chunks = _Chunks(*inputs, target, *settings)
        if summed:
            nll, gradients = chunks.run(ctx.needs_input_grad[:4])
            ctx.save_for_backward(*gradients)
            return nll.sum()
        ctx.save_for_backward(*inputs, target)
        return chunks.run((False,) * 4)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        if ctx.summed:
            gradients = ctx.saved_tensors
            # A factor of one, the usual case, costs nothing where reading it costs nothing.
            if grad_output.device.type != "cpu" or grad_output.item() != 1.0:
                gradients = [None if g is None else g * grad_output for g in gradients]
        else:
            with _as_written(grad_output):
                chunks = _Chunks(*ctx.saved_tensors, *ctx.settings)
                _, gradients = chunks.run(ctx.needs_input_grad[:4], grad_output)
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
    them, the result too, in float32.

    Args:
        chunk_bytes: memory for one chunk of float32 logits; None: as much as the output
            matrix, from 8 to 30 MiB, on a CPU, 512 MiB elsewhere.
    """
    reference.check_shapes(components, log_weights, weight, bias, target)
    inputs = (components, log_weights, weight, bias)
    settings = (
        ignore_index,
        _product_dtype(components, weight),
        _chunk_size(components, weight, chunk_bytes),
    )
    with _as_written(components):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            nll = _MixtureNLL.apply(*inputs, target, reduction != "none", settings)
        else:
            nll = _Chunks(*inputs, target, *settings).run((False,) * 4)[0]
        return reference.reduce_nll(nll, target, ignore_index, reduction)


def mixture_log_probs(components, log_weights, weight, bias, chunk_bytes=None):
    """log P of every word in chunks of tokens; arguments and result as
    :func:`fairseq_doc.ops.reference.mixture_log_probs`.

    Beyond the result, (N, V), only one chunk of logits exists, unless a gradient is asked for.
    """
    reference.check_shapes(components, log_weights, weight, bias)
    chunk = _chunk_size(components, weight, chunk_bytes)
    dtype = _product_dtype(components, weight)
    inputs = (components, log_weights, weight, bias)
    asked = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    with _as_written(components):
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
        log_probs = log_weights.new_empty(len(components), weight.size(0))
        for at in range(0, len(components), chunk):
            rows = slice(at, at + chunk)
            log_probs[rows] = _log_probs_of_chunk(components[rows], log_weights[rows], weight, bias)
        return log_probs


def _log_probs_of_chunk(components, log_weights, weight, bias):
    """log P of every word, (c, V), by way of the probabilities, which need half the exponentials;
    where one is too small for that, as the definition says."""
    c, j, d = components.shape
    rows = product(components.reshape(-1, d), weight, bias).to(log_weights.dtype)  # (c J, V)
    rows.sub_(rows.amax(1, keepdim=True)).exp_()
    normaliser = rows.sum(1).view(c, 1, j)
    pi = log_weights.exp().unsqueeze(1)  # (c, 1, J)
    probs = torch.bmm(pi / normaliser, rows.view(c, j, weight.size(0))).squeeze(1)  # (c, V)
    smallest = torch.finfo(probs.dtype).tiny ** 0.8  # below it, the sum loses digits
    if probs.numel() and probs.min() < smallest:
        return reference.mixture_log_probs(components, log_weights, weight, bias)
    return probs.log_()
