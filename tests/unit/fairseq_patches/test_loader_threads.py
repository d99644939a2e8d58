import gc
import multiprocessing
import time

import pytest
from fairseq.data import iterators
from torch.utils.data import DataLoader

from fairseq_doc.fairseq_patches.loader_threads import end_loading


class Slow(list):
    """Batches of which each takes a while to load."""

    def __iter__(self):
        for batch in super().__iter__():
            time.sleep(0.05)
            yield batch


@pytest.mark.parametrize("size", [1, 200])  # a thread that waits for room, one that loads
def test_no_batch_is_loaded_at_the_exit(size):
    ahead = iterators.BufferedIterator(size, Slow(range(100)))
    assert next(ahead) == 0
    assert ahead._consumer.is_alive()
    end_loading()
    assert not ahead._consumer.is_alive()
    assert ahead._consumer.count < 100


def test_a_loader_that_keeps_its_workers_is_read_again():
    """As a translation's validation does with fairseq's default --num-workers 1."""
    loader = DataLoader(range(6), num_workers=1, persistent_workers=True)
    for _ in range(2):
        ahead = iterators.BufferedIterator(10, loader)
        assert [int(batch) for batch, _ in zip(ahead, range(6), strict=True)] == list(range(6))
        ahead._consumer.join(4)


@pytest.mark.parametrize("batches_read", [3, 100])
def test_processes_end_with_their_thread_and_not_when_memory_is_collected(batches_read):
    loader = DataLoader(range(100), num_workers=2)
    ahead = iterators.BufferedIterator(3, loader)
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        assert [int(next(ahead)) for _ in range(batches_read)] == list(range(batches_read))
        if batches_read == 3:  # after the last batch they may have ended already
            assert len(set(multiprocessing.active_children()) - before) == 2
        end_loading()
        ahead._consumer.join()
        assert set(multiprocessing.active_children()) == before
    finally:
        gc.enable()
