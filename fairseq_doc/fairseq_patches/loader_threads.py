"""Threads and processes that load batches ahead end with their last batch, and before Python exits.

``fairseq.data.iterators.BufferedIterator`` loads ahead in a daemon thread. A training that stops
inside an epoch (``--max-update``, ``--stop-time-hours``) leaves that thread inside torch, which
Python's exit can abort ("terminate called without an active exception", status 134, seen in 1 of
14 runs with everything saved). Here the thread is ended first.

With ``--num-workers`` the thread reads from processes. fairseq does not end them after the last
batch. The garbage collector does so later, and it closes their queues before it asks them to end.
Training then waits 5 seconds for each process. Here the thread ends its processes. fairseq's loader
of a translation's validation keeps its processes for the next validation: it starts new ones then.
"""

import atexit
import contextlib
import queue
import threading
import time

from fairseq.data import iterators

from fairseq_doc.fairseq_patches.wrapping import wrap

PATIENCE = 10  # seconds for the batch that a thread is loading at the exit


def apply() -> None:
    """End the threads at the exit, and the processes of each thread with it."""
    atexit.register(end_loading)
    wrap(iterators.BackgroundConsumer, "run", run_and_end_processes)


def run_and_end_processes(run, consumer):
    """A thread's work; then its processes end."""
    with contextlib.closing(_batches(consumer._source)) as consumer._source:
        run(consumer)


def _batches(loader):
    batches = iter(loader)
    try:
        yield from batches
    finally:  # also where nobody asks for the rest
        if hasattr(batches, "_shutdown_workers"):
            batches._shutdown_workers()
            if getattr(loader, "_iterator", None) is batches:  # which it would take up again
                loader._iterator = None


def end_loading(patience: float = PATIENCE) -> None:
    """End fairseq's loading threads, each after its current batch.

    A thread whose batch takes more than ``patience`` seconds is left as it is.
    """
    deadline = time.monotonic() + patience
    for thread in threading.enumerate():
        if isinstance(thread, iterators.BackgroundConsumer):
            thread._max_len = 0  # the next batch it puts is its last
            while thread.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):  # a full queue would hold it
                    thread._queue.get(timeout=0.02)
