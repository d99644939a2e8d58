"""Sampled gradients of the mixture: products with the few rows that matter.

Axes: N tokens, J mixture components, d width of a component's vector, V vocabulary, R rows.

The gradients of k_j, W and b have the posterior r_j of a token's component j as their factor, and
need two matrix products with its row of V numbers (:mod:`fairseq_doc.ops.mixture_nll`). Most
posteriors are small. With a threshold tau > 0, a row of r_j < tau takes part with probability
r_j / tau, and then with the factor tau in place of r_j (Russian roulette, as in Monte-Carlo
rendering). With u_j uniform in (0, 1],

    f_j = max(r_j, tau)   where u_j tau < r_j,   else 0
    E f_j   = r_j
    var f_j = r_j (tau - r_j)   where r_j < tau,   else 0

so these gradients are unbiased, whatever tau is. (A filter that drops small gradients, as that of
cut-cross-entropy, is not.) The loss, and the gradient -r_j of log pi_j, which needs no such
product, stay exact.

u is drawn at once for all tokens and components, so it does not depend on how they are computed,
by torch's global generator, which fairseq seeds anew for every update.
"""

import functools
import logging
import math

import torch
from torch import Tensor

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops.matmul import can_branch_on, rows_of_a_size
from fairseq_doc.ops.reference import sum_dtype

logger = logging.getLogger(__name__)


def check_gradient_sampling(threshold: float) -> None:
    """Raise ``FairseqDocError`` unless tau is a number from 0 on; 0 is for exact gradients."""
    if not 0 <= threshold < math.inf:
        raise FairseqDocError(
            f"--gradient-sampling must be at least 0, such as 0.05; got {threshold}"
        )


def threshold_on(tensor: Tensor, threshold: float) -> float:
    """tau on the tensor's device: ``threshold`` on a CPU. Elsewhere 0, with a warning, since the
    program would have to wait for the number of kept rows."""
    if threshold and not can_branch_on(tensor):
        _warn_of_exact_gradients(tensor.device.type)
        return 0.0
    return threshold


@functools.cache
def _warn_of_exact_gradients(device_type: str) -> None:
    logger.warning(
        f"gradient sampling: expected a CPU; got {device_type}, where gradients are exact"
    )


class KeptRows:
    """The rows that take part, gathered over chunks until there are enough for a product, since
    each product reads and writes the whole gradient of W.

    Args:
        capacity: rows, at least one.
        like: rows (R, V) of a chunk.
        width: d.
    """

    def __init__(self, capacity: int, like: Tensor, width: int) -> None:
        self.rows = like.new_empty(capacity, like.size(1))
        self.components = like.new_empty(capacity, width)  # k
        self.factor = like.new_empty(capacity, 1, dtype=sum_dtype(like.dtype))  # f
        self.place = torch.empty(capacity, dtype=torch.long)  # among the N J rows
        self.count = 0

    def room(self) -> int:
        """How many more there is memory for."""
        return len(self.rows) - self.count

    def add(
        self, rows: Tensor, components: Tensor, factor: Tensor, place: Tensor, kept: Tensor
    ) -> slice:
        """Copy ``kept`` (r,) of a chunk's rows (R, V), of their components (R, d), factors (R,) and
        places (R,); returns where they are."""
        new = slice(self.count, self.count + len(kept))
        torch.index_select(rows, 0, kept, out=self.rows[new])
        torch.index_select(components, 0, kept, out=self.components[new])
        self.factor[new, 0] = factor[kept]
        self.place[new] = place[kept]
        self.count = new.stop
        return new

    def pad(self) -> int:
        """Add rows of zeros up to :func:`rows_of_a_size`; the number of all rows."""
        end = min(len(self.rows), rows_of_a_size(self.count))
        for tensor in (self.rows, self.components, self.factor):
            tensor[self.count : end].zero_()
        return end
