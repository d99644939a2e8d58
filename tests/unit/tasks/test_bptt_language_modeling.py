import argparse
from datetime import timedelta
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from conftest import assert_refused
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.criterions.doc_cross_entropy import DocCrossEntropyConfig, DocCrossEntropyCriterion
from fairseq_doc.data.bptt_stream import TokenStream, draw_lengths, endless_columns
from fairseq_doc.optim.nt_asgd import NTASGD
from fairseq_doc.tasks import bptt_language_modeling
from fairseq_doc.tasks.bptt_language_modeling import (
    NOT_OF_THIS_TASK,
    BpttLanguageModelingConfig,
    BpttLanguageModelingTask,
)

from ..conftest import assert_close, config_of, small_dictionary, small_model, write_split
from ..optim.runs import config as nt_asgd_config

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory':UserWarning")


def config(**changes):
    settings = {"data": "none", "bptt": 7, "max_length_delta": 3, "eval_window": 12}
    settings["tokens_per_sample"] = 7
    return config_of(BpttLanguageModelingConfig, **{**settings, **changes})


def task(**changes):
    return BpttLanguageModelingTask(config(**changes), small_dictionary())


def stream(n=200, split="train"):
    """Tokens that are their own positions modulo 16, without fairseq's four symbols."""
    return TokenStream(4 + torch.arange(n) % 16, split)


def criterion(it):
    return DocCrossEntropyCriterion(it, config_of(DocCrossEntropyConfig))


def batches(it, data=None, columns=2, shards=1, shard=0, epoch=1):
    """A worker's batches of an epoch; ``columns``: of one worker in training, of all elsewhere."""
    iterator = it.get_batch_iterator(
        stream() if data is None else data,
        max_sentences=columns,
        num_shards=shards,
        shard_id=shard,
        epoch=epoch,
    )
    return list(iterator.next_epoch_itr(shuffle=False))


def side_by_side(windows, key="target"):
    values = [w["net_input"][key] if key != "target" else w[key] for w in windows]
    return torch.cat(values, dim=1)


@pytest.fixture
def trained():
    """A task that trains a small model with averaging, two columns, and its windows."""
    it = task()
    model = small_model()
    optimizer = NTASGD(nt_asgd_config(nonmono=0), model.parameters())
    loss = criterion(it)
    it._model = model
    windows = batches(it)

    def step(window):
        it.train_step(window, model, loss, optimizer, 1)

    def update(window):
        optimizer.zero_grad()
        step(window)
        it.optimizer_step(optimizer, model, 1)

    made = {"task": it, "model": model, "optimizer": optimizer, "loss": loss, "windows": windows}
    return SimpleNamespace(**made, step=step, update=update)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"bptt": 0}, "bptt must be at least 1; got 0"),
        ({"updates_per_epoch": 5, "data": "a:b"}, "needs a single data folder; got a:b"),
        ({"updates_per_epoch": 5, "update_freq": [1, 2]}, "needs a single --update-freq; got 1,2"),
        ({"updates_per_epoch": 5, "partial_shuffle": True}, "no --partial-shuffle"),
        ({"context_window": 5}, "--context-window 0; got 5"),
        ({"valid_subset": "valid,train"}, "--train-subset; got valid,train"),
        ({"data": "/nowhere"}, "cannot read /nowhere/dict.txt"),
    ],
)
def test_options_that_cannot_be_honoured(changes, problem):
    assert_refused(problem, BpttLanguageModelingTask.setup_task, config(**changes))


@pytest.mark.parametrize("name", NOT_OF_THIS_TASK)
def test_options_of_fairseqs_task_are_refused(name):
    parser = argparse.ArgumentParser()
    BpttLanguageModelingTask.add_args(parser)
    assert parser.parse_args(["data"]).bptt == 70
    assert_refused(f"--{name} ", parser.parse_args, ["data", f"--{name}", "9"])


