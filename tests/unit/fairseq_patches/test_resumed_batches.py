from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks import FairseqTask

from fairseq_doc import registration  # noqa: F401

OPTIONS = ("disable_iterator_cache", "update_epoch_batch_itr")


def batches(epoch, again=None, rebuild_batches=False, **options):
    """The sentences in each batch of a task that starts, or resumes, in an epoch."""
    words = Dictionary()
    texts = [torch.tensor([words.eos()])] * 30
    dataset = LanguagePairDataset(texts, np.ones(30, dtype=np.int64), words)
    task = FairseqTask(SimpleNamespace(rebuild_batches=rebuild_batches))
    iterator = task.get_batch_iterator(dataset, max_sentences=4, seed=3, epoch=epoch, **options)
    if again is not None:
        iterator = task.get_batch_iterator(dataset, max_sentences=4, seed=3, epoch=again, **options)
    return [batch.tolist() for batch in iterator.frozen_batches]


def test_a_run_that_begins_later_has_the_batches_of_the_first_epoch():
    first = batches(1)
    assert sorted(sum(first, [])) == list(range(30))
    assert batches(1, again=2) == batches(4) == first


@pytest.mark.parametrize("option", [*OPTIONS, "rebuild_batches"])
def test_batches_that_fairseq_draws_every_epoch_stay_so(option):
    first, fourth = batches(1, **{option: True}), batches(4, **{option: True})
    assert fourth != first
    if option in OPTIONS:
        assert batches(1, again=4, **{option: True}) == fourth
