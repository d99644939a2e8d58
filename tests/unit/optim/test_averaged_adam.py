"""Adam with the mean of its iterates; the mixin's exchange is tested with SGD."""

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.adam import Adam
from fairseq.optim.amp_optimizer import AMPOptimizer

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.averaged_adam import AdamWithAverage, AveragedAdam, AveragedAdamConfig
from fairseq_doc.optim.plateau import PlateauSchedule
from fairseq_doc.tasks.bptt_language_modeling import BpttLanguageModelingTask

from ..conftest import assert_close, small_model
from .runs import new_parameters, quadratic, run
from .test_plateau import config as schedule_config

ADAM = {"lr": 0.1, "betas": (0.0, 0.99), "eps": 1e-8}
RATES = [0.1, 0.05, 0.2, 0.1, 0.1]


@pytest.mark.parametrize("before", [0, 2, 5])
def test_steps_are_fairseqs_and_the_average_is_the_mean_of_all_since_then(before):
    ours, theirs = new_parameters(), new_parameters()
    optimizer, plain = AdamWithAverage(ours, **ADAM), Adam(theirs, **ADAM)
    expected = run(plain, theirs, quadratic, RATES)
    found = run(optimizer, ours, quadratic, RATES[:before])
    optimizer.show_average()  # there is none
    optimizer.start_averaging()
    for rate in RATES[before:]:
        found += run(optimizer, ours, quadratic, [rate])
        optimizer.show_average()
    assert_close(found, expected)
    counted = expected[before:] or expected[-1:]
    means = [
        torch.stack([torch.tensor(x, dtype=torch.float64) for x in of_one]).mean(0)
        for of_one in zip(*counted, strict=True)
    ]
    assert_close([p.detach() for p in ours], means)
    optimizer.show_raw()
    assert_close([p.detach() for p in ours], [p.detach() for p in theirs])


@pytest.mark.parametrize("shown", [False, True])
def test_a_state_taken_up_goes_on_equally(shown):
    first, second = new_parameters(), new_parameters()
    one, two = AdamWithAverage(first, **ADAM), AdamWithAverage(second, **ADAM)
    one.start_averaging()
    run(one, first, quadratic, RATES)
    if shown:  # as it is saved
        one.show_average()
    with torch.no_grad():
        for p, q in zip(first, second, strict=True):
            q.copy_(p)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    assert two.averaging
    for optimizer, parameters in ((one, first), (two, second)):
        run(optimizer, parameters, quadratic, RATES)
        optimizer.show_average()
    assert_close([p.detach() for p in second], [p.detach() for p in first], rtol=0, atol=0)


# fairseq's wrapper


def config(**changes):
    settings = {"lr": [0.5], "lr_scheduler_name": "plateau", "fp16": False, "bf16": False}
    return AveragedAdamConfig(**{**settings, "adam_betas": "(0.0, 0.99)", **changes})


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"lr_scheduler_name": "fixed"}, "averaged_adam needs --lr-scheduler plateau, .*not fixed"),
        ({"fp16": True}, "needs the model's own float32 weights"),
        ({"bf16": True}, "needs the model's own float32 weights"),
    ],
)
def test_settings_that_would_not_work(changes, problem):
    with pytest.raises(FairseqDocError, match=problem):
        AveragedAdam(config(**changes), new_parameters())


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
    values = []
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        wrapper.optimizer.step()
        values.append(bias.detach().clone())
    task.begin_valid_epoch(1, model)
    assert_close(bias.detach(), (values[0] + values[1]) / 2)
