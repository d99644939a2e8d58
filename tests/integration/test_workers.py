"""Data-parallel training by two processes."""

import re
import shutil
import socket
from types import SimpleNamespace

import pytest
import torch
from conftest import evaluation, fail_here, run_here, start, training

NO_DROPOUT = " ".join(
    f"--{kind}-dropout 0" for kind in ("embed", "input", "hidden", "output", "component", "weight")
)
# At a small rate the rounding of another order of summation does not grow.
OPTIONS = f"--lr 1 --max-epoch 2 --doc-lambda 0.5 --log-interval 1 {NO_DROPOUT}"
SAVING = f"{OPTIONS} --batch-size 6 --save-interval-updates 10 --keep-interval-updates 9"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_workers(data, save_dir, options):
    """Two gloo processes on the CPU; the output of the first."""
    distributed = (
        "--distributed-backend gloo --ddp-backend legacy_ddp --distributed-world-size 2 "
        f"--distributed-init-method tcp://127.0.0.1:{free_port()} --distributed-no-spawn"
    )
    processes = [
        start(training(data, save_dir, f"{options} {distributed} --distributed-rank {rank}"))
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(
        o[-2500:] for o in outputs
    )
    return outputs[0]


def losses(output):
    """The objective, beta and the gradient's norm at every update, and every validation loss."""
    inner = re.findall(
        r"train_inner .*? loss=([\d.]+).*?balance=([\d.e-]+).*?gnorm=([\d.]+)", output
    )
    valid = re.findall(r"\| valid \| .*? nll_loss ([\d.]+)", output)
    return torch.tensor([float(x) for row in inner for x in row] + [float(v) for v in valid])


@pytest.fixture(scope="module")
def two(corpus, tmp_path_factory):
    """Two workers, with checkpoints in mid-epoch; --doc-balance published."""
    folder = tmp_path_factory.mktemp("two")
    return SimpleNamespace(folder=folder, output=two_workers(corpus.data, folder, SAVING))


def assert_like_one_worker(folder, output, corpus, tmp_path, options=""):
    one = run_here(training(corpus.data, tmp_path / "one", f"{SAVING} {options} --batch-size 12"))
    assert len(losses(one)) > 50
    torch.testing.assert_close(losses(output), losses(one), rtol=2e-3, atol=2e-6)
    model = torch.load(folder / "checkpoint_last.pt")["model"]
    for name, tensor in torch.load(tmp_path / "one" / "checkpoint_last.pt")["model"].items():
        torch.testing.assert_close(model[name], tensor, rtol=1e-3, atol=1e-4)


def test_two_workers_give_the_losses_of_one(two, corpus, tmp_path):
    assert_like_one_worker(two.folder, two.output, corpus, tmp_path)


def test_two_workers_give_the_losses_of_one_with_the_papers_balance(corpus, tmp_path):
    output = two_workers(corpus.data, tmp_path / "two", f"{SAVING} --doc-balance paper")
    assert_like_one_worker(tmp_path / "two", output, corpus, tmp_path, "--doc-balance paper")


def test_two_workers_resume_in_mid_epoch(two, corpus, tmp_path):
    middle = sorted(two.folder.glob("checkpoint_2_*.pt"))[0]
    shutil.copy(middle, tmp_path / "checkpoint_last.pt")
    two_workers(corpus.data, tmp_path, SAVING)
    resumed = torch.load(tmp_path / "checkpoint_last.pt")["model"]
    for name, tensor in torch.load(two.folder / "checkpoint_last.pt")["model"].items():
        assert torch.equal(resumed[name], tensor), name


def test_columns_that_leave_a_worker_without_its_share_are_an_error(corpus, trained):
    checkpoint = trained.folder / "checkpoint_last.pt"
    shards = "--gen-subset valid --num-shards 2 --shard-id 0 --batch-size 3"
    output = fail_here(evaluation(corpus.data, checkpoint, shards))
    assert "3 columns of split 'valid' do not divide over the workers" in output
