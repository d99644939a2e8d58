"""A checkpoint is whole, and on the disk, before it replaces another.

fairseq renames a new checkpoint without flushing it to the disk, so that a power failure can leave
an empty file under the good name. It copies to checkpoint_last.pt in place, so that a killed run
leaves half a file. On a full disk it tries three times, prints a traceback and leaves the temporary
file there. Here all of them go through :func:`fairseq_doc.files.whole_file`.

fairseq also writes checkpoint_best.pt after a validation inside an epoch. Fine-tuning stages start
from the best model at an epoch's end, so with them checkpoint_best.pt is that one too.
"""

import errno
import functools

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import copy_file, whole_file


def apply() -> None:
    """Replace the functions that write, copy and choose checkpoints."""
    checkpoint_utils.torch_persistent_save = _writing_whole(checkpoint_utils.torch_persistent_save)
    PathManager.copy = staticmethod(_copying_whole(PathManager.copy))
    checkpoint_utils.save_checkpoint = _best_at_epoch_ends(checkpoint_utils.save_checkpoint)


def _writing_whole(save):
    @functools.wraps(save)
    def torch_persistent_save(obj, filename, async_write=False):
        if async_write or not PathManager.supports_rename(filename):
            return save(obj, filename, async_write=async_write)
        try:
            with whole_file(filename, binary=True) as file:
                _save(obj, file)
        except FairseqDocError as error:
            raise _not_saved(error) from error

    return torch_persistent_save


def _save(obj, file):
    try:
        torch.save(obj, file)
    except RuntimeError as error:
        # torch has tried to finish its archive: that error hides the disk's, or a SIGTERM's SystemExit.
        first = error.__context__
        if isinstance(first, OSError) or (first and not isinstance(first, Exception)):
            raise first from None
        raise


def _copying_whole(copy):
    @functools.wraps(copy)
    def copy_whole(src_path, dst_path, overwrite=False):
        if not (PathManager.supports_rename(src_path) and PathManager.supports_rename(dst_path)):
            return copy(src_path, dst_path, overwrite=overwrite)
        try:
            copy_file(src_path, dst_path)
        except FairseqDocError as error:
            raise _not_saved(error) from error
        return dst_path

    return copy_whole


def _not_saved(error):
    full = getattr(error.__context__, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "make room, and the same command" if full else "the same command then"
    return FairseqDocError(
        f"{error}; the checkpoints before it are whole: {remedy} continues from them"
    )


def _best_at_epoch_ends(save):
    @functools.wraps(save)
    def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
        optimizer = getattr(trainer.optimizer, "fp32_optimizer", None) or trainer.optimizer
        if getattr(optimizer, "best_at_epoch_ends", False) and not epoch_itr.end_of_epoch():
            val_loss = None
        return save(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint
