import copy
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.nt_asgd import (
    LAST_CHECKPOINT,
    NTASGD,
    TASK,
    AveragedSGD,
    NTASGDConfig,
    NTASGDSchedule,
    TrainingStages,
)

from ..conftest import assert_close

losses_lists = st.lists(st.integers(0, 12).map(float), max_size=60)


# The trigger


def first_firing(losses, begin, nonmono):
    """The first place from ``begin`` on whose loss has more than ``nonmono`` losses between
    ``begin`` and itself and is worse than the best of all but the last ``nonmono`` of them."""
    for t in range(begin, len(losses)):
        listed = losses[begin:t]
        if len(listed) > nonmono and losses[t] > min(listed[: len(listed) - nonmono]):
            return t
    return None


def plan(losses, nonmono, stages):
    """The steps of every epoch, from the rule's words: SGD until the criterion fires, averaging
    until it fires again, then stages 1, 2, ..., each with an empty list, until it fires. After
    stage ``stages``, or for -1 after one that did not lower the best loss of all before it, stop;
    without stages averaging goes on for good."""
    fired, begin_of_stage, begin, phase, n = {}, [0], 0, -1, len(losses)
    while (t := first_firing(losses, begin, nonmono)) is not None:
        if phase == -1:
            fired[t] = "average"
        elif stages == 0:
            break
        elif phase == stages or (
            stages == -1 and phase > 0 and min(losses[begin : t + 1]) >= min(losses[:begin])
        ):
            fired[t], n = "stop", t + 1
            break
        else:
            fired[t] = "restart"
            begin_of_stage.append(t + 1)
        phase, begin = phase + 1, t + 1
    steps = [[] for _ in losses]
    for t in range(n):
        since = max(begin for begin in begin_of_stage if begin <= t)
        steps[t] += ["keep_in_stage"] * all(losses[t] < x for x in losses[since:t])
        steps[t] += ["keep"] * all(losses[t] < x for x in losses[:t])
        steps[t] += [fired[t]] if t in fired else []
    return steps


def observed(trigger, losses):
    return [trigger.observe(epoch, loss) for epoch, loss in enumerate(losses, 1)]


@given(losses_lists, st.integers(0, 6), st.integers(-1, 3))
def test_trigger_follows_its_rule(losses, nonmono, stages):
    assert observed(TrainingStages(nonmono, stages), losses) == plan(losses, nonmono, stages)


@st.composite
def scripts(draw):
    """(n, losses) of a run of many stages: each goes down to its own lowest loss, mostly a lower one
    than before, and then up until the criterion has fired; half of them end in the middle."""
    nonmono, losses, low = draw(st.integers(0, 3)), [], 100.0
    for _ in range(draw(st.integers(1, 8))):
        low += draw(st.sampled_from([-3.0, -1.0, -1.0, 0.0, 2.0]))
        for _ in range(draw(st.integers(0, 4))):
            losses.append(low + draw(st.integers(0, 20)) / 4)
        losses += [low] + [low + 7.0] * (nonmono + draw(st.integers(1, 2)))
    return nonmono, losses[: len(losses) - draw(st.integers(0, 3))]


@given(scripts(), st.sampled_from([-1, -1, -1, 0, 1, 4]))
def test_trigger_follows_its_rule_through_many_stages(script, stages):
    nonmono, losses = script
    assert observed(TrainingStages(nonmono, stages), losses) == plan(losses, nonmono, stages)


def test_fine_tuning_until_a_stage_gains_nothing_by_hand():
    """n = 0: the criterion fires at any loss worse than the best of its list."""
    kept, restarted = ["keep_in_stage", "keep"], ["restart"]
    script = [
        (9.0, kept),  # SGD
        (9.5, ["average"]),
        (8.0, kept),  # averaging: still stage 0, whose best is 9
        (7.0, kept),
        (7.5, restarted),
        (8.0, ["keep_in_stage"]),  # stage 1: its own best, worse than 7
        (6.0, kept),
        (6.5, restarted),  # 6 < 7: gained
        (6.5, ["keep_in_stage"]),  # stage 2
        (6.0, ["keep_in_stage"]),  # as good as the best is no gain
        (6.1, ["stop"]),
        (1.0, []),  # nobody listens any more
    ]
    losses, steps = zip(*script, strict=True)
    trigger = TrainingStages(0, -1)
    assert observed(trigger, losses) == list(steps)
    assert trigger.stopped and trigger.stage == 2 and trigger.best == 6.0


