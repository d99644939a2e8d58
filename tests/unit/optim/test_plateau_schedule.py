from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from omegaconf import OmegaConf

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.nt_asgd import TASK
from fairseq_doc.optim.plateau_schedule import (
    PlateauSchedule,
    PlateauScheduleConfig,
    plateau_settings,
)

from ..conftest import assert_close, small_model


def config(**changes):
    settings = {
        "lr": [0.5],
        "stop_min_lr": -1.0,
        "task_name": TASK,
        "validate_interval": 1,
        "validate_interval_updates": 0,
        "disable_validation": False,
        "maximize_best_checkpoint_metric": False,
    }
    return OmegaConf.create(vars(PlateauScheduleConfig(**{**settings, **changes})))


class Optimizer(FairseqOptimizer):
    """As much of one as a scheduler needs."""

    def __init__(self, model):
        super().__init__(None)
        trained = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(trained, lr=0.5)


def schedule(model=None, **changes):
    model = model or small_model()
    return PlateauSchedule(config(**changes), Optimizer(model))


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"task_name": "translation"}, f"expected --task {TASK}, which passes"),
        ({"lr": [1.0, 0.5]}, "expected one --lr"),
        ({"lr_shrink": 1.0}, "expected --lr-shrink between 0 and 1"),
        ({"disable_validation": True}, "expected a validation at the end of every epoch"),
        ({"validate_interval": 2}, "expected a validation at the end of every epoch"),
        ({"validate_interval_updates": 50}, "expected no --validate-interval-updates"),
        ({"maximize_best_checkpoint_metric": True}, "expected a loss as --best"),
        ({"stop_above": "4,x"}, "expected numbers as --stop-above, such as 6.35,6.06, not '4,x'"),
        ({"stop_above": "4"}, "--stop-above: --max-checks beside it"),
        ({"lr_patience": -1}, "expected --lr-patience: at least 0"),
        ({"lr": [1.0, 2.0], "stop_ramp": 2}, "expected one --lr; --stop-ramp: --stop-patience"),
    ],
)
def test_settings_that_would_not_work(changes, problem):
    with pytest.raises(FairseqDocError, match=problem):
        schedule(**changes)


def test_limits_are_read_in_their_order():
    assert plateau_settings(config(stop_above="6.35,6.06", max_checks=9)).stop_above == (6.35, 6.06)
    assert plateau_settings(config()).stop_above == ()


def test_the_rate_drops_and_the_end_is_the_least_rate():
    it = schedule(lr_patience=1, lr_shrink=0.1, max_checks=5, stop_min_lr=1e-9)
    rates = []
    for epoch, loss in enumerate([5.0, 4.0, 4.5, 4.5, 4.5], 1):
        it.observe(loss)
        rates += [it.step(epoch, loss), it.step_update(10 * epoch)]
    assert_close(rates, [0.5, 0.5] * 3 + [0.05, 0.05, 1e-9, 1e-9])
    assert it.best == 4.0


def test_the_schedule_of_a_model_is_found():
    model = small_model()
    model.decoder.embedding.requires_grad_(False)  # fairseq gives an optimizer what is trained
    it = schedule(model)
    assert PlateauSchedule.of(model) is it
    assert PlateauSchedule.of(small_model()) is None


def test_the_schedule_is_found_under_fp16():
    """Whose optimizer has copies of the parameters."""
    model = small_model()
    optimizer = Optimizer(model)
    optimizer.fp16_params = [p for p in model.parameters()]
    optimizer._optimizer = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.5)
    it = PlateauSchedule(config(), optimizer)
    assert PlateauSchedule.of(model) is it


def test_a_state_taken_up_goes_on_equally():
    it = schedule(lr_patience=1)
    for loss in (5.0, 6.0, 7.0):
        it.observe(loss)
    other = schedule(lr_patience=1)
    other.load_state_dict(it.state_dict())
    assert it.step_update(1) == other.step(3) == pytest.approx(0.05)
    for both in (it, other):
        both.observe(8.0)
        both.observe(8.0)
    assert it.plateau.state_dict() == other.plateau.state_dict() and it.plateau.drops == 2


def test_drops_and_the_end_are_logged(caplog):
    it = schedule(lr_patience=0, max_checks=2)
    with caplog.at_level("INFO"):
        it.observe(3.0)
        it.observe(4.0)
    assert [record.getMessage() for record in caplog.records] == [
        "check 2: the best loss, 3.0, is of check 1; learning rate times 0.1",
        "training ends at check 2: check 2 was the last",
    ]


def test_the_task_passes_the_loss_of_an_epochs_end_alone():
    from fairseq_doc.tasks.bptt_language_modeling import BpttLanguageModelingTask

    model = small_model()
    it = schedule(model)
    task = BpttLanguageModelingTask(SimpleNamespace(valid_metric="loss"), None)
    task._windows_done, task._end_of_epoch = 3, 8
    task.begin_valid_epoch(1, model)
    task.post_validate(model, {"loss": 9.0}, None)
    assert it.plateau.checks == 0
    task._windows_done = 8
    task.begin_valid_epoch(1, model)
    task.post_validate(model, {"loss": 5.0}, None)
    task.post_validate(model, {"loss": 7.0}, None)  # a second validation subset
    assert it.plateau.best_losses == [5.0]