def test_setup_reads_the_first_folders_dictionary_and_epochs_rotate_the_folders(tmp_path):
    for name, line in (("a", [5, 6, 2]), ("b", [7, 8, 9, 2])):
        (tmp_path / name).mkdir()
        write_split(tmp_path / name, "train", [line])
    small_dictionary().save(str(tmp_path / "a" / "dict.txt"))
    it = BpttLanguageModelingTask.setup_task(config(data=f"{tmp_path}/a:{tmp_path}/b"))
    assert it.source_dictionary == it.target_dictionary == small_dictionary()
    for epoch, expected in ((1, [5, 6, 2]), (2, [7, 8, 9, 2]), (3, [5, 6, 2])):
        it.load_dataset("train", epoch)
        assert it.datasets["train"].tokens.tolist() == expected


def test_an_architecture_that_carries_no_state_is_refused(monkeypatch):
    model = small_model()
    monkeypatch.setattr(FairseqTask, "build_model", lambda self, cfg, from_checkpoint: model)
    assert task().build_model(SimpleNamespace(_name="lstm_doc_lm")) is model
    model = torch.nn.Linear(2, 2)
    assert_refused(
        "got transformer_lm", task().build_model, SimpleNamespace(_name="transformer_lm")
    )


@given(
    n=st.integers(20, 400),
    share=st.integers(1, 3),
    workers=st.integers(1, 3),
    split=st.sampled_from(["train", "valid"]),
)
def test_all_workers_windows_score_every_position_once(n, share, workers, split):
    data, it = stream(n, split), task()
    n_columns = share * workers
    given_size = share if split == "train" else n_columns  # a worker's columns, or all
    parts = [batches(it, data, given_size, workers, shard) for shard in range(workers)]
    columns = data.tokens[: n // n_columns * n_columns].view(n_columns, -1)
    assert torch.equal(torch.cat([side_by_side(p) for p in parts]), columns[:, 1:])
    sources = torch.cat([side_by_side(p, "src_tokens") for p in parts])
    assert torch.equal(sources, columns[:, :-1])
    for windows in zip(*parts, strict=True):  # in step, so that the workers' updates agree
        assert len({w["target"].size(1) for w in windows}) == 1
        ids = torch.cat([w["id"] for w in windows])
        assert len(ids.unique()) == n_columns


def test_training_windows_have_the_drawn_lengths_of_seed_and_epoch():
    for seed, epoch in ((1, 1), (1, 2), (5, 1)):
        windows = batches(task(seed=seed), epoch=epoch)
        drawn = draw_lengths(99, 7, 3, seed, epoch)
        assert [w["drawn_length"] for w in windows] == drawn
        assert [w["net_input"]["window"] for w in windows] == list(range(len(drawn)))
        assert [w["target"].size(1) for w in windows[:-1]] == drawn[:-1]


@pytest.mark.parametrize("n_columns, length", [(1, 12), (5, 2), (20, 1)])
def test_evaluation_windows_hold_eval_window_tokens_over_all_columns(n_columns, length):
    it, data = task(), stream(split="valid")
    loaders = [
        batches(it, data, n_columns),
        list(it.eval_lm_dataloader(data, batch_size=n_columns)),
    ]
    for windows in loaders:
        assert {w["target"].size(1) for w in windows[:-1]} == {length}
        assert torch.equal(side_by_side(windows), data.tokens.view(n_columns, -1)[:, 1:])


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"max_sentences": None}, "needs --batch-size, .*; got --batch-size None"),
        ({"max_sentences": 2, "max_tokens": 100}, "got --batch-size 2, 100 tokens"),
        ({"max_sentences": 2, "skip_remainder_batch": True}, "no --skip-remainder-batch"),
    ],
)
def test_batches_that_are_no_columns(settings, problem):
    assert_refused(problem, task().get_batch_iterator, stream(), **settings)


def test_evaluation_columns_must_divide_over_the_workers():
    problem = "split 'valid': .* multiple of the number of workers, 3; got 10; give another --batch"
    data, it = stream(split="valid"), task()
    assert_refused(problem, it.get_batch_iterator, data, max_sentences=10, num_shards=3)
    assert_refused(problem, it.eval_lm_dataloader, data, batch_size=10, num_shards=3)


def recording_optimizer():
    """An optimizer with the rate 20, and a list of the rates at which steps were taken."""
    optimizer, taken = NTASGD(nt_asgd_config(lr=[20.0]), small_model().parameters()), []
    optimizer.step = lambda: taken.append(optimizer.get_lr())
    return optimizer, taken


