"""A copy of a checkpoint is whole or absent.

fairseq copies a checkpoint to checkpoint_last.pt in place. A run that is killed during the copy leaves
half a file and cannot go on. Here the copy is made beside it and moved there when it is whole.
"""

import contextlib
import functools

from fairseq.file_io import PathManager


def apply() -> None:
    """Replace the function that copies checkpoints."""
    PathManager.copy = staticmethod(_whole(PathManager.copy))


def _whole(copy):
    @functools.wraps(copy)
    def copy_whole(src_path, dst_path, overwrite=False):
        if not PathManager.supports_rename(dst_path):
            return copy(src_path, dst_path, overwrite=overwrite)
        part = f"{dst_path}.tmp"
        try:
            copied = copy(src_path, part, overwrite=True)
            if copied:
                PathManager.rename(part, dst_path)
            return copied
        except BaseException:  # a full disk, say: the part goes, the last copy stays
            with contextlib.suppress(OSError):
                PathManager.rm(part)
            raise

    return copy_whole
