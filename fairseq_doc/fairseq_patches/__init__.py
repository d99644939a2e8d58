"""Every change that this package makes to fairseq, one file per reason."""

import atexit
import functools
import sys

from fairseq_doc import fairseq_warnings, interruptions

# Importing a file registers its replacements; if two replace one function, the later is outermost.
from fairseq_doc.fairseq_patches import (  # noqa: F401
    amp_scaling,
    best_checkpoint,
    binarised_data,
    checkpoint_reading,
    checkpoint_writing,
    error_messages,
    evaluated_settings,
    language_models,
    last_batch,
    launchers,
    loader_threads,
    moving_average,
    resumed_batches,
    save_dir_lock,
    text_files,
    wrapping,
)


@functools.cache
def apply_all() -> None:
    """Apply every patch, once per process."""
    fairseq_warnings.apply()
    wrapping.apply()
    checkpoint_reading.apply()
    evaluated_settings.apply()
    error_messages.apply()
    launchers.refuse_copies(sys.argv)  # after the hook that prints its error in one line
    interruptions.apply()
    atexit.register(loader_threads.end_loading)
