"""A checkpoint is whole, and on the disk, before it replaces another.

fairseq renames a checkpoint before it is on the disk (a power failure leaves an empty file), copies
to checkpoint_last.pt in place (a killed run leaves half a file), and on a full disk leaves a
traceback and a temporary file. Here all go through :func:`fairseq_doc.files.whole_file`.

With fine-tuning stages, which start from the best model of an epoch's end, a validation inside an
epoch does not write checkpoint_best.pt.
"""

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_doc.fairseq_patches.wrapping import wrap
from fairseq_doc.files import copy_file, whole_file


def apply() -> None:
    """Replace the functions that write, copy and choose checkpoints."""
    wrap(checkpoint_utils, "torch_persistent_save", save_whole)
    wrap(PathManager, "copy", copy_whole)
    wrap(checkpoint_utils, "save_checkpoint", save_best_at_epoch_ends)


def save_whole(save, obj, filename, async_write=False):
    """Write a temporary file, which gets its name when it is on the disk."""
    if async_write or not PathManager.supports_rename(filename):
        return save(obj, filename, async_write=async_write)
    with whole_file(filename, binary=True) as file:
        try:
            torch.save(obj, file)
        except RuntimeError as error:
            # torch tried to end its archive, which hides the disk's error or SIGTERM's SystemExit.
            first = error.__context__
            if isinstance(first, OSError) or (first and not isinstance(first, Exception)):
                raise first from None
            raise


def copy_whole(copy, src_path, dst_path, overwrite=False):
    """Copy in the same way."""
    if not (PathManager.supports_rename(src_path) and PathManager.supports_rename(dst_path)):
        return copy(src_path, dst_path, overwrite=overwrite)
    copy_file(src_path, dst_path)
    return dst_path


def save_best_at_epoch_ends(save, cfg, trainer, epoch_itr, val_loss):
    """Inside an epoch, do not save as the best one if stages start from it."""
    optimizer = getattr(trainer.optimizer, "fp32_optimizer", None) or trainer.optimizer
    if getattr(optimizer, "best_at_epoch_ends", False) and not epoch_itr.end_of_epoch():
        val_loss = None
    return save(cfg, trainer, epoch_itr, val_loss)
