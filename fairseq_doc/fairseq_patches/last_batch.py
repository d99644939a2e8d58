"""Batches include every sentence, even the last few.

If the size of the last batch is not a multiple of ``--required-batch-size-multiple`` (8), fairseq
silently leaves out up to 7 of the longest sentences. Here they form another batch.
"""

import numpy as np
from fairseq.data import data_utils

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(data_utils, "batch_by_size")
def batch_everything(batch_by_size, indices, *args, **kwargs):
    """fairseq's batches, and one with the sentences that they leave out."""
    if kwargs.get("fixed_shapes") is not None:  # such batches are in another order
        return batch_by_size(indices, *args, **kwargs)
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64)
    batches = batch_by_size(indices, *args, **kwargs)
    covered = sum(len(batch) for batch in batches)
    return [*batches, indices[covered:]] if covered < len(indices) else batches
