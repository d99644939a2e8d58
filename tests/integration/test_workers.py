"""Data-parallel training by two processes gives what one gives, and ends when one of them ends."""

import os
import re
import shutil
import textwrap
from types import SimpleNamespace

import pytest
import torch
import toy_language
from conftest import (
    BIN,
    PACKAGE,
    digest_of,
    doc,
    error_of,
    mid_epoch,
    run,
    run_here,
    shim,
    training,
    wait_until,
)
from worker_processes import free_port, of_srun, of_torchrun

NO_DROPOUT = " ".join(
    f"--{kind}-dropout 0" for kind in ("embed", "input", "hidden", "output", "component", "weight")
)
# At a small rate the rounding of another order of summation does not grow.
OPTIONS = f"--lr 1 --doc-lambda 0.5 --log-interval 1 {NO_DROPOUT}"
SHORT = f"{OPTIONS} --max-update 12"
STAGES = (
    f"{OPTIONS} --nonmono 0 --finetune-stages 1 --max-epoch 20 "
    "--save-interval-updates 4 --keep-interval-updates 99"
)
COLUMNS = 12


@pytest.fixture
def worker(server):
    """``worker(command, streams, **environment)``: a running command of fairseq; ended with the test."""
    started = []

    def start_worker(command, streams, **environment):
        running = server.start(command, streams.parent, streams, **environment)
        started.append(running)
        return running

    yield start_worker
    for running in started:
        running.kill()


@pytest.fixture
def start_two(worker):
    """Two workers with half the columns each, started with the environment of a launcher."""

    def start_workers(data, save_dir, options, environ=of_torchrun, **changes):
        save_dir.mkdir(parents=True, exist_ok=True)
        command = training(data, save_dir, f"{options} --batch-size {COLUMNS // 2}")
        port = free_port()
        if environ is of_torchrun:
            changes["port"] = port
        return [
            worker(command, save_dir / f"streams{rank}", **environ(rank, **changes))
            for rank in range(2)
        ]

    return start_workers


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A text whose validation loss rises with every epoch, by much: its word is rare in training. So
    averaging starts after epoch 2, fine-tuning after 4, and training ends after 6."""
    folder = tmp_path_factory.mktemp("rising")
    toy_language.write_corpus(folder / "text", train=4_000, valid=600, test=600)
    train, valid = folder / "text" / "train.txt", folder / "text" / "valid.txt"
    train.write_text("rare\n" + train.read_text())
    valid.write_text("rare w1 rare w1 rare w1\n" * 100)
    doc("prepare-lm", "text", folder / "text", folder / "bin")
    return folder / "bin"


def one_worker(data, save_dir, options):
    return run_here(training(data, save_dir, f"{options} --batch-size {COLUMNS}"))


def ended_well(workers):
    """The output of the first worker."""
    for worker in workers:
        assert worker.wait().status == 0, worker.wait().err[-3000:]
    return output_of(workers[0])


def output_of(worker):
    """Both its streams, when it has ended."""
    result = worker.wait()
    return result.out + result.err


def updates(output):
    """The objective, beta and the gradient's norm at every update."""
    rows = re.findall(
        r"train_inner .*? loss=([\d.]+).*?balance=([\d.e-]+).*?gnorm=([\d.]+)", output
    )
    return torch.tensor([[float(x) for x in row] for row in rows])


def validations(output):
    return torch.tensor(
        [float(x) for x in re.findall(r"\| valid \| .*? nll_loss ([\d.]+)", output)]
    )


def assert_same_losses(output, expected):
    assert len(updates(output)) >= 12
    for part in (updates, validations):
        torch.testing.assert_close(part(output), part(expected), rtol=2e-3, atol=2e-6)


def assert_same_checkpoint(path, expected):
    """Equal but for rounding: the weights, raw, averaged and best; equal: the stages."""
    ours, theirs = torch.load(path), torch.load(expected)
    assert ours["model"].keys() == theirs["model"].keys()
    for name, tensor in theirs["model"].items():
        torch.testing.assert_close(ours["model"][name], tensor, rtol=1e-3, atol=1e-4)
    ours, theirs = ours["last_optimizer_state"], theirs["last_optimizer_state"]
    for name, value in theirs["trigger"].items():
        assert ours["trigger"][name] == pytest.approx(value, rel=1e-3), name
    for index, tensors in theirs["state"].items():
        assert ours["state"][index].keys() == tensors.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(ours["state"][index][name], tensor, rtol=1e-3, atol=1e-4)


# What one worker gives


@pytest.fixture(scope="module")
def one(data, tmp_path_factory):
    """One worker through SGD, averaging and a fine-tuning stage, with checkpoints in mid-epoch."""
    folder = tmp_path_factory.mktemp("one")
    return SimpleNamespace(folder=folder, output=one_worker(data, folder, STAGES))


def test_two_workers_give_the_stages_of_one(start_two, one, data, tmp_path):
    output = ended_well(start_two(data, tmp_path, STAGES))
    assert_same_losses(output, one.output)
    names = ("last", "best", "best_stage0", "best_stage1")
    assert "fine-tuning ends" in one.output
    for name in names:
        assert_same_checkpoint(
            tmp_path / f"checkpoint_{name}.pt", one.folder / f"checkpoint_{name}.pt"
        )


