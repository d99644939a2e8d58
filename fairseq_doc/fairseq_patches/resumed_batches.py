"""A resumed training has the same batches as an uninterrupted one.

fairseq draws the batches in the first epoch, from seed + 1, and keeps them for all epochs; a run
that is resumed in epoch n draws them again, from seed + n. So it would train on other batches and,
within an epoch, read some sentences twice and others not at all. Here it draws those of the first
epoch. This does not cover ``--update-ordered-indices-seed``, whose batches still differ after a
resume.
"""

from fairseq.tasks import FairseqTask

from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(FairseqTask, "get_batch_iterator")
def draw_as_at_first(get_batch_iterator, task, dataset, *args, **kwargs):
    """Use the batches of the first epoch if they are kept for all epochs."""
    redrawn = (
        kwargs.get("disable_iterator_cache")
        or kwargs.get("update_epoch_batch_itr")
        or getattr(task.cfg, "rebuild_batches", False)  # of fairseq's audio tasks
    )
    if redrawn or not task.can_reuse_epoch_itr(dataset):
        return get_batch_iterator(task, dataset, *args, **kwargs)
    iterator = get_batch_iterator(task, dataset, *args, **kwargs | {"epoch": 1})
    dataset.set_epoch(kwargs.get("epoch", 1))
    return iterator
