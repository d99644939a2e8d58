import re
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from conftest import refusal
from omegaconf import OmegaConf
from worker_processes import of_srun, of_torchrun

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import launchers
from fairseq_doc.fairseq_patches.launchers import explanation, place_of, prepare

FAIRSEQ = {
    "distributed_world_size": 1,
    "distributed_rank": 0,
    "distributed_backend": "nccl",
    "distributed_init_method": None,
    "distributed_port": -1,
    "device_id": 0,
    "distributed_no_spawn": False,
    "ddp_backend": "pytorch_ddp",
    "pipeline_model_parallel": False,
}


COMMON = {"cpu": True, "tpu": False, "fp16": False, "bf16": False, "amp": False}


def prepared(environ, matmul_precision="float32", **options):
    """What is changed in fairseq's settings."""
    common = SimpleNamespace(**{name: options.pop(name, COMMON[name]) for name in COMMON})
    settings = SimpleNamespace(**{**FAIRSEQ, **options})
    model = SimpleNamespace(matmul_precision=matmul_precision)
    cfg = SimpleNamespace(common=common, distributed_training=settings, model=model)
    prepare(cfg, environ)
    return {k: v for k, v in vars(settings).items() if v != FAIRSEQ[k]}


@pytest.fixture
def gpus(monkeypatch):
    """``gpus(n)``: a machine that says that it has n."""

    def pretend(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)

    return pretend


ON_CPU = {
    "distributed_no_spawn": True,
    "distributed_backend": "gloo",
    "ddp_backend": "legacy_ddp",
}


# Places


def test_torchrun_and_srun_say_where_a_process_is():
    place = place_of({**of_torchrun(5, 8, 29500), "LOCAL_RANK": "1"})
    assert (place.launcher, place.rank, place.workers, place.local_rank) == ("torchrun", 5, 8, 1)
    place = place_of({**of_srun(3, 4, "node7"), "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "1"})
    assert (place.launcher, place.rank, place.workers, place.local_rank) == ("srun", 3, 4, 1)
    assert place.per_machine == 2 and place.init_method.startswith("tcp://node7:")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "1", "WORLD_SIZE": "2"},  # without an address: not torchrun's
        of_torchrun(0, 1, 29500),
        of_srun(0, 1),
        # The script of sbatch, which starts nothing by itself.
        {"SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
    ],
)
def test_a_process_without_others_has_no_place(environ):
    assert place_of(environ) is None
    assert prepared(environ) == {}


