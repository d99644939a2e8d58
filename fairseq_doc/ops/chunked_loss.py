"""The mixture's loss and gradients, tokens in chunks; equations in :mod:`fairseq_doc.ops.mixture_nll`.

Axes: N tokens, J components, d width of a component's vector, V vocabulary, c tokens of a chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from fairseq_doc.ops.gradient_sampling import KeptRows
from fairseq_doc.ops.matmul import add_matmul_, can_branch_on, matmul, of_a_size
from fairseq_doc.ops.mixture_chunks import smallest_sum, with_bias
from fairseq_doc.ops.reference import sum_dtype
from fairseq_doc.ops.row_softmax import are_moderate, can_exp, exp_, softmax_

# A posterior below this is set to zero (a token's posteriors sum to one). Its products would be
# denormal numbers, with which a CPU computes thirty times more slowly.
NEGLIGIBLE = {dtype: torch.finfo(dtype).tiny ** 0.5 for dtype in (torch.float32, torch.float64)}


@dataclass(frozen=True)
class Settings:
    """How to run over the tokens."""

    ignore_index: int
    dtype: torch.dtype  # of the matrix products
    chunk: int  # tokens
    smoothing: float = 0.0
    sampling: float = 0.0  # tau
    kept_rows: int = 0  # rows of a product of sampled gradients
    tiled: bool = False  # see fairseq_doc.ops.tiled_loss

    def labels(self, vocabulary: int) -> tuple[float, float]:
        """u, the label of every word, and a, what the target's has beside it."""
        of_word = self.smoothing / max(1, vocabulary - 1)
        return of_word, 1 - self.smoothing - of_word


class Wanted(NamedTuple):
    """Which gradients to compute."""

    components: bool = False
    log_weights: bool = False
    weight: bool = False
    bias: bool = False


NO_GRADIENT = Wanted()


class Gradients(NamedTuple):
    """The gradients, filled chunk by chunk; None where not wanted."""

    wanted: Wanted
    components: torch.Tensor | None  # (N, J, d)
    log_weights: torch.Tensor | None  # (N, J)
    transposed: torch.Tensor | None  # (d + 1, V): dW^T, then db, as wanted

    def result(self) -> tuple[torch.Tensor | None, ...]:
        """The gradients of components, log weights, weight and bias, in their shapes."""
        weight = bias = None
        if self.transposed is not None and self.wanted.bias:
            bias = self.transposed[-1].clone()  # a view would keep all of dW in memory
        if self.transposed is not None and self.wanted.weight:
            width = len(self.transposed) - (1 if self.wanted.bias else 0)
            weight = self.transposed[:width].t().contiguous()
        return self.components, self.log_weights, weight, bias


Tokens = slice | torch.Tensor  # which of the N tokens are in a chunk: a range or indices


class _Chunk(NamedTuple):
    """One chunk of c tokens; ``rows`` are changed in place."""

    tokens: Tokens
    components: torch.Tensor  # (R, d): R = c J, or more for the products' speed, with zeros
    row_target: torch.Tensor  # (c J, 1): each row's target
    rows: torch.Tensor  # (R, V): logits; then Z_j e_jv; with smoothed labels s_jv, then dL/d l_jv
    sums: torch.Tensor | float  # (c J, 1): Z_j; 1 where the rows are e_jv
    joint: torch.Tensor  # (c, J): a_j
    nll: torch.Tensor  # (c,)


