"""fairseq's wrappers, and the best model of each stage."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_refused
from fairseq.optim import FairseqOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.optim.nt_asgd import LAST_CHECKPOINT, NTASGD, NTASGDSchedule

from ..conftest import assert_close
from .runs import config, new_parameters, plan, quadratic, run, scripts


def schedule(optimizer, stop_min_lr=-1.0):
    return NTASGDSchedule(SimpleNamespace(lr=[0.5], stop_min_lr=stop_min_lr), optimizer)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"lr_scheduler_name": "fixed"}, "needs --lr-scheduler nt_asgd; got fixed"),
        ({"task_name": "translation"}, f"needs --task {TASK}, .*; got translation"),
        ({"fp16": True}, "--fp16"),
        ({"nonmono": -1}, "nonmono must be at least 0; got -1"),
    ],
)
def test_settings_that_would_not_average(changes, problem):
    NTASGD(config(), new_parameters())
    assert_refused(problem, NTASGD, config(**changes), new_parameters())


@pytest.mark.parametrize(
    "changes, got",
    [
        ({"save_interval": 2}, "--save-interval 1; got 2"),
        ({"no_last_checkpoints": True}, "no --no-last-checkpoints"),
        ({"write_checkpoints_asynchronously": True}, "no --write-checkpoints-asynchronously"),
    ],
)
def test_stages_whose_best_models_could_not_be_kept_are_refused(changes, got):
    refused = config(no_save=False, finetune_stages=-1, **changes)
    assert_refused(f"--finetune-stages, .* needs {got}", NTASGD, refused, new_parameters())
    NTASGD(config(no_save=True, finetune_stages=-1, **changes), new_parameters())
    NTASGD(config(no_save=False, finetune_stages=0, **changes), new_parameters())


def test_without_validation_a_warning_is_given(caplog):
    NTASGD(config(), new_parameters())
    assert not caplog.text
    NTASGD(config(disable_validation=True), new_parameters())
    assert "averaging never starts" in caplog.text


def test_the_scheduler_finds_the_optimizer_under_amp_or_is_refused():
    other = FairseqOptimizer(SimpleNamespace(_name="adam"))
    other._optimizer = None
    assert_refused("needs --optimizer nt_asgd; got .*FairseqOptimizer", schedule, other)
    other.fp32_optimizer = NTASGD(config(), new_parameters())
    assert schedule(other).nt_asgd is other.fp32_optimizer


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
        stages.append(optimizer.stages.stage)
        assert scheduler.step_update(epoch) == optimizer.get_lr() == rates[-1]
        scheduler.step(epoch, None)  # an epoch without validation is not observed
        assert scheduler.state_dict() == schedule(optimizer).state_dict()  # as after a resume
    assert rates == [0.5] * 8 + [-7.0]
    assert averaging == [False] * 2 + [True] * 7
    assert stages == [-1, -1, 0, 0, 0, 1, 1, 1, 1]


def test_rate_and_weight_decay_may_change_on_a_resume_and_the_stages_are_restored():
    old = NTASGD(config(weight_decay=0.1), new_parameters())
    for epoch, loss in enumerate([3.0, 2.0, 4.0], 1):
        old.observe(epoch, loss)
    new = NTASGD(config(lr=[7.0], weight_decay=0.2), new_parameters())
    assert old.state_dict()["trigger"] == old.stages.state_dict()  # the key of checkpoints
    new.load_state_dict(old.state_dict())
    group = new.optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["averaging"]) == (7.0, 0.2, True)
    assert new.stages.state_dict() == old.stages.state_dict()
    assert new.stages.nonmono == 1
    new.load_state_dict(old.state_dict(), {"lr": 8.0})
    assert new.get_lr() == 8.0


def resumed_with_stages(epoch_loss, loss, losses=(3.0, 4.0)):
    """A run without stages saw ``losses``; a run with a stage resumes from its checkpoint."""
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
    assert optimizer.stages.best == optimizer.stages.stage_best == best
    with torch.no_grad():
        parameter.add_(1)
    optimizer.observe(4, 5.0)
    optimizer.observe(5, 6.0)
    assert optimizer.stages.stage == 1
    assert parameter.item() == 2.0


@pytest.mark.parametrize("epoch_loss, loss", [((3, 3.5), 3.5), (None, 3.5), (None, None)])
def test_stages_are_not_started_from_a_model_that_is_not_the_best(epoch_loss, loss):
    problem = "expected --restore-file .*checkpoint_best.pt"
    assert_refused(problem, resumed_with_stages, epoch_loss, loss)


def test_stages_may_be_asked_for_before_anything_was_validated():
    _, optimizer = resumed_with_stages(None, None, losses=())
    assert optimizer.stages.best == math.inf


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
            done.optimizer.optimizer.show(average=True)
            (folder / LAST_CHECKPOINT).write_text(f"epoch {epoch}")
        done.validated[epoch] = parameters[0].detach().clone()
        if epoch == save_at:  # fairseq saves before the loss is shown
            done.saved = copy.deepcopy((done.optimizer.state_dict(), done.validated[epoch]))
        done.optimizer.observe(epoch, loss, resumed)
        done.after[epoch] = parameters[0].detach().clone()
    return done


def stages_kept(folder):
    return {path.name: path.read_text() for path in folder.glob("checkpoint_best_stage*")}


@settings(max_examples=12)  # files take their time
@given(script=scripts(), stages=st.sampled_from([-1, -1, 1, 2]))
def test_a_stages_best_model_is_kept_and_the_next_stage_starts_from_the_best(
    tmp_path_factory, script, stages
):
    """Before the first fine-tuning stage everything is stage 0; a loss as good is not better."""
    nonmono, losses = script
    folder = tmp_path_factory.mktemp("run")
    cfg = config(save_dir=str(folder), no_save=False, nonmono=nonmono, finetune_stages=stages)
    done, steps = train(folder, enumerate(losses, 1), cfg), plan(losses, nonmono, stages)
    expected, stage = {}, 0  # {file: whose weights it holds}
    for epoch, of_epoch in enumerate(steps, 1):
        if "keep_best_of_stage" in of_epoch:
            expected[f"checkpoint_best_stage{stage}.pt"] = f"epoch {epoch}"
        stage += "restart" in of_epoch
        best = losses.index(min(losses[:epoch])) + 1  # the first of equal ones
        shown = done.validated[best if "restart" in of_epoch else epoch]
        assert_close(done.after[epoch], shown, rtol=0, atol=0)
    assert stages_kept(folder) == expected
    left = {path.name for path in folder.iterdir()}
    assert left == {*expected} | ({LAST_CHECKPOINT} if losses else set())


HAND = [9.0, 9.5, 8.0, 7.0, 7.5, 8.0, 6.0, 6.5, 6.5, 6.0, 6.1]  # n = 0; stages end at 5, 8, 11


@pytest.mark.parametrize("changes", [{"finetune_stages": 0}, {"no_save": True}])
def test_nothing_is_kept_without_stages_or_where_nothing_is_saved(tmp_path, changes):
    settings = {"no_save": False, "nonmono": 0, "finetune_stages": -1, **changes}
    train(tmp_path, enumerate(HAND, 1), config(save_dir=str(tmp_path), **settings))
    assert stages_kept(tmp_path) == {}


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("cut", range(1, len(HAND) + 1))
def test_a_run_saved_in_any_epoch_resumes_equally(tmp_path, cut, shown):
    """A checkpoint holds the state from before its epoch's loss, which is shown on the resume.
    ``shown``: the run was killed after it had been shown to it as well."""
    numbered = list(enumerate(HAND, 1))
    folder = tmp_path / "parts"
    folder.mkdir()
    settings = {"no_save": False, "nonmono": 0, "finetune_stages": -1}
    whole = train(tmp_path, numbered, config(save_dir=str(tmp_path), **settings))
    cfg = config(save_dir=str(folder), **settings)
    first = train(folder, numbered[:cut], cfg, save_at=cut)
    if not shown:
        for path in folder.glob("checkpoint_best_stage*"):
            if path.read_text() == f"epoch {cut}":
                path.unlink()
    second = train(folder, numbered[cut - 1 :], cfg, saved=first.saved)
    assert stages_kept(folder) == stages_kept(tmp_path)
    assert second.optimizer.stages.state_dict() == whole.optimizer.stages.state_dict()
    assert_close(second.after[len(HAND)], whole.after[len(HAND)], rtol=0, atol=0)


@pytest.mark.parametrize(
    "settings, files, expected",
    [
        ({}, [LAST_CHECKPOINT], LAST_CHECKPOINT),
        ({"restore_file": "other.pt"}, ["other.pt", LAST_CHECKPOINT], "other.pt"),
        ({"continue_once": "other.pt"}, ["other.pt"], "other.pt"),
        ({"continue_once": "other.pt"}, ["other.pt", LAST_CHECKPOINT], LAST_CHECKPOINT),
        ({"checkpoint_suffix": "-a"}, ["checkpoint_last-a.pt"], "checkpoint_last-a.pt"),
    ],
)
def test_the_resumed_epochs_model_is_the_file_that_was_restored(
    tmp_path, monkeypatch, settings, files, expected
):
    """Later ones are checkpoint_last.pt again. The folder of --save-dir need not exist: fairseq
    makes it when it first saves."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" if files == ["other.pt"] else tmp_path
    for name in files:
        (tmp_path / name).write_text(name)
    optimizer = NTASGD(
        config(no_save=False, finetune_stages=1, nonmono=0, save_dir=str(folder), **settings),
        new_parameters(),
    )
    suffix = optimizer.cfg.checkpoint_suffix
    optimizer.observe(7, 5.0, resumed=True)
    assert stages_kept(folder) == {f"checkpoint_best_stage0{suffix}.pt": expected}
    optimizer.observe(8, 5.0)  # as good is not better
    assert stages_kept(folder) == {f"checkpoint_best_stage0{suffix}.pt": expected}
    (folder / f"checkpoint_last{suffix}.pt").write_text("epoch 9")
    optimizer.observe(9, 4.0)
    assert stages_kept(folder) == {f"checkpoint_best_stage0{suffix}.pt": "epoch 9"}