def test_averaging_that_gains_nothing_is_fine_tuned_all_the_same():
    """Only a fine-tuning stage ends the run."""
    trigger = TrainingStages(0, -1)
    steps = observed(trigger, [5.0, 6.0, 7.0, 8.0])
    assert steps == [["keep_in_stage", "keep"], ["average"], [], ["restart"]]
    assert observed(TrainingStages(0, -1), [5.0, 6.0, 7.0, 8.0, 7.0, 7.5])[4:] == [
        ["keep_in_stage"],
        ["stop"],
    ]


@given(losses_lists, st.integers(0, 6))
def test_best_weights_are_kept_whenever_the_loss_is_the_lowest_so_far(losses, nonmono):
    trigger = TrainingStages(nonmono)
    kept = [e for e, loss in enumerate(losses, 1) if "keep" in trigger.observe(e, loss)]
    best = [t + 1 for t, x in enumerate(losses) if all(x < y for y in losses[:t])]
    assert kept == best


@pytest.mark.parametrize(
    "nonmono, losses, fired",
    [
        (0, [5, 4, 3, 3], []),
        (0, [5, 4, 3, 3.5], [4]),
        (2, [5, 4, 3, 4.5, 4], []),  # epoch 4: all but the last 2 are (5); epoch 5: (5, 4)
        (2, [5, 4, 3, 4.5, 4.1], [5]),
        (60, [*range(100, 0, -1), 61], []),  # all but the last 60 are 100 .. 61
        (60, [*range(100, 0, -1), 62], [101]),
        (60, [*[1] * 60, 2], []),  # 60 earlier losses are not more than 60
        (60, [*[1] * 61, 2], [62]),
    ],
)
def test_trigger_by_hand(nonmono, losses, fired):
    trigger = TrainingStages(nonmono)
    assert [e for e, x in enumerate(losses, 1) if "average" in trigger.observe(e, x)] == fired


@given(scripts(), st.integers(-1, 3), st.integers(0, 60))
def test_trigger_goes_on_from_its_saved_state(script, stages, cut):
    nonmono, losses = script
    whole, first, second = (TrainingStages(nonmono, stages) for _ in range(3))
    numbered = list(enumerate(losses, 1))
    expected = [whole.observe(*x) for x in numbered]
    steps = [first.observe(*x) for x in numbered[:cut]]
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert steps + [second.observe(*x) for x in numbered[cut:]] == expected


def test_an_epoch_counts_once():
    trigger = TrainingStages(0)
    assert trigger.observe(1, 5.0) == ["keep_in_stage", "keep"]
    assert trigger.observe(1, 9.0) == []
    assert trigger.observe(2, 6.0) == ["average"]
    assert trigger.observe(2, 4.0) == []


# The averages


def run(optimizer, parameters, gradient, rates):
    """Steps at the given rates; the parameters after each, as plain lists."""
    iterates = []
    for rate in rates:
        if isinstance(optimizer, AveragedSGD):
            optimizer.show_raw()  # gradients are taken at the raw weights
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        for p in parameters:
            p.grad = gradient(p.detach())
        optimizer.step()
        iterates.append([p.tolist() for p in parameters])
    return iterates


def quadratic(x):
    return 0.3 * x - 1


def new_parameters():
    rng = torch.Generator().manual_seed(0)
    shapes = ((3,), (2, 2), ())
    return [
        nn.Parameter(torch.randn(shape, generator=rng, dtype=torch.float64)) for shape in shapes
    ]


def mean_of_iterates(iterates):
    """What torch's ASGD gives with t0 = 0, lambd = 0: the newest of one or two iterates, the mean
    of all but the first of more."""
    counted = iterates[-1:] if len(iterates) <= 2 else iterates[1:]
    totals = [torch.zeros_like(torch.tensor(x), dtype=torch.float64) for x in counted[0]]
    for iterate in counted:
        totals = [
            t + torch.tensor(x, dtype=torch.float64) for t, x in zip(totals, iterate, strict=True)
        ]
    return [t / len(counted) for t in totals]


