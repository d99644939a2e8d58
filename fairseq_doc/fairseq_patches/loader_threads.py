"""Threads and processes that prefetch batches end after their last batch and before Python exits.

If a training stops within an epoch, fairseq's loading thread is still inside torch, which can abort
Python's exit ("terminate called without an active exception", status 134, in 1 of 14 runs).

With ``--num-workers`` the thread reads from processes. The garbage collector would end them, but it
closes their queues first and then waits 5 seconds for each; here the thread ends them. The loader
that validates translations, which would reuse them, starts new ones.
"""

import contextlib
import queue
import threading
import time

from fairseq.data import iterators

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(iterators.BackgroundConsumer, "run")
def run_and_end_processes(run, consumer):
    """Run the thread, then end its processes."""
    with contextlib.closing(_batches(consumer._source)) as consumer._source:
        run(consumer)


def _batches(loader):
    batches = iter(loader)
    try:
        yield from batches
    finally:  # even if the rest is not read
        if hasattr(batches, "_shutdown_workers"):
            batches._shutdown_workers()
            if getattr(loader, "_iterator", None) is batches:  # the loader would reuse it
                loader._iterator = None


def end_loading() -> None:
    """End each loading thread after its current batch, waiting at most 10 seconds."""
    deadline = time.monotonic() + 10
    for thread in threading.enumerate():
        if isinstance(thread, iterators.BackgroundConsumer):
            thread._max_len = 0  # its next batch is the last one
            while thread.is_alive() and time.monotonic() < deadline:
                with contextlib.suppress(queue.Empty):  # a full queue would block it
                    thread._queue.get(timeout=0.02)
