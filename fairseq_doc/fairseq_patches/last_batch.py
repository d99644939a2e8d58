"""Batches hold every sentence, the last few too.

fairseq silently leaves out up to 7 sentences, the longest, where the last batch is no multiple of
``--required-batch-size-multiple`` (8). Here they are a batch of their own.
"""

import numpy as np
from fairseq.data import data_utils

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(data_utils, "batch_by_size")
def batch_everything(batch_by_size, indices, *args, **kwargs):
    """fairseq's batches, and one of the sentences that they leave out."""
    if kwargs.get("fixed_shapes") is not None:  # these are not cut in the order of the indices
        return batch_by_size(indices, *args, **kwargs)
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64)
    batches = batch_by_size(indices, *args, **kwargs)
    covered = sum(len(batch) for batch in batches)
    return [*batches, indices[covered:]] if covered < len(indices) else batches
