"""The mixtures of the tokens of a batch, and the dtype of their sums.

Axes: N tokens, J mixture components, d width of a component's vector, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_doc.errors import FairseqDocError


class Mixture(NamedTuple):
    """The mixtures of N tokens."""

    components: Tensor  # k, (N, J, d)
    log_weights: Tensor  # log pi, (N, J); -inf for a weight of zero
    weight: Tensor  # W, (V, d)
    bias: Tensor | None = None  # b, (V,)

    def check(self, target: Tensor | None = None) -> None:
        """Raise ``FairseqDocError`` if the shapes, including targets (N,), do not fit together."""
        k, log_weights, weight, bias = self
        if (
            k.dim() != 3
            or log_weights.shape != k.shape[:2]
            or weight.shape[1:] != k.shape[2:]
            or (bias is not None and bias.shape != weight.shape[:1])
            or (target is not None and target.shape != k.shape[:1])
        ):
            shapes = [None if x is None else tuple(x.shape) for x in (*self, target)]
            raise FairseqDocError(
                "the mixture expects components (N, J, d), log_weights (N, J), weight (V, d), "
                f"bias (V,) and target (N,); got {shapes}"
            )


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums and normalisers: float32 if ``dtype`` has 16 bits, else ``dtype``."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
