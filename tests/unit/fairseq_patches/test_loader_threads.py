import threading
import time

import pytest
from fairseq.data import iterators

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


def test_a_batch_that_does_not_come_holds_no_exit():
    come = threading.Event()

    class Late(list):
        def __iter__(self):
            come.wait()
            yield from super().__iter__()

    ahead = iterators.BufferedIterator(1, Late(range(10)))
    ahead._create_consumer()
    end_loading(patience=0)
    assert ahead._consumer.is_alive()
    come.set()
    end_loading()
    assert not ahead._consumer.is_alive()