rate_lists = st.lists(st.floats(0.01, 2), min_size=1, max_size=12)


@given(rate_lists, st.integers(0, 12), st.sampled_from([0.0, 0.1]))
def test_steps_and_average_are_those_of_plain_arithmetic(rates, switch, weight_decay):
    switch = min(switch, len(rates))
    parameters = new_parameters()
    values, raw = [p.detach().clone() for p in parameters], []
    for rate in rates:  # this step's rate at this step
        values = [x - rate * (quadratic(x) + weight_decay * x) for x in values]
        raw.append([x.tolist() for x in values])

    optimizer = AveragedSGD(parameters, lr=9.0, weight_decay=weight_decay)
    iterates = run(optimizer, parameters, quadratic, rates[:switch])
    optimizer.start_averaging()
    optimizer.show_average()  # nothing to show yet
    iterates += run(optimizer, parameters, quadratic, rates[switch:])
    assert_close(iterates, raw)
    optimizer.show_average()
    expected = mean_of_iterates(raw[switch:]) if rates[switch:] else values
    assert_close([p.detach() for p in parameters], expected)


@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_average_is_torchs_at_a_constant_rate(steps, weight_decay):
    ours, theirs = new_parameters(), new_parameters()
    optimizer = AveragedSGD(ours, lr=0.5, weight_decay=weight_decay)
    optimizer.start_averaging()
    torchs = torch.optim.ASGD(theirs, lr=0.5, lambd=0, t0=0, weight_decay=weight_decay)
    rates = [0.5] * steps
    assert_close(run(optimizer, ours, quadratic, rates), run(torchs, theirs, quadratic, rates))
    optimizer.show_average()
    average = [torchs.state[p]["ax"] for p in theirs]
    assert_close([p.detach() for p in ours], average, rtol=1e-6, atol=1e-6)  # its 1/k is float32


@given(rate_lists, st.lists(st.sampled_from(["average", "raw"]), min_size=12, max_size=12))
def test_showing_the_average_between_steps_changes_no_step(rates, shows):
    plain, shown = new_parameters(), new_parameters()
    one, two = AveragedSGD(plain, lr=1.0), AveragedSGD(shown, lr=1.0)
    one.start_averaging()
    two.start_averaging()
    for rate, show in zip(rates, shows, strict=False):
        run(one, plain, quadratic, [rate])
        run(two, shown, quadratic, [rate])
        for _ in range(2):  # twice is once
            two.show_average() if show == "average" else two.show_raw()
    for optimizer in (one, two):
        optimizer.show_raw()
    assert_close([p.detach() for p in plain], [p.detach() for p in shown], rtol=0, atol=0)
    for optimizer in (one, two):
        optimizer.show_average()
    assert_close([p.detach() for p in plain], [p.detach() for p in shown], rtol=0, atol=0)


def test_parameters_without_a_gradient_stay_and_are_averaged():
    moved, still = nn.Parameter(torch.ones(2)), nn.Parameter(torch.full((2,), 7.0))
    optimizer = AveragedSGD([moved, still], lr=0.5, weight_decay=0.1)
    optimizer.start_averaging()
    for _ in range(3):
        moved.grad = torch.ones(2)
        optimizer.step()
    optimizer.show_average()
    assert still.tolist() == [7.0, 7.0]
    assert moved.tolist() != [1.0, 1.0]


