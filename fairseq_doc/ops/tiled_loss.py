"""The mixture's loss and gradients for a large vocabulary, in tiles of rows and words.

A chunk of tokens with all V words reads the whole output matrix, and reads and writes its whole
gradient; for a million words it has only three tokens. A tile has many tokens but only some words,
and stays in the cache. The sums of exp(l) are added up over tiles (``row_softmax.py``). A first pass
over all tiles gives Z, the loss and the posteriors. A second pass computes the logits again for the
rows that have a gradient. This takes four products instead of three, or 1 + 3 s instead of 1 + 2 s
with sampled gradients, where s is the share of the kept rows.

Axes: N tokens, n tokens that are not ignored, J components, d width of a component's vector, D that
width with the bias's column and padding, V vocabulary, R rows and v words of a tile.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_doc.ops.chunked_loss import Losses, LossInputs
from fairseq_doc.ops.matmul import matmul, padded_rows
from fairseq_doc.ops.mixture import sum_dtype
from fairseq_doc.ops.mixture_chunks import with_column
from fairseq_doc.ops.row_softmax import are_moderate, at_target, exp_sums, posterior_and_nll

TILE_ROWS = 1024
TILE_BYTES = 16 * 2**20  # size of the logits of a tile


class _Tile(NamedTuple):
    words: slice
    weight: Tensor  # (v, d), or (v, D) with the bias as a column, see ``with_column``
    logits: Tensor  # (R, v), in memory that all tiles share
    targets: tuple[Tensor, Tensor]  # the rows whose target is in the tile, and its columns


class TiledLoss:
    """As :class:`fairseq_doc.ops.chunked_loss.ChunkedLoss`, in tiles, without smoothed labels."""

    def __init__(self, inputs: LossInputs) -> None:
        mixture, target, settings, self.wanted, self.draw, scale = inputs
        components, log_weights, self.weight, self.bias = mixture
        self.shape, self.settings = components.shape, settings  # (N, J, d)
        self.dtype, self.sum_dtype = settings.dtype, sum_dtype(settings.dtype)
        self.tokens = target.ne(settings.ignore_index).nonzero().squeeze(1)  # (n,)
        self.log_weights = log_weights[self.tokens].to(self.sum_dtype)
        self.row_target = target[self.tokens].repeat_interleave(self.shape[1])
        self.scale: Any = 1.0
        if scale is not None:
            self.scale = scale[self.tokens].to(self.sum_dtype).unsqueeze(1)
        self.k = components[self.tokens].flatten(0, 1).to(self.dtype)  # (n J, d), or (n J, D)
        self.widened = self.bias is not None and self.dtype != self.sum_dtype
        if self.widened:
            self.k = with_column(self.k, 1)
        words = TILE_BYTES // (TILE_ROWS * self.dtype.itemsize)
        words = max(1, min(words, len(self.weight)))
        self.memory = self.k.new_empty(TILE_ROWS * words)
        self.starts = range(0, len(self.weight), words)

    def run(self) -> Losses | None:
        """As ``ChunkedLoss.run``; None if logits are too large or too small for exp."""
        sums, logits = self._sums()  # (n J,)
        if not are_moderate(sums):
            return None
        posterior, of_tokens = posterior_and_nll(self.log_weights, logits - sums.log())
        nll = of_tokens.new_zeros(self.shape[0])
        nll[self.tokens] = of_tokens
        if not any(self.wanted):
            return nll, nll.new_zeros(()), (None,) * 4
        d_log_weights = None
        if self.wanted.log_weights:
            d_log_weights = nll.new_zeros(self.shape[:2])
            d_log_weights[self.tokens] = -posterior * self.scale
        factor = posterior
        if self.draw is not None:
            tau = self.settings.sampling
            factor = posterior.clamp(min=tau) * (self.draw[self.tokens] * tau < posterior)
        d_k, *others = self._gradients((factor * self.scale).view(-1), sums, logits)
        return nll, nll.new_zeros(()), (d_k, d_log_weights, *others)

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Z and the target's logit of each row, (n J,)."""
        sums = self.k.new_zeros(len(self.k), dtype=self.sum_dtype)
        target_logits = torch.zeros_like(sums)
        for rows in torch.arange(len(self.k)).split(TILE_ROWS):
            for tile in self._tiles(rows):
                of_target = tile.logits[tile.targets].to(self.sum_dtype)
                target_logits[rows[tile.targets[0]]] = of_target
                sums[rows] += exp_sums(tile.logits[: len(rows)], write=False).squeeze(1)
        return sums, target_logits

    def _gradients(
        self, factor: Tensor, sums: Tensor, target_logits: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of components, matrix and bias; the arguments are (n J,)."""
        n, j, d = self.shape
        new = factor.new_zeros
        d_k = new(len(self.k), d) if self.wanted.components else None
        d_weight = new(len(self.weight), d) if self.wanted.weight else None
        d_bias = new(len(self.weight)) if self.wanted.bias else None
        kept = factor.nonzero().squeeze(1)
        entry, divisor = at_target(target_logits, sums, self.dtype)
        factor = factor / divisor
        for rows in kept.split(TILE_ROWS):
            f = factor[rows].unsqueeze(1)
            left = padded_rows(torch.cat([self.k[rows, :d] * f, f], 1), self.dtype, TILE_ROWS)
            for tile in self._tiles(rows):
                e = tile.logits
                exp_sums(e[: len(rows)], write=True)
                e[len(rows) :].zero_()
                e[tile.targets] = entry[rows[tile.targets[0]]]
                if d_k is not None:
                    of_rows = matmul(e, tile.weight[:, :d].t())[: len(rows)]
                    d_k[rows] += of_rows.to(self.sum_dtype) * f
                if d_weight is not None or d_bias is not None:
                    of_words = matmul(e.t(), left.t())  # (v, d + 1)
                    if d_weight is not None:
                        d_weight[tile.words] += of_words[:, :d]
                    if d_bias is not None:
                        d_bias[tile.words] += of_words[:, d]
        d_components = None
        if d_k is not None:
            d_components = new(n, j, d)
            d_components[self.tokens] = d_k.view(-1, j, d)
        return d_components, d_weight, d_bias

    def _tiles(self, rows: Tensor) -> Iterator[_Tile]:
        k = padded_rows(self.k[rows], self.dtype, TILE_ROWS)
        for start in self.starts:
            words = slice(start, start + self.starts.step)
            weight = self.weight[words].to(self.dtype)
            bias = None if self.bias is None else self.bias[words].to(self.dtype)
            if bias is not None and self.widened:
                weight, bias = with_column(weight, bias), None
            shape = len(k), len(weight)
            logits = matmul(k, weight, bias, self.memory[: shape[0] * shape[1]].view(shape))
            column = self.row_target[rows] - start
            at = ((column >= 0) & (column < len(weight))).nonzero().squeeze(1)
            yield _Tile(words, weight, logits, (at, column[at]))
