from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils

from fairseq_doc.fairseq_patches.best_checkpoint import keep_best


@pytest.fixture
def saved(monkeypatch):
    """What ``save_checkpoint`` was asked to write: (loss, may it write more than the best)."""
    calls = []

    def save(cfg, trainer, epoch_itr, loss):
        others = not cfg.no_epoch_checkpoints or not cfg.no_last_checkpoints
        calls.append((loss, others))
        best = getattr(save, "best", loss)
        save.best = max(best, loss) if cfg.maximize_best_checkpoint_metric else min(best, loss)

    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", save)
    return calls


def run(losses, saves, maximize=False, ends=False):
    """Validate with these losses; fairseq itself saves at some of them. ``ends``: the scheduler ends the
    training at the last one."""
    checkpoint = SimpleNamespace(
        maximize_best_checkpoint_metric=maximize,
        no_epoch_checkpoints=False,
        no_last_checkpoints=False,
        save_interval_updates=7,
        keep_interval_updates=7,
        keep_last_epochs=7,
        save_interval=1000,
    )
    cfg, script = SimpleNamespace(checkpoint=checkpoint), iter(zip(losses, saves, strict=True))

    def validate_and_save(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        loss, does_save = next(script)
        if does_save:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, loss)
        return [loss], False

    trainer = SimpleNamespace(lr_scheduler=SimpleNamespace(ended=False))
    for number, loss in enumerate(losses, 1):
        trainer.lr_scheduler.ended = ends and number == len(losses)
        epoch = SimpleNamespace(epoch=number)
        arguments = (cfg, trainer, None, epoch, ["valid"], True)
        assert keep_best(validate_and_save, *arguments) == ([loss], False)
    assert not checkpoint.no_last_checkpoints  # the run's own settings stay


def test_a_best_validation_between_two_checkpoints_is_saved_alone(saved):
    run([5.0, 6.0, 4.0, 4.5, 3.0, 2.0], [False, False, False, True, True, False])
    assert saved == [(5.0, False), (4.0, False), (4.5, True), (3.0, True), (2.0, False)]


def test_a_score_that_is_maximised(saved):
    run([5.0, 6.0, 4.0], [True, False, False], maximize=True)
    assert saved == [(5.0, True), (6.0, False)]


def test_the_last_checkpoint_is_written_where_the_scheduler_ends_the_training(saved):
    run([5.0, 6.0], [True, False], ends=True)
    assert saved == [(5.0, True), (6.0, True)]


def test_without_a_validation_nothing_is_saved(saved):
    run([None], [False])
    assert saved == []
