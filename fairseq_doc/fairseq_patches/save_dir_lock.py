"""One training writes to a folder of checkpoints at a time.

fairseq lets two runs with one --save-dir mix their checkpoints. Here a training's first worker
holds a lock on the folder until it ends, and removes a killed run's unfinished files.
"""

import os
import re
from typing import IO

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import lock

_UNFINISHED = re.compile(r"\.checkpoint.*\.\w{8}\.part")  # a temporary file of files.whole_file

_locks: dict[str, IO[str]] = {}  # by path: open files, which hold the locks of this process


@replaces(distributed_utils, "call_main")
def call_and_release(call_main, *args, **kwargs):
    """The process may go on after a training: a notebook, or Hydra with several trainings."""
    try:
        return call_main(*args, **kwargs)
    finally:
        while _locks:
            _locks.popitem()[1].close()


@replaces(checkpoint_utils, "load_checkpoint")
def load_with_lock(load, cfg, trainer, **arguments):
    """Lock the folder, then restore."""
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        take(cfg.save_dir, trainer.checkpoint_suffix)
    return load(cfg, trainer, **arguments)


def take(folder: str, suffix: str = "") -> None:
    """Lock ``folder`` or raise ``FairseqDocError``, and remove the unfinished files there.
    ``suffix``: of the checkpoints' names, where several workers save a part each."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(os.path.realpath(folder), f".training{suffix}.lock")
    if path not in _locks:
        remedy = "wait until it has ended, or give another --save-dir"
        _locks[path] = lock(path, f"another training writes to {folder}: {remedy}")
    for name in os.listdir(folder):
        if _UNFINISHED.fullmatch(name):
            os.remove(os.path.join(folder, name))
