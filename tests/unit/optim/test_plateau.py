import math
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_refused
from fairseq.optim import FairseqOptimizer
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.optim.plateau import Plateau, PlateauSchedule, PlateauScheduleConfig
from fairseq_doc.tasks.bptt_language_modeling import BpttLanguageModelingTask

from ..conftest import assert_close, config_of, small_model

losses_lists = st.lists(st.integers(0, 12).map(float), min_size=1, max_size=60)


def observed(losses, **settings):
    """(the plateau, the checks at which the rate dropped)."""
    plateau = Plateau(PlateauScheduleConfig(**settings))
    return plateau, [n for n, loss in enumerate(losses, 1) if plateau.observe(loss)]


def resumed(plateau, **settings):
    other = Plateau(PlateauScheduleConfig(**settings))
    other.load_state_dict(plateau.state_dict())
    return other


def best_check(losses):
    return losses.index(min(losses)) + 1


@given(losses_lists, st.integers(0, 6), st.integers(0, 20))
def test_the_rate_drops_where_the_rule_says(losses, patience, latest):
    """More than N checks after the best one and after the last drop; first at K at the latest."""
    expected, last = [], 0
    for check in range(1, len(losses) + 1):
        is_late = not expected and 0 < latest <= check
        if is_late or check > max(best_check(losses[:check]), last) + patience:
            expected.append(check)
            last = check
    plateau, drops = observed(losses, lr_patience=patience, drop_at=latest)
    assert drops == expected and plateau.drops == len(expected)
    assert plateau.best_check == best_check(losses) and plateau.checks == len(losses)


@given(losses_lists, st.integers(1, 6), st.integers(0, 20))
def test_averaging_starts_where_the_rule_says(losses, patience, latest):
    """Averaging starts N checks after the best one, at check K at the latest, and never ends."""
    starts = [
        check
        for check in range(1, len(losses) + 1)
        if check - best_check(losses[:check]) >= patience or 0 < latest <= check
    ]
    for check in range(1, len(losses) + 1):
        plateau, _ = observed(losses[:check], average_patience=patience, average_at=latest)
        assert plateau.averages == (bool(starts) and check >= starts[0])
    assert not observed(losses)[0].averages


@given(losses_lists, st.integers(1, 8), st.integers(0, 12))
def test_training_stops_after_the_patience_which_grows_from_one(losses, patience, ramp):
    for check in range(1, len(losses) + 1):
        plateau, _ = observed(losses[:check], stop_patience=patience, stop_ramp=ramp)
        allowed = 1 + (patience - 1) * check / ramp if check < ramp else patience
        stops = check > best_check(losses[:check]) + allowed
        assert bool(plateau.reason) == stops
        assert not stops or plateau.reason.startswith("no new best loss for ")


def test_a_resume_with_other_settings():
    """More checks continue a training that stopped; a first drop that is late comes at once."""
    ended, _ = observed([10.0 - n for n in range(8)], lr_patience=50, max_checks=8)
    after = resumed(ended, lr_patience=50, drop_at=5)
    assert ended.reason and not after.reason
    assert after.observe(1.0) and not after.observe(0.5)


def test_the_expected_loss_by_hand():
    """Over the newest 2 checks the best loss fell from 7 to 5, by 1 a check; 6 checks are left."""
    plateau, _ = observed([9, 7, 6, 5], stop_patience=2, max_checks=10)
    assert plateau.expected_loss() == 5 - 1 * 6
    assert observed([9, 8], stop_patience=2, max_checks=10)[0].expected_loss() == -math.inf
    flat, _ = observed([9, 7, 8, 7, 9], lr_patience=2, max_checks=10)  # no --stop-patience
    assert flat.expected_loss() == 7


def test_other_limits_hold_after_each_drop():
    settings = {"stop_patience": 9, "max_checks": 20, "stop_above": "5.0,3.0"}
    for loss, checks, patience, drops, stops in (
        (4.0, 10, 1, 4, True),
        (2.0, 10, 1, 4, False),
        (4.0, 4, 30, 0, False),  # no drop yet: the first limit
    ):
        plateau, _ = observed([loss] * checks, lr_patience=patience, **settings)
        assert plateau.drops == drops and bool(plateau.reason) == stops