@pytest.mark.parametrize("shown", ["average", "raw"])
@pytest.mark.parametrize("cut", range(6))
def test_a_saved_optimizer_goes_on_as_if_it_had_never_stopped(tmp_path, cut, shown):
    rates = [0.5, 0.3, 1.1, 0.2, 0.9, 0.4]
    whole, first, second = new_parameters(), new_parameters(), new_parameters()
    optimizers = [AveragedSGD(p, lr=1.0) for p in (whole, first, second)]
    for optimizer in optimizers[:2]:
        optimizer.start_averaging()
    run(optimizers[0], whole, quadratic, rates)

    run(optimizers[1], first, quadratic, rates[:cut])
    if shown == "average":
        optimizers[1].show_average()
    torch.save([optimizers[1].state_dict(), [p.data for p in first]], tmp_path / "saved")
    state, weights = torch.load(tmp_path / "saved")
    for p, x in zip(second, weights, strict=True):
        p.data.copy_(x)
    optimizers[2].load_state_dict(state)
    run(optimizers[2], second, quadratic, rates[cut:])

    for show in ("show_raw", "show_average"):
        for optimizer in optimizers:
            getattr(optimizer, show)()
        assert_close([p.detach() for p in second], [p.detach() for p in whole], rtol=0, atol=0)


def test_restart_takes_up_the_kept_weights_with_a_fresh_average():
    parameters = new_parameters()
    optimizer = AveragedSGD(parameters, lr=0.5)
    optimizer.start_averaging()
    run(optimizer, parameters, quadratic, [0.5] * 4)
    optimizer.show_average()
    optimizer.keep()
    best = [p.detach().clone() for p in parameters]
    run(optimizer, parameters, quadratic, [0.5] * 3)
    optimizer.show_average()
    optimizer.restart()
    assert_close([p.detach() for p in parameters], best, rtol=0, atol=0)
    optimizer.show_average()
    assert_close([p.detach() for p in parameters], best, rtol=0, atol=0)

    iterates = run(optimizer, parameters, quadratic, [0.5] * 4)
    expected, values = [], best
    for _ in range(4):
        values = [x - 0.5 * quadratic(x) for x in values]
        expected.append([x.tolist() for x in values])
    assert_close(iterates, expected)
    optimizer.show_average()
    assert_close([p.detach() for p in parameters], mean_of_iterates(expected))


# fairseq's wrappers


def config(**changes):
    settings = {
        "lr": [0.5],
        "lr_scheduler_name": "nt_asgd",
        "task_name": TASK,
        "fp16": False,
        "bf16": False,
        "maximize_best_checkpoint_metric": False,
        "nonmono": 1,
        "disable_validation": False,
        "no_save": True,
        "no_last_checkpoints": False,
        "save_interval": 1,
        "restore_file": LAST_CHECKPOINT,
        "continue_once": None,
        "checkpoint_suffix": "",
        "write_checkpoints_asynchronously": False,
    }
    return NTASGDConfig(**{**settings, **changes})


def schedule(optimizer, stop_min_lr=-1.0):
    return NTASGDSchedule(SimpleNamespace(lr=[0.5], stop_min_lr=stop_min_lr), optimizer)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"lr_scheduler_name": "fixed"}, "needs --lr-scheduler nt_asgd.*got --lr-scheduler fixed"),
        ({"task_name": "language_modeling"}, f"needs --task {TASK}.*got --task language_modeling"),
        ({"fp16": True}, "got --fp16"),
        ({"bf16": True}, "got --bf16"),
        ({"maximize_best_checkpoint_metric": True}, "got --maximize-best-checkpoint-metric"),
        ({"nonmono": -1}, "--nonmono must be at least 0; got -1"),
        ({"finetune_stages": -2}, "--finetune-stages must be at least -1; got -2"),
        ({"lr": [1.0, 0.5]}, "expected one --lr; got 1.0,0.5"),
    ],
)
def test_settings_that_would_not_average(changes, problem):
    NTASGD(config(), new_parameters())
    with pytest.raises(FairseqDocError, match=problem):
        NTASGD(config(**changes), new_parameters())


@pytest.mark.parametrize("stages", [-1, 1, 3])
def test_stages_whose_best_models_could_not_be_kept_are_refused(stages):
    NTASGD(config(no_save=False, finetune_stages=stages), new_parameters())
    for changes, got in (
        ({"save_interval": 2}, "got --save-interval 2$"),
        ({"no_last_checkpoints": True}, "got --no-last-checkpoints$"),
        ({"write_checkpoints_asynchronously": True}, "got --write-checkpoints-asynchronously$"),
    ):
        problem = f"--finetune-stages copies the best model of each stage .*{got}"
        with pytest.raises(FairseqDocError, match=problem):
            NTASGD(config(no_save=False, finetune_stages=stages, **changes), new_parameters())
        NTASGD(config(no_save=True, finetune_stages=stages, **changes), new_parameters())
        NTASGD(config(no_save=False, finetune_stages=0, **changes), new_parameters())


