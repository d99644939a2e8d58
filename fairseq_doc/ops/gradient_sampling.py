"""Sampled gradients of the mixture: Russian roulette, as in Monte-Carlo rendering.

Axes: N tokens, J mixture components, d width of a component's vector, V vocabulary, R rows.

The gradients of k_j, W and b have the posterior r_j of a token's component j as their factor, and
need two matrix products with its row of V numbers (``mixture_nll.py``). Most posteriors are small.
With a threshold tau > 0 and u_j uniform in (0, 1], the factor r_j is replaced by

    f_j = max(r_j, tau)   where u_j tau < r_j,   else 0
    E f_j   = r_j
    var f_j = r_j (tau - r_j)   where r_j < tau,   else 0

so these gradients are unbiased for every tau, unlike those of a filter that drops small gradients,
as in cut-cross-entropy. The loss and the gradient -r_j of log pi_j stay exact. u is drawn at once
for all tokens and components, so it does not depend on the chunks.
"""

import functools
import logging

import torch
from torch import Tensor

from fairseq_doc.ops.matmul import is_on_cpu, padded_size
from fairseq_doc.ops.mixture import sum_dtype

logger = logging.getLogger(__name__)


def threshold_on(tensor: Tensor, threshold: float) -> float:
    """tau on the tensor's device: 0, with a warning, except on a CPU, since a GPU would have to
    synchronise to get the number of kept rows."""
    if threshold and not is_on_cpu(tensor):
        _warn_of_exact_gradients(tensor.device.type)
        return 0.0
    return threshold


@functools.cache
def _warn_of_exact_gradients(device_type: str) -> None:
    logger.warning(
        f"gradient sampling works only on a CPU; on {device_type} the gradients are exact"
    )


class KeptRows:
    """Rows that sampling keeps, collected over several chunks, since each product reads and writes
    the whole dW. ``like``: the rows (R, V) of a chunk."""

    def __init__(self, capacity: int, like: Tensor, width: int) -> None:
        self.rows = like.new_empty(capacity, like.size(1))
        self.components = like.new_empty(capacity, width)  # k
        self.factor = like.new_empty(capacity, 1, dtype=sum_dtype(like.dtype))  # f
        self.place = torch.empty(capacity, dtype=torch.long)  # among the N J rows
        self.count = 0

    def add(
        self, rows: Tensor, components: Tensor, factor: Tensor, place: Tensor, kept: Tensor
    ) -> slice:
        """Copy the rows ``kept`` (r,) of a chunk with their data; returns where they are now."""
        new = slice(self.count, self.count + len(kept))
        torch.index_select(rows, 0, kept, out=self.rows[new])
        torch.index_select(components, 0, kept, out=self.components[new])
        self.factor[new, 0] = factor[kept]
        self.place[new] = place[kept]
        self.count = new.stop
        return new

    def pad(self) -> int:
        """Add rows of zeros up to :func:`padded_size`; returns the number of rows."""
        end = min(len(self.rows), padded_size(self.count))
        for tensor in (self.rows, self.components, self.factor):
            tensor[self.count : end].zero_()
        return end
