"""Only one training at a time writes to a folder of checkpoints.

fairseq lets two runs with the same --save-dir mix their checkpoints. Here the first worker of a
training locks the folder until it ends, and removes unfinished files of a killed run.
"""

import os
import re
from typing import IO

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import lock

# A temporary file of files.whole_file
_UNFINISHED = re.compile(r"\.(checkpoint|crash).*\.\w{8}\.part")

_locks: dict[str, IO[str]] = {}  # {path: open file that holds a lock of this process}


@replaces(distributed_utils, "call_main")
def call_and_release(call_main, *args, **kwargs):
    """Release the lock after a training, since the process may continue: a notebook, or Hydra with
    several trainings."""
    try:
        return call_main(*args, **kwargs)
    finally:
        while _locks:
            _locks.popitem()[1].close()


@replaces(checkpoint_utils, "load_checkpoint")
def load_with_lock(load, cfg, trainer, **arguments):
    """Lock the folder, then load the checkpoint."""
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        take(cfg.save_dir, trainer.checkpoint_suffix)
    return load(cfg, trainer, **arguments)


def take(folder: str, suffix: str = "") -> None:
    """Lock ``folder`` or raise ``FairseqDocError``; remove unfinished files in it. ``suffix``: that
    of the checkpoints' names, if several workers each save a part."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(os.path.realpath(folder), f".training{suffix}.lock")
    if path not in _locks:
        remedy = "wait until it ends, or give another --save-dir"
        _locks[path] = lock(path, f"another training writes to {folder}: {remedy}")
    for name in os.listdir(folder):
        if _UNFINISHED.fullmatch(name):
            os.remove(os.path.join(folder, name))