@pytest.mark.parametrize("groups", [[[10]], [[7], [3], [14]], [[5, 9], [7, 7]]])
def test_a_step_is_taken_at_the_rate_times_the_mean_drawn_length_over_bptt(groups):
    it, (optimizer, taken) = task(bptt=7), recording_optimizer()
    it._model = small_model()
    for lengths in groups:
        it._drawn_lengths += lengths
        it.optimizer_step(optimizer, it._model, 1)
        assert optimizer.get_lr() == 20.0
    assert_close(taken, [20.0 * sum(g) / len(g) / 7 for g in groups])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_window_that_does_not_fit_into_memory(trained, monkeypatch, workers):
    """One worker leaves the update out. Several make it, at the rate that all of them have."""
    optimizer, taken = recording_optimizer()
    monkeypatch.setattr(trained.task.cfg, "update_freq", [3])
    trained.step(trained.windows[0])
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="out of memory"):
        patch.setattr(trained.loss, "forward", mock.Mock(side_effect=RuntimeError("out of memory")))
        patch.setattr(distributed_utils, "get_data_parallel_world_size", lambda: workers)
        trained.step(trained.windows[1])
    trained.step(trained.windows[2])
    trained.task.optimizer_step(optimizer, trained.model, 2)
    lengths = [trained.windows[k]["drawn_length"] for k in ([0, 1, 2] if workers == 2 else [2])]
    assert_close(taken, [20.0 * sum(lengths) / len(lengths) / 7])


@pytest.mark.parametrize("update_freq, counted", [([1], 1), ([1, 2], 2)])
def test_the_rate_follows_the_windows_of_its_own_update(trained, monkeypatch, update_freq, counted):
    """With --fp16 a gradient that overflows ends an update before the optimizer's step: its window
    does not count. ``--update-freq`` may differ by epoch."""
    monkeypatch.setattr(trained.task.cfg, "update_freq", update_freq)
    for epoch in (2, 3):
        trained.task.begin_epoch(epoch, trained.model)
        optimizer, taken = recording_optimizer()
        for window in trained.windows[:2]:
            trained.step(window)
        trained.task.optimizer_step(optimizer, trained.model, 2)
        lengths = [window["drawn_length"] for window in trained.windows[2 - counted : 2]]
        assert_close(taken, [20.0 * sum(lengths) / counted / 7])


def test_training_steps_start_from_the_raw_weights_and_validation_shows_the_average(trained):
    weight = trained.model.decoder.embedding
    trained.optimizer.optimizer.start_averaging()
    raw = []
    for window in trained.windows[:3]:
        trained.update(window)
        raw.append(weight.detach().clone())
        trained.task.begin_valid_epoch(1, trained.model)
    average = (raw[1] + raw[2]) / 2  # torch's ASGD leaves the first iterate out
    assert_close(weight.detach(), average)
    trained.step(trained.windows[3])
    assert_close(weight.detach(), raw[2])


def state_of(it):
    state = it.get_checkpoint_dict()
    assert list(state) == ["BpttLanguageModelingTask"]
    return state["BpttLanguageModelingTask"]


def resumed(state, data=None, columns=2, **changes):
    other = task(**changes)
    other._model = small_model()
    batches(other, data, columns)
    other.set_checkpoint_dict(state)
    return other


def test_in_mid_epoch_the_carried_state_is_saved_and_taken_up(trained):
    trained.update(trained.windows[0])
    state, carried = state_of(trained.task), trained.model.decoder.carried_state()
    assert state["epoch_loss"] is None
    again = resumed(state)
    assert_close(again._model.decoder.carried_state(), carried, rtol=0, atol=0)
    again._windows_done = 1  # with --fp16 fairseq may skip the next update and save
    assert_close(state_of(again)["carried"], carried, rtol=0, atol=0)


