"""``--sample-break-mode eos`` works with numpy 2, which no longer has ``numpy.compat``."""

from types import SimpleNamespace

import numpy as np
from fairseq.data import token_block_dataset


def apply() -> None:
    """Give fairseq's module a numpy that has the missing type."""
    if not hasattr(np, "compat"):
        numpy = SimpleNamespace(**vars(np))
        numpy.compat = SimpleNamespace(long=np.int64)
        token_block_dataset.np = numpy
