"""Every change that this package makes to fairseq, one file a reason.

    checkpoint_types      torch.load accepts the plain types that fairseq's checkpoints hold
    checkpoint_refusals   a damaged or dangerous checkpoint is refused in one clear sentence
    checkpoint_copies     a copy of a checkpoint is whole or absent
    last_batch            batches hold every sentence, the last few too
    loader_threads        threads that load batches ahead end before Python exits
    error_messages        a command prints an error that the user can correct in one line

No other file changes fairseq.
"""

import functools
import logging

# fairseq asks at its import for tensorboardX, which this package does not use.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from fairseq_doc.fairseq_patches import (
    checkpoint_copies,
    checkpoint_refusals,
    checkpoint_types,
    error_messages,
    last_batch,
    loader_threads,
)

PATCHES = (
    checkpoint_types,
    checkpoint_refusals,
    checkpoint_copies,
    last_batch,
    loader_threads,
    error_messages,
)


@functools.cache
def apply_all() -> None:
    """Apply every patch, once in a process."""
    for patch in PATCHES:
        patch.apply()