@pytest.mark.parametrize("disabled", [True, False])
def test_without_validation_a_warning_is_given(disabled, caplog):
    NTASGD(config(disable_validation=disabled), new_parameters())
    assert ("averaging never starts" in caplog.text) == disabled


class OtherOptimizer(FairseqOptimizer):
    _optimizer = None


def test_the_scheduler_alone_is_an_error():
    other = OtherOptimizer(SimpleNamespace(_name="adam"))
    with pytest.raises(FairseqDocError, match="needs --optimizer nt_asgd; got .*Other"):
        schedule(other)


def test_the_scheduler_finds_the_optimizer_under_amp():
    inner = NTASGD(config(), new_parameters())
    wrapper = OtherOptimizer(SimpleNamespace(_name="amp"))
    wrapper.fp32_optimizer = inner
    assert schedule(wrapper).nt_asgd is inner


def test_the_optimizer_of_a_model_is_found():
    one, two, none = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    optimizers = [NTASGD(config(), model.parameters()) for model in (one, two)]
    assert [NTASGD.of(model) for model in (one, two, none)] == [*optimizers, None]
    assert NTASGD.of(nn.Identity()) is None


def test_losses_reach_the_optimizer_and_the_rate_stays_until_the_end():
    """nonmono = 1, one stage: averaging fires at epoch 3 (3 > best of (2)), fine-tuning at 6, the
    end at 9."""
    model = nn.Linear(2, 2)
    optimizer = NTASGD(config(finetune_stages=1), model.parameters())
    scheduler = schedule(optimizer, stop_min_lr=-7.0)
    rates, averaging, stages = [], [], []
    for epoch in range(1, 10):
        rates.append(scheduler.step(epoch, [2.0, 2.0, 3.0][(epoch - 1) % 3]))
        averaging.append(optimizer.optimizer.param_groups[0]["averaging"])
        stages.append(optimizer.trigger.stage)
        assert scheduler.step_update(epoch) == optimizer.get_lr() == rates[-1]
    assert rates == [0.5] * 8 + [-7.0]
    assert averaging == [False] * 2 + [True] * 7
    assert stages == [-1, -1, 0, 0, 0, 1, 1, 1, 1]


def test_without_stages_averaging_goes_on_for_good():
    optimizer = NTASGD(config(), new_parameters())
    scheduler = schedule(optimizer)
    rates = [scheduler.step(epoch, float(epoch)) for epoch in range(1, 30)]
    assert rates == [0.5] * 29
    assert optimizer.trigger.stage == 0


def test_an_epoch_without_validation_is_not_observed():
    optimizer = NTASGD(config(), new_parameters())
    scheduler = schedule(optimizer)
    assert [scheduler.step(epoch, None) for epoch in (1, 2, 3)] == [0.5] * 3
    assert optimizer.trigger.losses == []


def test_fine_tuning_restarts_from_the_weights_of_the_lowest_loss():
    parameters = new_parameters()
    optimizer = NTASGD(config(finetune_stages=1, nonmono=0), parameters)
    validated, losses = [], [5.0, 6.0, 3.0, 4.0]  # averaging after epoch 2, fine-tuning after 4
    for epoch, loss in enumerate(losses, 1):
        run(optimizer.optimizer, parameters, quadratic, [0.5] * 3)
        optimizer.optimizer.show_average()
        validated.append([p.detach().clone() for p in parameters])
        optimizer.observe(epoch, loss)
    assert optimizer.trigger.stage == 1
    assert_close([p.detach() for p in parameters], validated[2], rtol=0, atol=0)


