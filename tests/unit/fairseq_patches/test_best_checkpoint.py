from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq_cli import train

from fairseq_doc.fairseq_patches.best_checkpoint import (
    forget_and_load,
    keep_best,
    save_best_at_epoch_ends,
)


def run(monkeypatch, losses, saves, maximize=False, ends=False):
    """Validate with these losses; fairseq itself saves at some of them. ``ends``: the scheduler ends
    the training at the last one. What is saved: (loss, may more than the best be written)."""
    calls, intervals = [], dict.fromkeys(("save_interval_updates", "keep_interval_updates"), 7)
    checkpoint = SimpleNamespace(
        maximize_best_checkpoint_metric=maximize,
        no_epoch_checkpoints=False,
        no_last_checkpoints=False,
        keep_last_epochs=7,
        save_interval=1000,
        **intervals,
    )

    def save(cfg, trainer, epoch_itr, loss):
        others = not (cfg.no_epoch_checkpoints and cfg.no_last_checkpoints)
        kept = cfg.keep_last_epochs or cfg.save_interval_updates or cfg.keep_interval_updates
        calls.append((loss, others))
        assert bool(kept) == (not cfg.no_epoch_checkpoints)
        save.best = (max if maximize else min)(getattr(save, "best", loss), loss)

    def validate_and_save(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        loss = losses[epoch_itr.epoch - 1]
        if saves[epoch_itr.epoch - 1]:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, loss)
        return [loss], False

    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", save)
    for epoch, loss in enumerate(losses, 1):
        ended = SimpleNamespace(ended=ends and epoch == len(losses))
        trainer, epoch_itr = SimpleNamespace(lr_scheduler=ended), SimpleNamespace(epoch=epoch)
        arguments = (SimpleNamespace(checkpoint=checkpoint), trainer, None, epoch_itr, [], True)
        assert keep_best(validate_and_save, *arguments) == ([loss], False)
    assert not checkpoint.no_last_checkpoints  # the run's own settings stay
    return calls


@pytest.mark.parametrize(
    "losses, saves, settings, expected",
    [
        (  # a best validation between two checkpoints is saved alone
            [5.0, 6.0, 4.0, 4.5, 3.0, 2.0],
            [False, False, False, True, True, False],
            {},
            [(5.0, False), (4.0, False), (4.5, True), (3.0, True), (2.0, False)],
        ),
        ([5.0, 6.0, 4.0], [True, False, False], {"maximize": True}, [(5.0, True), (6.0, False)]),
        ([5.0, 6.0], [True, False], {"ends": True}, [(5.0, True), (6.0, True)]),
        ([None], [False], {}, []),  # without a validation
    ],
)
def test_what_is_saved(monkeypatch, losses, saves, settings, expected):
    assert run(monkeypatch, losses, saves, **settings) == expected


def test_a_second_training_in_a_process_has_a_best_loss_of_its_own():
    """With fairseq-hydra-train -m, or in a notebook."""
    checkpoint_utils.save_checkpoint.best = 1.0
    train.should_stop_early.best, train.should_stop_early.num_runs = 1.0, 1
    assert forget_and_load(lambda cfg: f"loaded by {cfg}", "cfg") == "loaded by cfg"
    assert not hasattr(checkpoint_utils.save_checkpoint, "best")
    assert not vars(train.should_stop_early).keys() & {"best", "num_runs"}


@pytest.mark.parametrize("with_amp", [False, True])
@pytest.mark.parametrize(
    "at_ends, end_of_epoch, expected",
    [(True, False, None), (True, True, 2.0), (False, False, 2.0), (None, False, 2.0)],
)
def test_the_best_model_is_one_of_epoch_ends(at_ends, end_of_epoch, expected, with_amp):
    # Other optimizers have no such thing.
    optimizer = SimpleNamespace(**({} if at_ends is None else {"best_at_epoch_ends": at_ends}))
    trainer = SimpleNamespace(
        optimizer=SimpleNamespace(fp32_optimizer=optimizer) if with_amp else optimizer
    )
    epoch_itr = SimpleNamespace(end_of_epoch=lambda: end_of_epoch)
    arguments = (None, trainer, epoch_itr, 2.0)
    assert save_best_at_epoch_ends(lambda *args: args[-1], *arguments) == expected
