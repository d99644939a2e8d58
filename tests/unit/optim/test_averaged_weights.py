"""The optimizers that average, and fairseq's wrapper of Adam; that of SGD has a file of its own."""

from types import SimpleNamespace

import pytest
import torch
from conftest import assert_refused
from fairseq.optim.adam import Adam
from fairseq.optim.amp_optimizer import AMPOptimizer
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.optim.averaged_weights import AdamWithAverage, AveragedAdam, AveragedAdamConfig
from fairseq_doc.optim.nt_asgd import AveragedSGD
from fairseq_doc.optim.plateau import PlateauSchedule
from fairseq_doc.optim.training_stages import TrainingStages
from fairseq_doc.tasks.bptt_language_modeling import BpttLanguageModelingTask

from ..conftest import assert_close, config_of, small_model
from .runs import new_parameters, quadratic, run
from .test_plateau import config as schedule_config


def averaged_sgd(params, **settings):
    return AveragedSGD(params, stages=TrainingStages(nonmono=60), **settings)


KINDS = {  # the optimizer, the same without an average, settings, iterates that no mean takes in
    "sgd": (averaged_sgd, torch.optim.SGD, {}, 1),
    "adam": (AdamWithAverage, Adam, {"betas": (0.0, 0.99), "eps": 1e-8}, 0),
}


def values(parameters):
    return [p.detach().clone() for p in parameters]


def mean_of_iterates(iterates, left_out=1):
    """The mean of all but the first iterates, or the newest of too few."""
    counted = iterates[left_out:] or iterates[-1:]
    each = [[torch.tensor(x, dtype=torch.float64) for x in of_one] for of_one in counted]
    return [torch.stack(of_one).mean(0) for of_one in zip(*each, strict=True)]


@given(
    st.sampled_from(list(KINDS)),
    st.lists(st.floats(0.01, 2), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.1]),
)
def test_steps_are_plain_ones_and_the_average_is_their_mean(
    kind, rates, shows, switch, weight_decay
):
    averaging, plain, settings, left_out = KINDS[kind]
    settings = {"lr": 9.0, "weight_decay": weight_decay, **settings}
    ours, theirs = new_parameters(), new_parameters()
    optimizer, found = averaging(ours, **settings), []
    raw = run(plain(theirs, **settings), theirs, quadratic, rates)
    for step, (rate, show) in enumerate(zip(rates, shows, strict=False)):
        if step == switch:
            optimizer.start_averaging()
        found += run(optimizer, ours, quadratic, [rate])
        for _ in range(2):  # twice is once
            optimizer.show(average=show)
    assert_close(found, raw)
    optimizer.show(average=True)  # if there is one
    expected = mean_of_iterates(raw[switch:], left_out) if raw[switch:] else values(theirs)
    assert_close(values(ours), expected)
    optimizer.show(average=False)
    assert_close(values(ours), values(theirs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5])
def test_a_saved_optimizer_resumes_as_if_it_had_never_stopped(tmp_path, kind, cut, shown):
    rates = [0.5, 0.3, 1.1, 0.2, 0.9, 0.4]
    averaging, _, settings, _ = KINDS[kind]
    whole, first, second = new_parameters(), new_parameters(), new_parameters()
    optimizers = [averaging(p, lr=1.0, **settings) for p in (whole, first, second)]
    for optimizer in optimizers[:2]:
        optimizer.start_averaging()
    run(optimizers[0], whole, quadratic, rates)

    run(optimizers[1], first, quadratic, rates[:cut])
    optimizers[1].show(average=shown)
    torch.save([optimizers[1].state_dict(), values(first)], tmp_path / "saved")
    state, weights = torch.load(tmp_path / "saved")
    for p, x in zip(second, weights, strict=True):
        p.data.copy_(x)
    optimizers[2].load_state_dict(state)
    assert optimizers[2].averaging
    run(optimizers[2], second, quadratic, rates[cut:])

    for average in (False, True):
        for optimizer in optimizers:
            optimizer.show(average)
        assert_close(values(second), values(whole), rtol=0, atol=0)


def test_restart_takes_up_the_kept_weights_with_a_fresh_average():
    parameters = new_parameters()
    optimizer = averaged_sgd(parameters, lr=0.5)
    optimizer.start_averaging()
    run(optimizer, parameters, quadratic, [0.5] * 4)
    optimizer.show(average=True)
    optimizer.keep_best()
    best = values(parameters)
    run(optimizer, parameters, quadratic, [0.5] * 3)
    optimizer.show(average=True)
    optimizer.restart()
    for _ in range(2):
        assert_close(values(parameters), best, rtol=0, atol=0)
        optimizer.show(average=True)
    plain = values(parameters)
    raw = run(torch.optim.SGD(plain, lr=0.5), plain, quadratic, [0.5] * 4)
    assert_close(run(optimizer, parameters, quadratic, [0.5] * 4), raw)
    optimizer.show(average=True)
    assert_close(values(parameters), mean_of_iterates(raw))


def config(**changes):
    settings = {"lr": [0.5], "lr_scheduler_name": "plateau", "adam_betas": "(0.0, 0.99)"}
    return config_of(AveragedAdamConfig, **{**settings, **changes})


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"lr_scheduler_name": "fixed"}, "averaged_adam needs --lr-scheduler plateau, .*got fixed"),
        ({"fp16": True}, "needs float32 weights"),
    ],
)
def test_settings_that_would_not_work(changes, problem):
    assert_refused(problem, AveragedAdam, config(**changes), new_parameters())


@pytest.mark.parametrize("amp", [False, True])
def test_the_schedule_starts_the_averaging_and_the_task_shows_the_average(amp):
    model = small_model()
    wrapper = AveragedAdam(config(), model.parameters())
    given = wrapper
    if amp:
        given = AMPOptimizer.__new__(AMPOptimizer)  # whose constructor asks for a GPU
        given.fp32_optimizer, given._optimizer = wrapper, wrapper.optimizer
    settings = schedule_config(optimizer_name="averaged_adam", average_patience=2)
    schedule, bias = PlateauSchedule(settings, given), model.decoder.output.bias
    task = BpttLanguageModelingTask(SimpleNamespace(valid_metric="loss"), None)
    starts = []
    for loss in (5.0, 6.0, 6.0, 6.0):
        schedule.observe(loss)
        starts.append(wrapper.optimizer.averaging)
    assert starts == [False, False, True, True]
    shown = []
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        wrapper.optimizer.step()
        shown.append(bias.detach().clone())
    task.begin_valid_epoch(1, model)
    assert_close(bias.detach(), (shown[0] + shown[1]) / 2)
