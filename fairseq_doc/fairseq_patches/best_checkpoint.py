"""checkpoint_best.pt is the best of all validations; checkpoint_last.pt is the end of the training.

fairseq writes checkpoint_best.pt only together with other checkpoints, so ``--save-interval 10``
loses a best validation in between. Here it is then written alone. checkpoint_last.pt is also written
when the learning-rate scheduler ends the training, so that the same command does not train further.

With fine-tuning stages, which start from the best model at the end of an epoch, a validation within
an epoch does not write checkpoint_best.pt. A second training in one process starts without the best
loss of the first.
"""

import copy
import operator

import fairseq_cli.train
from fairseq import checkpoint_utils

from fairseq_doc.fairseq_patches.wrapping import replaces, running
from fairseq_doc.optim.averaged_weights import unwrapped


@replaces(fairseq_cli.train, "validate_and_save")
def keep_best(validate_and_save, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Validate and save as fairseq does, then save a best model that it did not save."""
    losses, should_stop = validate_and_save(
        cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch
    )
    interval = cfg.checkpoint.save_interval
    saved = should_stop or (end_of_epoch and epoch_itr.epoch % interval == 0)
    ends = getattr(trainer.lr_scheduler, "ended", False) and not saved
    if losses[0] is not None and (ends or _is_new_best(cfg.checkpoint, losses[0])):
        settings = copy.copy(cfg.checkpoint)
        # No other checkpoints, except for the last one at the end.
        settings.no_epoch_checkpoints = True
        settings.no_last_checkpoints |= not ends
        settings.save_interval_updates = settings.keep_interval_updates = 0
        settings.keep_last_epochs = 0
        checkpoint_utils.save_checkpoint(settings, trainer, epoch_itr, losses[0])
    return losses, should_stop


def _is_new_best(cfg, loss):
    best = getattr(checkpoint_utils.save_checkpoint, "best", None)
    is_better = operator.gt if cfg.maximize_best_checkpoint_metric else operator.lt
    return best is None or is_better(loss, best)


@replaces(checkpoint_utils, "load_checkpoint")
def forget_and_load(load, *args, **kwargs):
    """Forget the best loss of an earlier training in this process (a notebook, or Hydra with several
    trainings), which fairseq keeps as attributes of two functions."""
    for function in (
        checkpoint_utils.save_checkpoint,
        running(fairseq_cli.train).should_stop_early,
    ):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    return load(*args, **kwargs)


@replaces(checkpoint_utils, "save_checkpoint")
def save_best_at_epoch_ends(save, cfg, trainer, epoch_itr, val_loss):
    """Within an epoch, do not save checkpoint_best.pt if fine-tuning stages start from it."""
    optimizer = unwrapped(trainer.optimizer)
    if getattr(optimizer, "best_at_epoch_ends", False) and not epoch_itr.end_of_epoch():
        val_loss = None
    return save(cfg, trainer, epoch_itr, val_loss)
