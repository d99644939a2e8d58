"""Two mends of how fairseq makes batches: the last one is kept, and none is loaded at the exit.

``fairseq.data.data_utils.batch_by_size`` leaves the last batch out, without a word, where its size
is no multiple of ``--required-batch-size-multiple`` (default: 8): up to 7 sentences, the longest,
are then neither trained on nor translated. Here they come as a batch of their own.

``fairseq.data.iterators.BufferedIterator`` loads ahead in a daemon thread. A training that stops
inside an epoch (``--max-update``, ``--stop-time-hours``) leaves that thread inside torch, which
Python's exit can abort ("terminate called without an active exception", status 134, seen in 1 of
14 runs with all saved). Here the thread is ended first.
"""

import atexit
import contextlib
import functools
import queue
import threading
import time

import numpy as np
from fairseq.data import data_utils, iterators

PATIENCE = 10  # seconds for the batch that a thread is loading at the exit


def _with_the_last_batch(batch_by_size):
    @functools.wraps(batch_by_size)
    def batch_by_size_whole(indices, *args, **kwargs):
        if kwargs.get("fixed_shapes") is not None:  # these are not cut in the order of the indices
            return batch_by_size(indices, *args, **kwargs)
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64)
        batches = batch_by_size(indices, *args, **kwargs)
        covered = sum(len(batch) for batch in batches)
        return [*batches, indices[covered:]] if covered < len(indices) else batches

    return batch_by_size_whole


data_utils.batch_by_size = _with_the_last_batch(data_utils.batch_by_size)


def end_loading(patience=PATIENCE):
    """End fairseq's threads that load ahead, each after the batch it is at.

    A thread whose batch takes more than ``patience`` seconds is left as it is.
    """
    deadline = time.monotonic() + patience
    for thread in threading.enumerate():
        if isinstance(thread, iterators.BackgroundConsumer):
            thread._max_len = 0  # the batch it puts next is its last
            while thread.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):  # a full queue would hold it
                    thread._queue.get(timeout=0.02)


atexit.register(end_loading)
