"""torch.load accepts the plain types that fairseq's checkpoints hold.

torch reads a checkpoint with ``weights_only``, so that a file from a stranger runs no code, and then
refuses what fairseq itself puts there. The types below, plain containers of values, are allowed.
Nothing else is, and ``weights_only`` is never switched off.
"""

import argparse

import numpy as np
import torch
from fairseq.distributed import utils as distributed_utils

_RECONSTRUCT = np.empty(0).__reduce__()[0]

SAFE_TYPES = (
    argparse.Namespace,  # the settings of models and tasks without a dataclass
    distributed_utils._TensorPlaceholder,  # a tensor's place in what workers send each other
    # arrays of numbers, in which fairseq's --eval-bleu keeps its counts
    # under its names in numpy 1 and 2, so that each reads what the other has written
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(number)) for number in ("int64", "float64")),
)


def apply() -> None:
    """Allow the types."""
    torch.serialization.add_safe_globals(list(SAFE_TYPES))
