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
def test_what_is_saved(saved, losses, saves, settings, expected):
    run(losses, saves, **settings)
    assert saved == expected