def test_rate_and_weight_decay_may_change_on_a_resume_and_the_trigger_is_restored():
    old = NTASGD(config(weight_decay=0.1), new_parameters())
    for epoch, loss in enumerate([3.0, 2.0, 4.0], 1):
        old.observe(epoch, loss)
    new = NTASGD(config(lr=[7.0], weight_decay=0.2), new_parameters())
    new.load_state_dict(old.state_dict())
    group = new.optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["averaging"]) == (7.0, 0.2, True)
    assert new.trigger.state_dict() == old.trigger.state_dict()
    assert new.trigger.nonmono == 1
    new.load_state_dict(old.state_dict(), {"lr": 8.0})
    assert new.get_lr() == 8.0


def test_a_loss_that_is_not_a_number_fires_nothing():
    trigger = TrainingStages(0)
    assert trigger.observe(1, 3.0) == ["keep_in_stage", "keep"]
    assert trigger.observe(2, math.nan) == []


def resumed_with_stages(epoch_loss, loss, losses=(3.0, 4.0)):
    """A run without stages saw ``losses``; one with a stage goes on from a checkpoint of it."""
    first = NTASGD(config(nonmono=0), [nn.Parameter(torch.tensor([1.0]))])
    for epoch, seen in enumerate(losses, start=1):
        first.observe(epoch, seen)
    parameter = nn.Parameter(torch.tensor([2.0]))
    second = NTASGD(config(nonmono=0, finetune_stages=1), [parameter])
    second.load_state_dict(first.state_dict())
    second.resume(epoch_loss, loss)
    return parameter, second


@pytest.mark.parametrize("best", [2.5, 3.0])
@pytest.mark.parametrize("mid_epoch", [True, False])
def test_stages_may_be_asked_for_on_a_resume_from_the_best_model(best, mid_epoch):
    parameter, optimizer = resumed_with_stages(None if mid_epoch else (3, best), best)
    assert optimizer.trigger.best == optimizer.trigger.stage_best == best
    with torch.no_grad():
        parameter.add_(1)
    optimizer.observe(4, 5.0)
    optimizer.observe(5, 6.0)
    assert optimizer.trigger.stage == 1
    assert parameter.item() == 2.0


@pytest.mark.parametrize("epoch_loss, loss", [((3, 3.5), 3.5), (None, 3.5), (None, None)])
def test_stages_are_not_started_from_a_model_that_is_not_the_best(epoch_loss, loss):
    with pytest.raises(FairseqDocError, match="expected --restore-file .*checkpoint_best.pt"):
        resumed_with_stages(epoch_loss, loss)


def test_stages_may_be_asked_for_before_anything_was_validated():
    _, optimizer = resumed_with_stages(None, None, losses=())
    assert optimizer.trigger.best == math.inf


def test_an_epoch_is_taken_once_and_a_run_that_starts_over_is_heard_again():
    trigger = TrainingStages(nonmono=5)
    for epoch in (1, 2, 2, 3):
        trigger.observe(epoch, 1.0)
    assert len(trigger.losses) == 3
    trigger.observe(1, 1.0)  # --reset-dataloader goes back to epoch 1
    assert len(trigger.losses) == 4


# The best model of each stage


