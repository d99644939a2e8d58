"""The mixture's loss and gradients in chunks of tokens; ``mixture_nll.py`` has the equations.

Axes: N tokens, J components, d width of a component's vector, V vocabulary, c tokens of a chunk, R
rows: c J, then rows of zeros that make the products faster.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.ops.gradient_sampling import KeptRows
from fairseq_doc.ops.matmul import add_matmul_, is_on_cpu, matmul, padded_rows
from fairseq_doc.ops.mixture import Mixture, sum_dtype
from fairseq_doc.ops.mixture_chunks import (
    chunk_size,
    rows_per_product,
    smallest_sum,
    tokens_per_block,
    with_column,
)
from fairseq_doc.ops.row_softmax import are_moderate, exp_, posterior_and_nll, softmax_


@dataclass(frozen=True)
class LossSettings:
    """How the loss is computed."""

    ignore_index: int
    dtype: torch.dtype  # of the matrix products
    chunk_bytes: int | None  # memory for a chunk's logits; None: see ``chunk_size``
    summed: bool = True  # over the tokens
    smoothing: float = 0.0
    sampling: float = 0.0  # tau

    def labels(self, vocabulary: int) -> tuple[float, float]:
        """Smoothed labels: u for every word, and a, which is added for the target."""
        of_word = self.smoothing / max(1, vocabulary - 1)
        return of_word, 1 - self.smoothing - of_word


class Wanted(NamedTuple):
    """Which gradients to compute."""

    components: bool = False
    log_weights: bool = False
    weight: bool = False
    bias: bool = False


class LossInputs(NamedTuple):
    """What to compute: a loss and its gradients."""

    mixture: Mixture
    target: Tensor  # (N,)
    settings: LossSettings
    wanted: Wanted = Wanted()
    # (N, J), the uniform u_j of ``gradient_sampling.py``, not the u of smoothed labels; None: exact
    # gradients
    draw: Tensor | None = None
    token_scale: Tensor | None = None  # (N,), factor of each token's loss in gradients; None: one


# nll, (N,), zero where ignored; s in the smoothed loss a * sum(nll) + s; the gradients of
# components, log weights, weight and bias, None where not wanted.
Losses = tuple[Tensor, Tensor, tuple[Tensor | None, ...]]

Tokens = slice | Tensor  # the tokens in a chunk: a range or indices


class _Chunk(NamedTuple):
    """One chunk of c tokens; ``rows`` are changed in place."""

    tokens: Tokens
    components: Tensor  # (R, d)
    row_target: Tensor  # (c J, 1): each row's target
    rows: Tensor  # (R, V): logits; then Z_j e_jv; with smoothed labels dL/d l_jv
    sums: Tensor | float  # (c J, 1): Z_j; 1 where the rows are e_jv or dL/d l_jv
    posterior: Tensor  # (c, J): r_j
    nll: Tensor  # (c,)
    g: Tensor | None = None  # (c, J): g_j, with smoothed labels


class ChunkedLoss:
    """The loss, and the wanted gradients, chunk by chunk."""

    def __init__(self, inputs: LossInputs) -> None:
        mixture, target, self.settings, self.wanted, self.draw, scale = inputs
        settings = self.settings
        self.dtype, self.sum_dtype = settings.dtype, sum_dtype(settings.dtype)
        self.chunk = chunk_size(mixture, self.dtype, settings.chunk_bytes, settings.sampling > 0)
        n, self.n_components, self.width = mixture.components.shape
        self.components = mixture.components.to(self.dtype)
        self.log_weights = mixture.log_weights.to(self.sum_dtype)
        self.weight = mixture.weight.to(self.dtype)
        self.bias = None if mixture.bias is None else mixture.bias.to(self.dtype)
        if self.bias is not None and self.dtype != self.sum_dtype:
            # torch writes a 16-bit result twice if it also adds the bias.
            self.components = with_column(self.components, 1)
            self.weight, self.bias = with_column(self.weight, self.bias), None
        self.label_of_word, self.label_of_target = settings.labels(len(self.weight))  # u and a
        # The range of float16 is too small for exp(l).
        self.by_exp = is_on_cpu(self.weight) and self.dtype != torch.float16
        self.token_scale = None if scale is None else scale.to(self.sum_dtype).unsqueeze(1)
        self.memory: Tensor | None = None
        self.kept: KeptRows | None = None
        self._take_targets(target)
        self._allocate(n)

    def _take_targets(self, target: Tensor) -> None:
        """Split the tokens that are not ignored into chunks."""
        self.target, starts = target, range(0, len(target), self.chunk)
        self.ignored: Tensor | None = None
        self.chunks: list[Tokens] = [slice(start, start + self.chunk) for start in starts]
        self.new = self.weight.new_empty  # allocates results with a row per token
        counted = target.ne(self.settings.ignore_index)
        if not is_on_cpu(target):  # ignored tokens are computed too, their results set to 0
            self.ignored = counted.logical_not().unsqueeze(1)  # (N, 1)
            self.target = target.where(counted, 0)
        elif not counted.all():
            self.chunks = [x for x in counted.nonzero().squeeze(1).split(self.chunk) if len(x)]
            self.new = self.weight.new_zeros

    def _allocate(self, n: int) -> None:
        j, d, dtype, wanted = self.n_components, self.width, self.sum_dtype, self.wanted
        self.nll = self.new(n, dtype=dtype)
        self.smoothing_loss = self.nll.new_zeros(())
        self.d_components = self.new(n, j, d, dtype=dtype) if wanted.components else None
        if self.d_components is not None and self.draw is not None:
            self.d_components.zero_()
        self.d_log_weights = self.new(n, j, dtype=dtype) if wanted.log_weights else None
        self.transposed = None
        height = d * wanted.weight + wanted.bias
        if height:  # dW^T, then db, where wanted
            self.transposed = self.weight.new_zeros(height, len(self.weight), dtype=dtype)

    def run(self) -> Losses:
        for tokens in self.chunks:
            chunk = self._forward(tokens)
            self.nll[tokens] = chunk.nll
            if any(self.wanted):
                self._backward(chunk)
            del chunk  # frees its logits before those of the next chunk
        if self.kept is not None:
            self._add_kept(self.kept)
        if self.ignored is not None:
            self.nll.masked_fill_(self.ignored.squeeze(1), 0)
        weight = bias = None
        if self.transposed is not None and self.wanted.bias:
            bias = self.transposed[-1].clone()  # a view would keep all of dW in memory
        if self.transposed is not None and self.wanted.weight:
            weight = self.transposed[: self.width].t().contiguous()
        return self.nll, self.smoothing_loss, (self.d_components, self.d_log_weights, weight, bias)

    def _forward(self, tokens: Tokens) -> _Chunk:
        j = self.n_components
        k = self.components[tokens].flatten(0, 1)  # (c J, d)
        count, k = len(k), padded_rows(k, self.dtype, most=self.chunk * j)
        row_target = self.target[tokens].repeat_interleave(j).unsqueeze(1)  # (c J, 1)
        rows = self._logits(k)
        if self.label_of_word:
            posterior, nll, g = self._smooth(tokens, k[:count], rows[:count], row_target)
            rows[count:].zero_()
            return _Chunk(tokens, k, row_target, rows, 1.0, posterior, nll, g)
        sums: Tensor | float = 1.0
        if self.by_exp:
            write = any(self.wanted) and self.draw is None
            sums, log_softmax = exp_(rows[:count], row_target, write)  # (c J, 1)
            self.by_exp = are_moderate(sums)
            if write and not self.by_exp:
                rows = self._logits(k)
        if not self.by_exp:
            sums = 1.0
            log_softmax = softmax_(rows[:count], row_target, any(self.wanted))  # (c J, 1)
        rows[count:].zero_()
        posterior, nll = self._posterior(tokens, log_softmax)
        return _Chunk(tokens, k, row_target, rows, sums, posterior, nll)

    def _posterior(self, tokens: Tokens, log_softmax: Tensor) -> tuple[Tensor, Tensor]:
        posterior, nll = posterior_and_nll(self.log_weights[tokens], log_softmax)
        if self.ignored is not None:
            posterior.masked_fill_(self.ignored[tokens], 0)
        return posterior, nll

    def _logits(self, components: Tensor) -> Tensor:
        """Logits (R, V) of components (R, d), in memory that all chunks share, unless oneDNN's
        product returns new memory."""
        if self.memory is None:
            self.memory = self.weight.new_empty(len(components), len(self.weight))
        return matmul(components, self.weight, self.bias, self.memory[: len(components)])

    def _backward(self, chunk: _Chunk) -> None:
        """Add the chunk to the gradients."""
        scale = 1.0 if self.token_scale is None else self.token_scale[chunk.tokens]
        factor = chunk.posterior * scale
        if self.d_log_weights is not None:
            self.d_log_weights[chunk.tokens] = -(factor if chunk.g is None else chunk.g)
        if self.d_components is None and self.transposed is None:
            return
        if chunk.g is not None:
            factor = torch.ones_like(factor)  # the rows already include the factor
        if self.draw is None:
            self._add_chunk(chunk, factor)
        else:
            self._keep_rows(chunk, self.draw, scale)

    def _add_chunk(self, chunk: _Chunk, factor: Tensor) -> None:
        """Add the chunk's rows with factors (c, J) to the gradients."""
        of_rows = factor.view(-1, 1) / chunk.sums
        of_rows = F.pad(of_rows, (0, 0, 0, len(chunk.rows) - len(of_rows)))
        d_k = self._multiply(chunk.rows, chunk.components, of_rows)
        if self.d_components is not None:
            d_k = d_k[: factor.numel()].view(*factor.shape, self.width)
            self.d_components[chunk.tokens] = d_k

    def _keep_rows(self, chunk: _Chunk, draw: Tensor, scale: Tensor | float) -> None:
        """Collect the rows of the chunk that sampling keeps, and multiply them when their buffer is
        full. draw: u_j, (N, J); scale: factor of the loss, (c, 1)."""
        tau, posterior = self.settings.sampling, chunk.posterior
        places = torch.arange(draw.numel()).view_as(draw)[chunk.tokens].view(-1)
        left = (draw[chunk.tokens] * tau < posterior).view(-1).nonzero().squeeze(1)
        factor = (posterior.clamp(min=tau) * scale).view(-1)  # (c J,): f where kept
        if self.kept is None:
            capacity = rows_per_product(self.weight, self.dtype, self.settings.chunk_bytes)
            self.kept = KeptRows(capacity, chunk.rows, self.components.size(2))
        while len(left):
            now, left = left.tensor_split([len(self.kept.rows) - self.kept.count])
            new = self.kept.add(chunk.rows, chunk.components, factor, places, now)
            if self.by_exp:  # the rows are logits
                sums, _ = exp_(self.kept.rows[new], chunk.row_target[now], write=True)
                self.kept.factor[new] /= sums
            if self.kept.count == len(self.kept.rows):
                self._add_kept(self.kept)

    def _add_kept(self, kept: KeptRows) -> None:
        """Add the collected rows to the gradients."""
        count, end = kept.count, kept.pad()
        d_k = self._multiply(kept.rows[:end], kept.components[:end], kept.factor[:end])
        if self.d_components is not None:
            of_rows = self.d_components.view(-1, self.width)  # (N J, d)
            of_rows[kept.place[:count]] = d_k[:count]
        kept.count = 0

    def _multiply(self, rows: Tensor, components: Tensor, factor: Tensor) -> Any:
        """Add rows e (R, V), with components (R, d) and factors (R, 1), to dW and db; returns dL/dk
        (R, d), or None where not wanted."""
        d_k = None
        if self.d_components is not None:
            d_k = matmul(rows, self.weight[:, : self.width].t()).to(self.sum_dtype).mul_(factor)
        left = []
        if self.wanted.weight:
            left.append((components[:, : self.width] * factor).t())
        if self.wanted.bias:
            left.append(factor.t())
        if self.transposed is not None:
            # (d + 1, R), dense: a transposed 16-bit matrix would take a fifth more time
            add_matmul_(self.transposed, torch.cat(left).to(self.dtype), rows.t())
        return d_k

    def _smooth(
        self, tokens: Tokens, components: Tensor, rows: Tensor, row_target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """r_j (c, J), the NLL (c,) and g_j (c, J) of logits (c J, V), which are replaced by dL/dl
        in blocks of tokens and rounded once. Adds to the smoothing loss."""
        j, vocabulary = self.n_components, rows.size(1)
        of_tokens = torch.arange(len(self.target), device=rows.device)[tokens]
        size, on_cpu = len(of_tokens), rows.device.type == "cpu"
        if on_cpu:
            size = tokens_per_block(2 * j, vocabulary)  # softmaxes and as much working memory
        shape = min(size * j, len(rows)), vocabulary
        work = rows.new_empty(shape, dtype=self.sum_dtype) if on_cpu else None
        wide = None if rows.dtype == self.sum_dtype else rows.new_empty(shape, dtype=self.sum_dtype)
        results = []
        for start in range(0, len(of_tokens), size):
            own, of_rows = of_tokens[start : start + size], slice(start * j, (start + size) * j)
            part, target = rows[of_rows], row_target[of_rows]
            softmax = part if wide is None else wide[: len(part)].copy_(part)
            posterior, nll = self._posterior(own, softmax_(softmax, target))
            g = self._smooth_block(own, components[of_rows], softmax, posterior, work)
            softmax.scatter_add_(1, target, posterior.view(-1, 1) * -self.label_of_target)
            part.copy_(softmax)  # nothing to do where they are the same
            results.append((posterior, nll, g))
        posteriors, nlls, gs = map(torch.cat, zip(*results, strict=True))
        return posteriors, nlls, gs

    def _smooth_block(
        self,
        tokens: Tensor,
        components: Tensor,
        rows: Tensor,
        posterior: Tensor,
        work: Tensor | None = None,
    ) -> Tensor:
        """g, (c, J). The softmaxes ``rows`` are replaced by dL/dl without the target's own term;
        ``work`` is working memory of at least this size."""
        by_token = rows.view(*posterior.shape, -1)  # (c, J, V)
        pi = self.log_weights[tokens].exp().unsqueeze(2)  # (c, J, 1)
        target = self.label_of_target * posterior.unsqueeze(2)  # (c, J, 1): a r_j
        word: Any = self.label_of_word  # u
        if self.ignored is not None:
            word = word * (~self.ignored[tokens]).unsqueeze(2).to(pi.dtype)  # (c, 1, 1)
        probs = torch.bmm(pi.transpose(1, 2), by_token)  # (c, 1, V)
        if is_on_cpu(probs) and probs.min() > smallest_sum(probs):
            inverse = probs.reciprocal()
            g = target + word * pi * torch.bmm(by_token, inverse.transpose(1, 2))  # (c, J, 1)
            memory = None if work is None else work[: len(rows)].view_as(by_token)
            of_word = torch.mul(word * pi, inverse, out=memory)
            by_token.mul_(torch.sub(g, of_word, out=of_word))
            log_probs = probs.log_()
        else:
            # In log space: on a CPU if a word has almost no probability in any component; always on
            # a GPU, which the test would synchronise.
            logits = matmul(components, self.weight, self.bias)
            log_softmax = logits.to(self.sum_dtype).view_as(by_token).log_softmax(2)
            joint = self.log_weights[tokens].unsqueeze(2) + log_softmax
            log_probs = joint.logsumexp(1, keepdim=True)  # (c, 1, V)
            posteriors = (joint - log_probs).exp()  # (c, J, V)
            g = target + word * posteriors.sum(2, keepdim=True)
            by_token.mul_(g).sub_(posteriors * word)
        self.smoothing_loss -= (word * log_probs.sum(2, keepdim=True)).sum()
        return g.squeeze(2)