def test_tasks_of_a_step_meet_at_one_port():
    methods = {
        place_of({**of_srun(rank), "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}).init_method
        for rank in range(2)
    }
    (method,) = methods
    assert 10_000 <= int(method.rpartition(":")[2]) < 30_000
    assert place_of(of_srun(0), port=1234).init_method == "tcp://localhost:1234"


def test_scontrol_reads_a_list_of_machines(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    listed = of_srun(1, nodes="node[3-4]")
    assert "expected `scontrol show hostnames` to name its machines" in refusal(place_of, listed)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "$1-$2-$3"; echo node4\n')
    scontrol.chmod(0o755)
    assert place_of(listed, 99).init_method == "tcp://show-hostnames-node[3-4]:99"


def test_an_environment_that_is_no_launchers_is_refused():
    message = refusal(place_of, {**of_torchrun(0, 2, 1), "WORLD_SIZE": "two"})
    assert "WORLD_SIZE, which a launcher sets: expected a number; got 'two'" in message
    assert "got none" in refusal(
        place_of, {"SLURM_STEP_NODELIST": "n1", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}
    )


# Settings


def test_torchrun_on_the_cpu(gpus):
    expected = {
        "distributed_init_method": "env://",
        "distributed_world_size": 2,
        "distributed_rank": 1,
        **ON_CPU,
    }
    environ = of_torchrun(1, 2, 29500)
    for count in (0, 4):
        gpus(count)
        found = prepared(environ, distributed_world_size=max(1, count))
        assert found == expected
    assert prepared(environ, distributed_init_method="env://") == expected


def test_torchrun_on_gpus_is_fairseqs(gpus):
    gpus(4)
    environ = {**of_torchrun(6, 8, 29500), "LOCAL_RANK": "2"}
    assert prepared(environ, cpu=False, distributed_world_size=4) == {
        "distributed_init_method": "env://",
        "distributed_world_size": 8,
        "distributed_rank": 6,
        "distributed_no_spawn": True,
        "device_id": 2,
    }


def test_srun_with_a_task_a_gpu_or_a_task_a_machine(gpus):
    gpus(2)
    environ = {
        **of_srun(3, 4, "n1"),
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_LOCALID": "1",
    }
    found = prepared(environ, cpu=False, distributed_world_size=2, distributed_port=7)
    assert found == {
        "distributed_init_method": "tcp://n1:7",
        "distributed_world_size": 4,
        "distributed_rank": 3,
        "distributed_no_spawn": True,
        "distributed_port": 7,
        "device_id": 1,
    }
    # A task a machine: fairseq reads Slurm's environment itself, if it knows a port.
    found = prepared(of_srun(1, 2, "n1"), cpu=False, distributed_world_size=2)
    assert found.keys() == {"distributed_world_size", "distributed_port"}


def test_one_command_a_worker_on_the_cpu():
    method = "tcp://127.0.0.1:29500"
    found = prepared({}, distributed_init_method=method, distributed_world_size=2)
    assert found == {
        "distributed_init_method": method,
        "distributed_world_size": 2,
        **ON_CPU,
    }
    other = prepared(
        {}, distributed_init_method=method, distributed_backend="mpi", ddp_backend="slowmo"
    )
    assert (other["distributed_backend"], other["ddp_backend"]) == ("mpi", "slowmo")


def test_several_workers_on_the_cpu_need_a_launcher(gpus):
    message = refusal(prepared, {}, distributed_world_size=2)
    assert "torchrun --nproc-per-node 2 $(which fairseq-train)" in message
    gpus(8)  # whose number is fairseq's default
    assert prepared({}, distributed_world_size=8) == {}
    assert prepared({}, cpu=False, distributed_world_size=8) == {"distributed_world_size": 8}


def test_a_world_size_that_is_not_the_launchers_is_refused():
    message = refusal(prepared, of_torchrun(0, 2, 29500), distributed_world_size=3)
    assert "expected 2, the processes that torchrun started" in message and "got 3" in message


# Commands


@pytest.mark.parametrize(
    "program", ["/bin/fairseq-eval-lm", "fairseq_cli/interactive.py", "fairseq-generate"]
)
def test_a_command_that_runs_in_one_process_refuses_copies(program, monkeypatch):
    launchers._refuse_copies([program])
    for name, value in of_torchrun(0, 2, 29500).items():
        monkeypatch.setenv(name, value)
    launchers._refuse_copies(["fairseq-train"])
    assert "runs in one process: torchrun started 2" in refusal(launchers._refuse_copies, [program])
    launchers._refuse_copies([program, "--num-shards", "2"])  # each its share


@pytest.mark.parametrize("environ", [of_torchrun(0, 2, 29500), of_srun(0, 2, "node7")])
def test_a_launcher_can_be_ignored(environ):
    assert place_of(environ) is not None
    assert place_of({**environ, launchers.ALONE: "none"}) is None


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({}, None),
        ({"task": {"data": "/disk2/bin", "bptt": 70}}, None),
        ({"task": {"data": "bin", "bptt": 35}}, "worker 0 has task.bptt '70', worker 1 '35'"),
        ({"common": {"seed": 2}}, "worker 0 has common.seed '1', worker 1 '2'"),
        ({"checkpoint": {"save_dir": "b"}}, "worker 0 has checkpoint.save_dir 'a', worker 1 'b'"),
    ],
)
def test_independent_trainings_are_not_joined(changes, problem, monkeypatch):
    """srun starts a search over seeds like the workers of one training."""
    settings = {
        "common": {"seed": 1},
        "checkpoint": {"save_dir": "a"},
        "task": {"data": "bin", "bptt": 70},
    }
    first, second = OmegaConf.create(settings), OmegaConf.create({**settings, **changes})
    sent = []
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    def gather(everyones, mine):
        sent.append(mine)
        everyones[:] = [sent[0], sent[-1]]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    launchers._check_same_training(first)
    if problem is None:
        launchers._check_same_training(second)
    else:
        message = refusal(launchers._check_same_training, second)
        assert problem in message and "FAIRSEQ_DOC_LAUNCHER=none" in message


def test_validation_on_the_cpu_runs_in_one_process(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-validate"])
    assert prepared({}) == {}
    message = refusal(prepared, of_torchrun(0, 2, 29500))
    assert message.startswith("fairseq-validate on the CPU: expected one process")


# Errors


LOST = [
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9",
    "[/pytorch/gloo/transport/tcp/pair.cc:580] Read error [127.0.0.1]:9: Connection reset by peer",
    "Timed out waiting 1800000ms for recv operation to complete",
]


@pytest.mark.parametrize("text", LOST)
def test_a_lost_worker_is_one_line(text):
    try:
        try:
            raise RuntimeError(text)
        except RuntimeError:
            raise Exception("Cannot load model parameters from checkpoint") from None
    except Exception as error:
        assert re.match(r"another worker ended \(.*\), see its output; ", str(explanation(error)))


def test_other_errors_stay_as_they_are():
    assert explanation(RuntimeError("CUDA out of memory")) is None
    assert explanation(ConnectionResetError("Connection reset by peer")) is None


def test_the_errors_of_a_spawned_worker_are_its_own():
    raised = torch.multiprocessing.ProcessRaisedException
    text = 'Process 0 terminated:\nTraceback\n  File "x"\nfairseq_doc.errors.FairseqDocError: no\n'
    assert str(explanation(raised(text, 0, 1))) == "no"
    assert explanation(raised("Process 0 terminated:\nKeyError: 1\n", 0, 1)) is None
    killed = torch.multiprocessing.ProcessExitedException(
        "process 1 terminated with signal SIGKILL", 1, 2, -9, "SIGKILL"
    )
    assert "SIGKILL" in str(explanation(killed))


def test_call_main_raises_our_errors_and_leaves_the_others(monkeypatch):
    settings = SimpleNamespace(**FAIRSEQ)
    cfg = SimpleNamespace(
        common=SimpleNamespace(cpu=True, tpu=False), distributed_training=settings
    )

    def raising(error):
        def call_main(cfg, main):
            raise error

        return launchers._placed(call_main)

    with pytest.raises(FairseqDocError, match="another worker ended"):
        raising(RuntimeError(LOST[0]))(cfg, None)
    with pytest.raises(KeyError):
        raising(KeyError("x"))(cfg, None)
    with pytest.raises(FairseqDocError, match="^ours$"):
        raising(FairseqDocError("ours"))(cfg, None)


def test_the_rendezvous_has_a_limit_of_its_own():
    assert launchers.rendezvous_timeout({}) == timedelta(seconds=45)
    assert launchers.rendezvous_timeout({launchers.TIMEOUT: "7"}) == timedelta(seconds=7)
    assert "expected a number" in refusal(launchers.rendezvous_timeout, {launchers.TIMEOUT: "-1"})


@pytest.mark.parametrize(
    "reason, message",
    [
        ("port: 29500, EADDRINUSE, address already in use", "cannot listen at tcp://h:1: the port"),
        ("Timed out after 8 seconds waiting for clients. 1/2", "worker 0 of 2 waited 7 s at tcp"),
        ("gai error: -2 - Name or service not known", "cannot join the others at tcp://h:1: got"),
    ],
)
def test_a_rendezvous_that_fails_is_one_line(reason, message, monkeypatch):
    monkeypatch.setenv(launchers.TIMEOUT, "7")
    settings = SimpleNamespace(
        distributed_rank=0, distributed_world_size=2, distributed_init_method="tcp://h:1"
    )

    def distributed_init(cfg):
        raise RuntimeError(reason)

    join = launchers._in_time(distributed_init)
    initialize = torch.distributed.init_process_group
    assert message in refusal(join, SimpleNamespace(distributed_training=settings))
    assert torch.distributed.init_process_group is initialize


# Devices


@pytest.mark.parametrize("option", ["fp16", "bf16"])
@pytest.mark.parametrize("command", ["fairseq-train", "fairseq-hydra-train", "fairseq-eval-lm"])
def test_training_in_sixteen_bits_needs_a_gpu(monkeypatch, gpus, option, command):
    monkeypatch.setattr("sys.argv", [command])
    gpus(0)
    if command == "fairseq-eval-lm":
        assert prepared({}, cpu=False, **{option: True}) == {}
    else:
        message = refusal(prepared, {}, cpu=False, **{option: True})
        assert message.startswith(f"--{option}: expected a GPU") and "--matmul-precision" in message
    gpus(1)
    assert prepared({}, cpu=False, **{option: True}) == {}


def test_fairseq_train_takes_bf16_for_a_tpu(monkeypatch, gpus):
    """fairseq's options.py sets ``tpu`` with ``--bf16``, whatever the machine has."""
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    for count in (0, 1):
        gpus(count)
        message = refusal(prepared, {}, cpu=False, tpu=True, bf16=True)
        assert message.startswith("--bf16: fairseq-train takes it for a TPU, expected torch_xla; ")
        assert refusal(prepared, {}, tpu=True, bf16=True).startswith("--bf16: expected a GPU")
    monkeypatch.setattr(launchers, "find_spec", lambda name: name)
    assert prepared({}, cpu=False, tpu=True, bf16=True) == {}


@pytest.mark.parametrize("option", ["fp16", "bf16"])
def test_a_model_in_sixteen_bits_has_no_other_precision(monkeypatch, gpus, option):
    monkeypatch.setattr("sys.argv", ["fairseq-hydra-train"])
    gpus(1)
    settings = {"cpu": False, option: True}
    message = refusal(prepared, {}, matmul_precision="bfloat16", **settings)
    assert message.startswith(
        f"--{option} trains a model in 16 bits: expected --matmul-precision f"
    )


def test_amp_on_a_cpu_is_said_to_be_float32(monkeypatch, gpus, caplog):
    monkeypatch.setattr("sys.argv", ["fairseq-train"])
    gpus(1)
    prepared({}, cpu=False, amp=True)
    assert caplog.text == ""
    prepared({}, amp=True)
    assert "--amp: fairseq trains in float32 on a CPU" in caplog.text


def test_two_workers_of_torchrun_on_one_gpu_are_refused(gpus):
    environ = {**of_torchrun(1, 2, 29500), "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    gpus(1)
    message = refusal(prepared, environ, cpu=False)
    assert message.startswith("expected a GPU for each worker; got 1 for 2 workers: ")
    assert prepared(environ, cpu=False, distributed_backend="gloo")["distributed_world_size"] == 2
    gpus(2)
    assert prepared(environ, cpu=False)["distributed_world_size"] == 2


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({**of_srun(0, 2), "SLURM_STEP_NUM_NODES": "1"}, id="a task with its own GPU"),
        pytest.param(of_torchrun(1, 2, 29500), id="machines of one GPU, no local rank"),
        pytest.param(
            {**of_torchrun(1, 2, 1), "LOCAL_WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "3"},
            id="a GPU assigned to each process",
        ),
    ],
)
def test_workers_that_may_have_a_gpu_each_are_not_refused(gpus, environ):
    gpus(1)
    assert prepared(environ, cpu=False)["distributed_world_size"] == 2


def test_what_nccl_says_of_a_shared_gpu_is_explained():
    error = RuntimeError("NCCL error: Duplicate GPU detected : rank 1 and rank 0 both on 100000")
    assert str(explanation(error)).startswith("expected a GPU for each worker; got one for two")


def test_more_workers_than_gpus_without_a_launcher(gpus):
    gpus(1)
    assert "got 1 for 3 workers" in refusal(prepared, {}, cpu=False, distributed_world_size=3)
    assert prepared({}, cpu=False) == {}