def train(folder, numbered, cfg, saved=None, save_at=None):
    """Epochs as fairseq runs them: train, write checkpoint_last.pt, which says here whose it is,
    show the loss. With ``saved``, the state at ``save_at`` of another call, the first epoch was run
    before and its checkpoint has just been read."""
    parameters = [nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    done = SimpleNamespace(optimizer=NTASGD(cfg, parameters), validated={}, after={}, saved=None)
    if saved is not None:
        done.optimizer.load_state_dict(saved[0])
        parameters[0].data.copy_(saved[1])
    for i, (epoch, loss) in enumerate(numbered):
        resumed = saved is not None and i == 0
        if not resumed:
            rates = [0.5, 0.1 + 0.3 / epoch, 0.2]
            run(done.optimizer.optimizer, parameters, quadratic, rates)
            done.optimizer.optimizer.show_average()
            if cfg.save_dir == str(folder):
                (folder / LAST_CHECKPOINT).write_text(f"epoch {epoch}")
        done.validated[epoch] = parameters[0].detach().clone()
        if epoch == save_at:  # fairseq saves before the loss is shown
            done.saved = copy.deepcopy((done.optimizer.state_dict(), done.validated[epoch]))
        done.optimizer.observe(epoch, loss, resumed)
        done.after[epoch] = parameters[0].detach().clone()
    return done


def stages_kept(folder):
    return {path.name: path.read_text() for path in folder.glob("checkpoint_best_stage*")}


def best_of_stages(steps):
    """{file: whose weights it holds}, from the steps of all epochs."""
    expected, stage = {}, 0
    for epoch, of_epoch in enumerate(steps, 1):
        if "keep_in_stage" in of_epoch:
            expected[f"checkpoint_best_stage{stage}.pt"] = f"epoch {epoch}"
        stage += "restart" in of_epoch
    return expected


@settings(max_examples=12)  # files take their time
@given(script=scripts(), stages=st.sampled_from([-1, -1, 1, 2]))
def test_a_stages_best_model_is_kept_the_moment_it_is_seen(tmp_path_factory, script, stages):
    """Before the first fine-tuning stage everything is stage 0; a loss as good is not better."""
    nonmono, losses = script
    folder = tmp_path_factory.mktemp("run")
    cfg = config(save_dir=str(folder), no_save=False, nonmono=nonmono, finetune_stages=stages)
    optimizer = NTASGD(cfg, new_parameters())
    for epoch, loss in enumerate(losses, 1):
        (folder / LAST_CHECKPOINT).write_text(f"epoch {epoch}")
        optimizer.observe(epoch, loss)
    expected = best_of_stages(plan(losses, nonmono, stages))
    assert stages_kept(folder) == expected
    left = {path.name for path in folder.iterdir()}
    assert left == {*expected} | ({LAST_CHECKPOINT} if losses else set())


HAND = [9.0, 9.5, 8.0, 7.0, 7.5, 8.0, 6.0, 6.5, 6.5, 6.0, 6.1]  # n = 0; stages end at 5, 8, 11


def test_kept_models_by_hand(tmp_path):
    cfg = config(save_dir=str(tmp_path), no_save=False, nonmono=0, finetune_stages=-1)
    assert train(tmp_path, enumerate(HAND, 1), cfg).optimizer.trigger.stopped
    assert stages_kept(tmp_path) == {
        "checkpoint_best_stage0.pt": "epoch 4",
        "checkpoint_best_stage1.pt": "epoch 7",
        "checkpoint_best_stage2.pt": "epoch 10",
    }


@pytest.mark.parametrize("changes", [{"finetune_stages": 0}, {"no_save": True}])
def test_nothing_is_kept_without_stages_or_where_nothing_is_saved(tmp_path, changes):
    settings = {"no_save": False, "nonmono": 0, "finetune_stages": -1, **changes}
    train(tmp_path, enumerate(HAND, 1), config(save_dir=str(tmp_path), **settings))
    assert stages_kept(tmp_path) == {}


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("cut", range(1, len(HAND) + 1))
def test_a_run_saved_in_any_epoch_goes_on_equally(tmp_path, cut, shown):
    """A checkpoint holds the state from before its epoch's loss, which is shown on the resume.
    ``shown``: the run was killed after it had been shown to it as well."""
    folders = [tmp_path / "whole", tmp_path / "parts"]
    configs = []
    for folder in folders:
        folder.mkdir()
        configs.append(config(save_dir=str(folder), no_save=False, nonmono=0, finetune_stages=-1))
    numbered = list(enumerate(HAND, 1))
    whole = train(folders[0], numbered, configs[0])
    first = train(folders[1], numbered[:cut], configs[1], save_at=cut)
    if not shown:
        for path in folders[1].glob("checkpoint_best_stage*"):
            if path.read_text() == f"epoch {cut}":
                path.unlink()
    second = train(folders[1], numbered[cut - 1 :], configs[1], saved=first.saved)
    assert stages_kept(folders[1]) == stages_kept(folders[0])
    assert second.optimizer.trigger.state_dict() == whole.optimizer.trigger.state_dict()
    assert_close(second.after[len(HAND)], whole.after[len(HAND)], rtol=0, atol=0)


@pytest.mark.parametrize("name", [LAST_CHECKPOINT, "other/checkpoint7.pt"])
def test_the_resumed_epochs_model_is_the_file_that_was_restored(tmp_path, name):
    """Later ones are checkpoint_last.pt again, whatever --restore-file says."""
    restored = str(tmp_path / name) if "/" in name else name
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoint7.pt").write_text("restored")
    (tmp_path / LAST_CHECKPOINT).write_text("last")
    cfg = config(
        save_dir=str(tmp_path), no_save=False, finetune_stages=1, nonmono=0, restore_file=restored
    )
    optimizer = NTASGD(cfg, new_parameters())
    optimizer.observe(7, 5.0, resumed=True)
    first = {"checkpoint_best_stage0.pt": "restored" if "/" in name else "last"}
    assert stages_kept(tmp_path) == first
    optimizer.observe(8, 5.5)
    assert stages_kept(tmp_path) == first
    (tmp_path / LAST_CHECKPOINT).write_text("epoch 9")
    optimizer.observe(9, 4.0)
    assert stages_kept(tmp_path) == {"checkpoint_best_stage0.pt": "epoch 9"}


@pytest.mark.parametrize("last_is_there", [True, False])
def test_continue_once_is_read_where_there_is_no_last_checkpoint(tmp_path, last_is_there):
    (tmp_path / "elsewhere.pt").write_text("continued")
    folder = tmp_path / "run"  # fairseq makes it when it first saves
    if last_is_there:
        folder.mkdir()
        (folder / LAST_CHECKPOINT).write_text("last")
    where = {"save_dir": str(folder), "continue_once": str(tmp_path / "elsewhere.pt")}
    optimizer = NTASGD(config(no_save=False, finetune_stages=1, **where), new_parameters())
    optimizer.observe(7, 5.0, resumed=True)
    kept = {"checkpoint_best_stage0.pt": "last" if last_is_there else "continued"}
    assert stages_kept(folder) == kept


def test_kept_models_bear_the_suffix_of_the_checkpoints(tmp_path):
    (tmp_path / "checkpoint_last-a.pt").write_text("epoch 1")
    where = {"save_dir": str(tmp_path), "checkpoint_suffix": "-a"}
    optimizer = NTASGD(config(no_save=False, finetune_stages=1, **where), new_parameters())
    optimizer.observe(1, 5.0)
    assert stages_kept(tmp_path) == {"checkpoint_best_stage0-a.pt": "epoch 1"}


def test_a_kept_model_may_be_the_one_that_is_restored(tmp_path):
    kept = tmp_path / "checkpoint_best_stage0.pt"
    kept.write_text("kept")
    cfg = config(save_dir=str(tmp_path), no_save=False, finetune_stages=1, restore_file=str(kept))
    NTASGD(cfg, new_parameters()).observe(3, 5.0, resumed=True)
    assert stages_kept(tmp_path) == {"checkpoint_best_stage0.pt": "kept"}


def test_a_stages_end_is_told_with_its_best_loss(tmp_path, caplog):
    cfg = config(nonmono=0, finetune_stages=-1)
    with caplog.at_level("INFO"):
        train(tmp_path, enumerate(HAND, 1), cfg)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "averaging starts after epoch 2",
        "stage 0 ended with epoch 5: best loss 7.0",
        "fine-tuning stage 1 starts after epoch 5",
        "stage 1 ended with epoch 8: best loss 6.0",
        "fine-tuning stage 2 starts after epoch 8",
        "stage 2 ended with epoch 11: best loss 6.0",
        "fine-tuning ends; the best loss of all stages is 6.0",
    ]


@given(scripts())
def test_every_stage_starts_from_the_best_weights_so_far(script):
    nonmono, losses = script
    done = train(None, enumerate(losses, 1), config(nonmono=nonmono, finetune_stages=-1))
    for epoch, steps in enumerate(plan(losses, nonmono, -1), 1):
        if "restart" in steps:
            best = losses.index(min(losses[:epoch])) + 1  # the first of equal ones
            assert_close(done.after[epoch], done.validated[best], rtol=0, atol=0)
        else:
            assert_close(done.after[epoch], done.validated[epoch], rtol=0, atol=0)