def test_the_check_of_a_drop_is_judged_by_the_limit_before_it():
    settings = {"lr_patience": 9, "drop_at": 3, "stop_patience": 2, "max_checks": 9}
    settings["stop_above"] = "5.0,3.0"
    plateau, _ = observed([4.3, 4.2, 4.1], **settings)  # expected at check 9: 3.5
    assert plateau.drops == 1 and plateau.expected_loss() == pytest.approx(3.5)
    after = resumed(plateau, **settings)
    assert plateau.reason == after.reason == ""
    after.observe(4.0)
    assert after.reason == "the loss would only fall to 3.5000; --stop-above is 3.0"


@given(losses_lists, st.integers(0, 60))
def test_a_loaded_state_continues_equally(losses, cut):
    settings = {"lr_patience": 2, "stop_patience": 5, "stop_ramp": 8, "max_checks": 50}
    whole, drops = observed(losses, **settings)
    first, early = observed(losses[:cut], **settings)
    second = resumed(first, **settings)
    late = [n for n, loss in enumerate(losses[cut:], cut + 1) if second.observe(loss)]
    assert (early + late, second.state_dict()) == (drops, whole.state_dict())


def config(**changes):
    settings = {"lr": [0.5], "task_name": TASK, "optimizer_name": "adam", **changes}
    return config_of(PlateauScheduleConfig, **settings)


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
        ({"task_name": "translation"}, f"needs --task {TASK}, which passes"),
        ({"lr": [1.0, 0.5]}, "needs a single --lr"),
        ({"lr_shrink": 1.0}, "needs --lr-shrink between 0 and 1"),
        ({"disable_validation": True}, "needs validation at the end of every epoch"),
        ({"validate_interval": 2}, "needs validation at the end of every epoch"),
        ({"validate_interval_updates": 50}, "--validate-interval-updates"),
        ({"maximize_best_checkpoint_metric": True}, "needs a loss as --best"),
        ({"stop_above": "4"}, "--stop-above needs --max-checks"),
        (
            {"stop_above": "4", "max_checks": 9, "lr_patience": 0},
            "--stop-above needs --stop-patience or",
        ),
        ({"average_at": 9}, "--average-at needs --optimizer averaged_adam; got adam"),
        ({"optimizer_name": "averaged_adam"}, "averaged_adam needs --average-patience or"),
        ({"stop_patience": 30}, "needs a --stop-patience above --lr-patience"),
        ({"stop_ramp": 2}, "needs --stop-patience with --stop-ramp"),
        ({"lr_patience": -1}, "lr_patience must be at least 0; got -1"),
    ],
)
def test_settings_that_would_not_work(changes, problem):
    assert_refused(problem, schedule, **changes)


def test_the_rate_drops_and_the_end_is_the_least_rate():
    settings = {"lr_patience": 1, "lr_shrink": 0.1, "max_checks": 5, "stop_min_lr": 1e-9}
    it, other, rates = schedule(**settings), schedule(**settings), []
    for epoch, loss in enumerate([5.0, 4.0, 4.5, 4.5, 4.5], 1):
        it.observe(loss)
        rates += [it.step(epoch, loss), it.step_update(10 * epoch)]
        other.load_state_dict(it.state_dict())
        assert other.step(epoch) == rates[-1] and it.ended == (epoch == 5)
        assert other.state_dict() == it.state_dict()
    assert_close(rates, [0.5, 0.5] * 3 + [0.05, 0.05, 1e-9, 1e-9])


def test_a_rate_that_drops_to_the_least_one_ends_the_training_too():
    it = schedule(lr_patience=1, lr_shrink=0.1, stop_min_lr=0.05)
    for epoch, loss in enumerate([5.0, 6.0, 6.0], 1):
        it.observe(loss)
        it.step(epoch, loss)
        assert it.ended == (it.optimizer.get_lr() <= 0.05)
    assert it.ended and not it.plateau.reason


def test_the_schedule_of_a_model_is_found_under_fp16_too():
    """Whose optimizer has copies of the parameters."""
    model = small_model()
    model.decoder.embedding.requires_grad_(False)  # fairseq gives an optimizer what is trained
    found = schedule(model)
    assert PlateauSchedule.of(model) is found and PlateauSchedule.of(small_model()) is None
    model = small_model()
    optimizer = Optimizer(torch.nn.Linear(2, 2))
    optimizer.fp16_params = list(model.parameters())
    it = PlateauSchedule(config(), optimizer)
    assert PlateauSchedule.of(model) is it


def test_the_task_passes_the_loss_of_an_epochs_end_alone():
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