def test_endless_columns_go_on_at_an_epochs_end():
    """Epochs of 4 updates of 2 windows: windows count on, tokens follow, and the state is saved and
    taken up."""
    it = task(updates_per_epoch=4, update_freq=[2])
    it._model = model = small_model()
    optimizer, loss = NTASGD(nt_asgd_config(), model.parameters()), criterion(it)
    columns, expected = [], endless_columns(stream(), 2, 0, 2 * 8 * 7, 1, 2)
    for epoch in (1, 2):
        windows = batches(it, epoch=epoch)
        assert [w["net_input"]["window"] for w in windows] == list(range(8 * epoch - 8, 8 * epoch))
        assert {w["drawn_length"] for w in windows} == {7}
        columns.append(side_by_side(windows))
        for window in windows:
            it.train_step(window, model, loss, optimizer, 1)
            it.optimizer_step(optimizer, model, 1)
        state = state_of(it)
        assert_close(state["carried"], model.decoder.carried_state(), rtol=0, atol=0)
        other = task(updates_per_epoch=4, update_freq=[2])
        other._model = small_model()
        following = batches(other, epoch=epoch + 1)
        other.set_checkpoint_dict(state)
        # Window 8 or 16, from the state of the window before.
        other._model.decoder(**following[0]["net_input"])
    assert torch.equal(torch.cat(columns, dim=1), expected[:, 1:])


def targets(shards=1, shard=0, split="train", epoch=5, **changes):
    columns = 4 // shards if split == "train" else 4
    return side_by_side(
        batches(task(**changes), stream(split=split), columns, shards, shard, epoch)
    )


@pytest.mark.parametrize("changes", [{"updates_per_epoch": 3}, {"partial_shuffle": True}])
def test_columns_of_workers_are_those_of_one(changes):
    of_workers = [targets(2, shard, **changes) for shard in (0, 1)]
    assert torch.equal(torch.cat(of_workers), targets(**changes))


def test_partial_shuffling_rotates_training_columns():
    shuffled, other = targets(partial_shuffle=True), targets(partial_shuffle=True, epoch=6)
    assert not torch.equal(shuffled, targets()) and not torch.equal(shuffled, other)
    assert torch.equal(targets(split="valid", partial_shuffle=True), targets(split="valid"))


def test_at_an_epochs_end_its_loss_is_saved_and_is_observed_on_a_resume(trained):
    it = trained.task
    for window in trained.windows:
        trained.update(window)
    it.begin_valid_epoch(1, trained.model)
    it.post_validate(trained.model, {"loss": 4.5}, None)
    it.post_validate(trained.model, {"loss": 9.5}, None)  # a second validation subset
    state = state_of(it)
    assert state["carried"] is None
    assert state["epoch_loss"] == [1, 4.5]
    assert trained.optimizer.stages.losses == []
    it.set_checkpoint_dict(state)
    it.set_checkpoint_dict(state)
    assert trained.optimizer.stages.losses == [4.5]


def test_the_time_left_is_that_of_the_epochs_left(trained, monkeypatch, caplog):
    clock = iter([0.0, 2.0 * len(trained.windows)])
    monkeypatch.setattr(bptt_language_modeling.time, "monotonic", lambda: next(clock))
    trained.task.cfg.max_epoch = 3
    with caplog.at_level("INFO"):
        trained.task.begin_epoch(1, trained.model)
        assert not caplog.messages
        for window in trained.windows:
            trained.update(window)
        trained.task.begin_epoch(2, trained.model)
    seconds = 2 * 2 * len(trained.windows)  # two epochs of windows of two seconds each
    assert "epoch 2 of 3 begins" in caplog.messages[-1]
    assert f"{timedelta(seconds=seconds)} left" in caplog.messages[-1]


@pytest.mark.parametrize(
    "changes, n, columns, problem",
    [
        ({"seed": 2}, 200, 2, "'seed': 1"),
        ({"max_length_delta": 4}, 200, 2, "'max_length_delta': 3"),
        ({"partial_shuffle": True}, 200, 2, "'partial_shuffle': False"),
        ({}, 200, 3, "'columns': 2"),
        ({}, 199, 2, "'tokens': 200"),
    ],
)
def test_a_resume_in_mid_epoch_with_other_windows_is_refused(trained, changes, n, columns, problem):
    trained.update(trained.windows[0])
    state = state_of(trained.task)
    assert_refused(f"within an epoch: .*{problem}", resumed, state, stream(n), columns, **changes)