def test_another_number_of_workers_resumes_in_mid_epoch(start_two, one, data, tmp_path):
    """One worker in SGD, then two, then one from within averaging to the end."""
    two_from_sgd, one_from_averaging = tmp_path / "two", tmp_path / "one"
    two_from_sgd.mkdir()
    shutil.copy(mid_epoch(one.folder, -1), two_from_sgd / "checkpoint_last.pt")
    ended_well(start_two(data, two_from_sgd, STAGES))
    one_from_averaging.mkdir()
    shutil.copy(mid_epoch(two_from_sgd, 0), one_from_averaging / "checkpoint_last.pt")
    one_worker(data, one_from_averaging, STAGES)
    for folder in (two_from_sgd, one_from_averaging):
        for name in ("checkpoint_last.pt", "checkpoint_best_stage1.pt"):
            assert_same_checkpoint(folder / name, one.folder / name)


def test_two_workers_resume_to_the_same_bits(start_two, data, tmp_path):
    ended_well(start_two(data, tmp_path / "a", f"{SHORT} --save-interval-updates 5"))
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a" / "checkpoint_1_5.pt", tmp_path / "b" / "checkpoint_last.pt")
    ended_well(start_two(data, tmp_path / "b", SHORT))
    one, other = (torch.load(tmp_path / name / "checkpoint_last.pt")["model"] for name in "ab")
    assert digest_of(one) == digest_of(other)


def test_two_workers_give_the_papers_balance_of_one(start_two, data, tmp_path):
    """With a data worker each, too."""
    options = f"{SHORT} --doc-balance paper --num-workers 1"
    output = ended_well(start_two(data, tmp_path / "two", options))
    assert_same_losses(output, one_worker(data, tmp_path / "one", f"{options} --num-workers 0"))


def test_data_workers_give_the_losses_of_none(worker, one, data, tmp_path):
    command = training(data, tmp_path, f"{SHORT} --num-workers 2 --batch-size {COLUMNS}")
    output = ended_well([worker(command, tmp_path / "streams")])
    assert torch.equal(updates(output), updates(one.output)[:12])


# How they are started


def test_srun_starts_workers(start_two, one, data, tmp_path):
    """Two tasks on two machines; the list of machines is read by a scontrol that knows them."""
    shim(tmp_path, "scontrol", '[ "$*" = "show hostnames node[1-2]" ] && echo localhost node2')
    path = f"{tmp_path}:{os.environ['PATH']}"
    options = f"{SHORT} --distributed-port {free_port()}"

    def environ(rank):
        return {**of_srun(rank, nodes="node[1-2]"), "PATH": path}

    output = ended_well(start_two(data, tmp_path / "two", options, environ))
    torch.testing.assert_close(updates(output), updates(one.output)[:12], rtol=2e-3, atol=2e-6)


def test_fairseq_hydra_train_joins_the_workers(worker, data, tmp_path):
    """It imports this package only after fairseq has chosen how many workers there are."""
    settings = f"""
        common: {{user_dir: {PACKAGE}, cpu: true}}
        task: {{_name: bptt_language_modeling, data: {data}}}
        model: {{_name: lstm_doc_lm, doc_components: "0,1,2", layer_dims: "24,20"}}
        criterion: {{_name: doc_cross_entropy}}
        optimizer: {{_name: nt_asgd}}
        lr_scheduler: {{_name: nt_asgd}}
        optimization: {{lr: [20.0], max_update: 3}}
        dataset: {{batch_size: 4, batch_size_valid: 4, num_workers: 0}}
        checkpoint: {{save_dir: {tmp_path}/checkpoints}}
        hydra: {{run: {{dir: {tmp_path}}}}}
    """
    (tmp_path / "run.yaml").write_text(textwrap.dedent(settings))
    words = ["fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "run"]
    port = free_port()
    workers = [worker(words, tmp_path / f"{r}", **of_torchrun(r, port=port)) for r in range(2)]
    output = ended_well(workers)
    assert "training on 2 devices" in output and "in 8 columns" in output
    assert torch.load(tmp_path / "checkpoints" / "checkpoint_last.pt")["model"]


# How they end


def test_a_killed_worker_ends_the_other(worker, data, tmp_path):
    """One command a worker, with a method to meet."""
    meeting = (
        f"--distributed-world-size 2 --distributed-init-method tcp://127.0.0.1:{free_port()} "
        "--max-epoch 300"
    )
    command = training(data, tmp_path, f"{OPTIONS} {meeting} --batch-size 6")
    workers = [
        worker(f"{command} --distributed-rank {rank}", tmp_path / f"output{rank}")
        for rank in range(2)
    ]
    wait_until((tmp_path / "checkpoint_last.pt").exists)
    workers[0].kill()
    assert workers[1].wait().status == 1
    assert "another worker ended" in error_of(output_of(workers[1]))


def test_torchrun_starts_workers(one, data, tmp_path):
    program, _, options = training(data, tmp_path, f"{SHORT} --batch-size 6").partition(" ")
    output = run(f"torchrun --nproc-per-node 2 {BIN / program} {options}")
    torch.testing.assert_close(updates(output)[:9], updates(one.output)[:9], rtol=2e-3, atol=2e-6)
    assert "training on 2 devices" in output


def test_a_worker_does_not_wait_for_one_that_never_comes(worker, data, tmp_path):
    """Neither the first, where the others meet, nor another one."""
    alone = [
        worker(
            training(data, tmp_path, SHORT),
            tmp_path / f"output{rank}",
            **of_torchrun(rank, port=free_port()),
            FAIRSEQ_DOC_RENDEZVOUS_TIMEOUT="1",
        )
        for rank in range(2)
    ]
    for lonely in alone:
        assert lonely.wait().status == 1
        assert "did not start in time" in error_of(output_of(lonely))
