"""A checkpoint is complete and on disk before it replaces another one.

fairseq renames a checkpoint before it is on disk, so a power failure leaves an empty file; it
copies to checkpoint_last.pt in place, so a killed run leaves half a file; and on a full disk it
leaves a traceback and a temporary file. Here :func:`fairseq_doc.files.whole_file` writes all
checkpoints.
"""

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import copy_file, whole_file


@replaces(checkpoint_utils, "torch_persistent_save")
def save_whole(save, obj, filename, async_write=False):
    """Write a temporary file, which is renamed when it is on disk."""
    if async_write:
        return save(obj, filename, async_write=True)
    with whole_file(filename, binary=True) as file:
        torch.save(obj, file)


@replaces(PathManager, "copy")
def copy_whole(_, src_path, dst_path, overwrite=False):
    """Copy a checkpoint in the same way."""
    copy_file(src_path, dst_path)
    return dst_path
