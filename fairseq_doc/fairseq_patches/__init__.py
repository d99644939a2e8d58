"""Every change that this package makes to fairseq, one file a reason."""

import functools
import logging

# fairseq asks at its import for tensorboardX, which this package does not use.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from fairseq_doc import fairseq_warnings, interruptions
from fairseq_doc.fairseq_patches import (
    amp_scaling,
    best_checkpoint,
    binarised_data,
    bpe_files,
    checkpoint_reading,
    checkpoint_writing,
    dictionary_files,
    error_messages,
    evaluated_settings,
    interactive_input,
    last_batch,
    launchers,
    loader_threads,
    save_dir_lock,
)

PATCHES = (
    fairseq_warnings,  # warnings about fairseq's own code are not shown
    checkpoint_reading,  # a damaged or dangerous checkpoint is refused in one clear sentence
    evaluated_settings,  # a setting that fairseq evaluates as Python is a value, and runs no code
    checkpoint_writing,  # a checkpoint is whole, and on the disk, before it replaces another
    best_checkpoint,  # checkpoint_best.pt is the best of all validations
    save_dir_lock,  # one training writes to a folder of checkpoints at a time
    amp_scaling,  # with --amp gradients are divided by the loss scale once
    dictionary_files,  # a dictionary is read as every other text, and refused with its name
    binarised_data,  # binarised text is checked when it is opened
    bpe_files,  # a damaged file of BPE codes is refused in one line
    interactive_input,  # fairseq-interactive reads its input as every other text
    last_batch,  # batches hold every sentence, the last few too
    loader_threads,  # threads and processes that load batches ahead end with their work
    error_messages,  # an error that the user can correct, and Ctrl-C, are one line
    launchers,  # workers join as torchrun or srun started them; it can refuse, so it is late
    interruptions,  # SIGTERM ends a command in one line, its temporary files removed
)


@functools.cache
def apply_all() -> None:
    """Apply every patch, once in a process."""
    for patch in PATCHES:
        patch.apply()
