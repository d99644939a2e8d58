import re
import socket

import pytest
import torch
from conftest import evaluation, fail, start, training

NO_DROPOUT = " ".join(
    f"--{kind}-dropout 0" for kind in ("embed", "input", "hidden", "output", "component", "weight")
)
# A small rate: what rounding makes of the sums' order does not grow.
OPTIONS = f"--lr 1 --max-epoch 2 --doc-lambda 0.5 --log-interval 1 {NO_DROPOUT}"


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


@pytest.mark.parametrize("balance", ["paper", "published"])
def test_two_workers_give_the_losses_of_one(balance, corpus, tmp_path):
    options = f"{OPTIONS} --doc-balance {balance}"
    process = start(training(corpus.data, tmp_path / "one", f"{options} --batch-size 12"))
    one, _ = process.communicate(timeout=300)
    two = two_workers(corpus.data, tmp_path / "two", f"{options} --batch-size 6")
    assert len(losses(one)) > 50
    torch.testing.assert_close(losses(two), losses(one), rtol=2e-3, atol=2e-6)

    last_one, last_two = (
        torch.load(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("one", "two")
    )
    for name, tensor in last_one.items():
        torch.testing.assert_close(last_two[name], tensor, rtol=1e-3, atol=1e-4)


def test_two_workers_resume_in_mid_epoch(corpus, tmp_path):
    options = f"{OPTIONS} --batch-size 6 --save-interval-updates 10 --keep-interval-updates 9"
    two_workers(corpus.data, tmp_path / "a", options)
    middle = sorted((tmp_path / "a").glob("checkpoint_2_*.pt"))[0]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoint_last.pt").write_bytes(middle.read_bytes())
    two_workers(corpus.data, tmp_path / "b", options)
    a, b = (torch.load(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("a", "b"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_columns_that_leave_a_worker_without_its_share_are_an_error(corpus, trained):
    checkpoint = trained.folder / "checkpoint_last.pt"
    shards = "--gen-subset valid --num-shards 2 --shard-id 0 --batch-size 3"
    output = fail(evaluation(corpus.data, checkpoint, shards))
    assert "3 columns of split 'valid' leave a worker without its share" in output
