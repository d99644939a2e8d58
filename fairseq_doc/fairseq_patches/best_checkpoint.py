"""checkpoint_best.pt is the best of all validations, checkpoint_last.pt that of the training's end.

fairseq writes checkpoint_best.pt only together with others: ``--save-interval 10`` loses a best
validation in between. Here it is written alone then. checkpoint_last.pt is also written when the
learning-rate scheduler ends the training, so that the same command does not train on.
"""

import copy

import fairseq_cli.train
from fairseq import checkpoint_utils

from fairseq_doc.fairseq_patches.wrapping import wrap


def apply() -> None:
    """Replace the function that validates and saves."""
    wrap(fairseq_cli.train, "validate_and_save", keep_best)


def keep_best(validate_and_save, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Validate and save as fairseq does, then save a best validation that it left out."""
    losses, should_stop = validate_and_save(
        cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch
    )
    settings = cfg.checkpoint
    saved = should_stop or (end_of_epoch and epoch_itr.epoch % settings.save_interval == 0)
    ends = getattr(trainer.lr_scheduler, "ended", False) and not saved
    if losses[0] is not None and (ends or _is_new_best(settings, losses[0])):
        chosen = _without_others(settings, last=ends)
        checkpoint_utils.save_checkpoint(chosen, trainer, epoch_itr, losses[0])
    return losses, should_stop


def _is_new_best(cfg, loss):
    best = getattr(checkpoint_utils.save_checkpoint, "best", None)
    if best is None:
        return True
    return loss > best if cfg.maximize_best_checkpoint_metric else loss < best


def _without_others(cfg, last):
    """The settings that save the best checkpoint and, if ``last``, the last one alone."""
    cfg = copy.copy(cfg)
    cfg.no_epoch_checkpoints, cfg.no_last_checkpoints = True, cfg.no_last_checkpoints or not last
    cfg.save_interval_updates = cfg.keep_interval_updates = 0
    cfg.keep_last_epochs = 0
    return cfg