class ChunkedLoss:
    """The losses, and gradients where wanted, chunk by chunk.

    Args:
        mixture: components, log weights, weight, and bias or None.
        target: (N,).
        settings: how to run.
        draw: (N, J), the u of sampled gradients; None: exact ones.
    """

    def __init__(
        self,
        mixture: Sequence[Any],
        target: torch.Tensor,
        settings: Settings,
        draw: torch.Tensor | None = None,
    ) -> None:
        components, log_weights, weight, bias = mixture
        self.dtype = settings.dtype
        self.sum_dtype = sum_dtype(settings.dtype)
        self.width = components.size(2)  # d
        self.components = components.to(self.dtype)
        self.log_weights = log_weights.to(self.sum_dtype)
        self.weight = weight.to(self.dtype)
        self.bias = None if bias is None else bias.to(self.dtype)
        if self.bias is not None and self.dtype != self.sum_dtype:
            # With the bias as its last argument torch writes a 16-bit result twice.
            self.components, self.weight = with_bias(self.components, self.weight, self.bias)
            self.bias = None
        self.target = target
        counted, chunk = target.ne(settings.ignore_index), settings.chunk
        self.ignored: torch.Tensor | None = None
        self.all_counted = True
        if not can_branch_on(target):  # the ignored tokens take part, and get zeros
            self.ignored = counted.logical_not().unsqueeze(1)  # (N, 1)
            self.target = target.where(counted, 0)
        elif not counted.all():
            self.all_counted = False
        self.chunks: Sequence[Tokens]
        if self.all_counted:
            self.chunks = [slice(start, start + chunk) for start in range(0, len(target), chunk)]
        elif counted.any():
            self.chunks = counted.nonzero().squeeze(1).split(chunk)
        else:
            self.chunks = []
        self.memory: torch.Tensor | None = None
        self.settings, self.draw = settings, draw
        self.by_exp = can_exp(self.weight) and not settings.smoothing
        self.kept: KeptRows | None = None
        self.label_of_word, self.label_of_target = settings.labels(len(weight))  # u and a

    def run(
        self, wanted: Wanted = NO_GRADIENT, token_scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """
        Args:
            wanted: which gradients to compute.
            token_scale: (N,), the factor of each token's loss in the gradients; None: one.

        Returns:
            nll: (N,), zero where ignored.
            smoothing_loss: the loss with smoothed labels is a times the sum of ``nll`` plus this.
            gradients: of the whole loss, of components, log weights, weight and bias; None where not
                wanted.
        """
        if token_scale is not None:
            token_scale = token_scale.to(self.sum_dtype).unsqueeze(1)
        nll = self._new(len(self.target))
        smoothing_loss = nll.new_zeros(())
        gradients = self._new_gradients(wanted)
        for tokens in self.chunks:
            scale = None if token_scale is None else token_scale[tokens]
            chunk_nll, chunk_smoothing_loss = self._run_chunk(tokens, scale, gradients)
            nll[tokens] = chunk_nll
            smoothing_loss += chunk_smoothing_loss
        if self.kept is not None:
            self._add_kept(gradients, self.kept)
        if self.ignored is not None:
            nll.masked_fill_(self.ignored.squeeze(1), 0)
        return nll, smoothing_loss, gradients.result()

    def _run_chunk(
        self, tokens: Tokens, token_scale: torch.Tensor | None, gradients: Gradients
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """The chunk's NLL (c,) and smoothing loss; its part is added to the gradients."""
        wanted = any(gradients.wanted)
        chunk = self._forward(tokens, wanted)
        smoothing_loss: torch.Tensor | float = 0.0
        if not (wanted or self.label_of_word):
            return chunk.nll, smoothing_loss
        posterior = (chunk.joint + chunk.nll.unsqueeze(1)).exp()  # (c, J): r_j
        posterior.masked_fill_(posterior < NEGLIGIBLE[self.sum_dtype], 0)
        if self.ignored is not None:
            posterior.masked_fill_(self.ignored[tokens], 0)
        scaled = posterior if token_scale is None else posterior * token_scale
        g = scaled
        if self.label_of_word:
            smoothing_loss, g = self._smooth(chunk, scaled)
        if gradients.log_weights is not None:
            gradients.log_weights[tokens] = -g
        if gradients.components is not None or gradients.transposed is not None:
            if self.draw is None:
                self._add_chunk(gradients, chunk, scaled)
            else:
                self._keep_rows(gradients, chunk, self.draw, posterior, token_scale)
        return chunk.nll, smoothing_loss

    def _new(self, *shape):
        """A tensor with a row per token; the rows of ignored tokens are zero."""
        new = self.weight.new_empty if self.all_counted else self.weight.new_zeros
        return new(shape, dtype=self.sum_dtype)

    def _new_gradients(self, wanted: Wanted) -> Gradients:
        (n, j), d = self.components.shape[:2], self.width
        height = (d if wanted.weight else 0) + (1 if wanted.bias else 0)
        components = self._new(n, j, d) if wanted.components else None
        if components is not None and self.draw is not None:
            components.zero_()
        return Gradients(
            wanted,
            components=components,
            log_weights=self._new(n, j) if wanted.log_weights else None,
            transposed=self.weight.new_zeros(height, len(self.weight), dtype=self.sum_dtype)
            if height > 0
            else None,
        )

    def _forward(self, tokens: Tokens, wanted: bool) -> _Chunk:
        j = self.components.size(1)
        k = self.components[tokens].flatten(0, 1)  # (c J, d)
        count, k = len(k), of_a_size(k, self.dtype, most=self.settings.chunk * j)
        row_target = self.target[tokens].repeat_interleave(j).unsqueeze(1)  # (c J, 1)
        rows = self._logits(k)
        sums: torch.Tensor | float = 1.0
        if self.by_exp:
            write = wanted and self.draw is None
            sums, log_softmax = exp_(rows[:count], row_target, write)  # (c J, 1)
            self.by_exp = are_moderate(sums)
            if write and not self.by_exp:
                rows = self._logits(k)
        if not self.by_exp:
            sums = 1.0
            minus_one = wanted and not self.label_of_word
            log_softmax = softmax_(rows[:count], row_target, minus_one)  # (c J, 1)
        rows[count:].zero_()
        joint = self.log_weights[tokens] + log_softmax.view(-1, j)
        return _Chunk(tokens, k, row_target, rows, sums, joint, -joint.logsumexp(1))

    def _logits(self, components: torch.Tensor) -> torch.Tensor:
        """(R, V), of components (R, d)."""
        rows = matmul(components, self.weight, self.bias, self._memory(len(components)))
        return rows.to(self.sum_dtype) if self.label_of_word else rows

    def _memory(self, n_rows: int) -> torch.Tensor:
        """Memory for a chunk's logits, the same for all chunks. Where oneDNN's float32 product brings its
        own, this is never touched, and so costs nothing."""
        if self.memory is None:
            self.memory = self.weight.new_empty(n_rows, len(self.weight))
        return self.memory[:n_rows]

    def _add_chunk(self, gradients: Gradients, chunk: _Chunk, posterior: torch.Tensor) -> None:
        """Add the chunk to the gradients of the components, the matrix and the bias."""
        rows, factor = chunk.rows.to(self.dtype), posterior.view(-1, 1) / chunk.sums
        factor = F.pad(factor, (0, 0, 0, len(rows) - len(factor)))
        if self.label_of_word:
            factor = torch.ones_like(factor)  # the rows have it already
        if gradients.components is not None:
            d_k = self._of_components(rows, factor)[: posterior.numel()]
            gradients.components[chunk.tokens] = d_k.view(*posterior.shape, self.width)
        self._add_to_matrix(gradients, rows, chunk.components, factor)

    def _keep_rows(
        self,
        gradients: Gradients,
        chunk: _Chunk,
        draw: torch.Tensor,
        posterior: torch.Tensor,
        token_scale: torch.Tensor | None,
    ) -> None:
        """Gather the rows of the chunk that take part in sampled gradients, and add those that were
        gathered whenever there is no room for more.

        Args:
            draw: u, (N, J).
            posterior: r, (c, J).
            token_scale: (c, 1), the factor of each token's loss; None: one.
        """
        tau = self.settings.sampling
        places = torch.arange(draw.numel()).view_as(draw)[chunk.tokens].view(-1)
        kept = (draw[chunk.tokens] * tau < posterior).view(-1).nonzero().squeeze(1)
        factor = posterior.clamp(min=tau)  # (c, J): f where kept
        if token_scale is not None:
            factor = factor * token_scale
        if self.kept is None:
            self.kept = KeptRows(self.settings.kept_rows, chunk.rows, self.components.size(2))
        while len(kept):
            now, kept = kept.tensor_split([self.kept.room()])
            new = self.kept.add(chunk.rows, chunk.components, factor.view(-1), places, now)
            if self.by_exp:  # the rows are logits
                sums, _ = exp_(self.kept.rows[new], chunk.row_target[now], write=True)
                self.kept.factor[new] /= sums
            if not self.kept.room():
                self._add_kept(gradients, self.kept)

    def _add_kept(self, gradients: Gradients, kept: KeptRows) -> None:
        """Add the rows that were gathered to the gradients."""
        count, end = kept.count, kept.pad()
        rows, factor = kept.rows[:end], kept.factor[:end]
        if gradients.components is not None:
            of_rows = gradients.components.view(-1, self.width)  # (N J, d)
            of_rows[kept.place[:count]] = self._of_components(rows, factor)[:count]
        self._add_to_matrix(gradients, rows, kept.components[:end], factor)
        kept.count = 0

    def _of_components(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """dL/dk of rows e (R, V) with their factors (R, 1): (R, d)."""
        return matmul(rows, self.weight[:, : self.width].t()).to(self.sum_dtype).mul_(factor)

    def _add_to_matrix(
        self,
        gradients: Gradients,
        rows: torch.Tensor,
        components: torch.Tensor,
        factor: torch.Tensor,
    ) -> None:
        """Add rows e (R, V), of components (R, d) with their factors (R, 1), to dW and db."""
        left = []
        if gradients.wanted.weight:
            left.append((components[:, : self.width] * factor).t())
        if gradients.wanted.bias:
            left.append(factor.t())
        if gradients.transposed is not None:
            # (d + 1, R), dense: in 16 bits its transpose takes a fifth more time
            add_matmul_(gradients.transposed, torch.cat(left).to(self.dtype), rows.t())

    def _smooth(self, chunk: _Chunk, posterior: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of the words' equal labels, and g (c, J); the chunk's softmaxes become dL/d l."""
        rows = chunk.rows[: posterior.numel()]
        by_token = rows.view(*posterior.shape, -1)  # (c, J, V)
        pi = self.log_weights[chunk.tokens].exp().unsqueeze(2)  # (c, J, 1)
        target = self.label_of_target * posterior.unsqueeze(2)  # (c, J, 1): a r_j
        word: Any = self.label_of_word  # u
        if self.ignored is not None:
            word = word * (~self.ignored[chunk.tokens]).unsqueeze(2).to(pi.dtype)  # (c, 1, 1)
        probs = torch.bmm(pi.transpose(1, 2), by_token)  # (c, 1, V)
        if can_branch_on(probs) and probs.min() > smallest_sum(probs):
            inverse = probs.reciprocal()
            g = target + word * pi * torch.bmm(by_token, inverse.transpose(1, 2))  # (c, J, 1)
            by_token.mul_(g - word * pi * inverse)
            log_probs = probs.log_()
        else:  # some word has almost no probability in any component: in log space
            logits = matmul(chunk.components[: len(rows)], self.weight, self.bias)
            log_softmax = logits.to(self.sum_dtype).view_as(by_token).log_softmax(2)
            joint = self.log_weights[chunk.tokens].unsqueeze(2) + log_softmax
            log_probs = joint.logsumexp(1, keepdim=True)  # (c, 1, V)
            posteriors = (joint - log_probs).exp()  # (c, J, V)
            g = target + word * posteriors.sum(2, keepdim=True)
            by_token.mul_(g).sub_(posteriors * word)
        rows.scatter_add_(1, chunk.row_target, -target.view(-1, 1))
        return -(word * log_probs.sum(2, keepdim=True)).sum(), g.squeeze(2)
