"""A resumed training has the batches of the uninterrupted one.

fairseq draws which sentences share a batch at the first epoch, from seed + 1, and keeps that for
all epochs; a run that is resumed in epoch n draws it again, from seed + n. So it trained on other
batches, and in mid-epoch read some sentences twice and others not at all.
"""

from fairseq.tasks import FairseqTask

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(FairseqTask, "get_batch_iterator")
def draw_as_at_first(get_batch_iterator, task, dataset, *args, **kwargs):
    """Batches that are kept for all epochs are those of the first one."""
    kept = task.can_reuse_epoch_itr(dataset) and not (
        kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    )
    if not kept:
        return get_batch_iterator(task, dataset, *args, **kwargs)
    iterator = get_batch_iterator(task, dataset, *args, **kwargs | {"epoch": 1})
    dataset.set_epoch(kwargs.get("epoch", 1))
    return iterator
