"""Threads and processes that load batches ahead end with their last batch, and before Python exits.

A training that stops inside an epoch leaves fairseq's loading thread inside torch, which Python's
exit can abort ("terminate called without an active exception", status 134, in 1 of 14 runs).

With ``--num-workers`` the thread reads from processes. The garbage collector ends them, but closes
their queues first and then waits 5 seconds for each; here the thread ends them. The loader of a
translation's validation, which would reuse them, starts new ones.
"""

import atexit
import contextlib
import queue
import threading
import time

from fairseq.data import iterators

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(iterators.BackgroundConsumer, "run")
def run_and_end_processes(run, consumer):
    """A thread's work; then its processes end."""
    with contextlib.closing(_batches(consumer._source)) as consumer._source:
        run(consumer)


def _batches(loader):
    batches = iter(loader)
    try:
        yield from batches
    finally:  # also if nobody asks for the rest
        if hasattr(batches, "_shutdown_workers"):
            batches._shutdown_workers()
            if getattr(loader, "_iterator", None) is batches:  # which it would take up again
                loader._iterator = None


@atexit.register
def end_loading(patience: float = 10) -> None:
    """End each loading thread after the batch that it loads, within ``patience`` seconds."""
    deadline = time.monotonic() + patience
    for thread in threading.enumerate():
        if isinstance(thread, iterators.BackgroundConsumer):
            thread._max_len = 0  # the next batch it puts is its last
            while thread.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):  # a full queue would hold it
                    thread._queue.get(timeout=0.02)
