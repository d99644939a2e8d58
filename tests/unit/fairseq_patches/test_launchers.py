from types import SimpleNamespace

import pytest
import torch
from conftest import refusal
from omegaconf import OmegaConf
from worker_processes import of_srun, of_torchrun

from fairseq_doc.fairseq_patches import launchers
from fairseq_doc.fairseq_patches.launchers import place_of, prepare

FAIRSEQ = {
    "distributed_world_size": 1,
    "distributed_rank": 0,
    "distributed_backend": "nccl",
    "distributed_init_method": None,
    "distributed_port": -1,
    "device_id": 0,
    "distributed_no_spawn": False,
    "ddp_backend": "pytorch_ddp",
}
COMMON = {"cpu": True, "tpu": False, "fp16": False, "bf16": False, "amp": False}
ON_CPU = {"distributed_no_spawn": True, "distributed_backend": "gloo", "ddp_backend": "legacy_ddp"}


def prepared(environ, matmul_precision="float32", **options):
    """What is changed in fairseq's settings."""
    common = SimpleNamespace(**{name: options.pop(name, COMMON[name]) for name in COMMON})
    settings = SimpleNamespace(**{**FAIRSEQ, **options})
    model = SimpleNamespace(matmul_precision=matmul_precision)
    cfg = SimpleNamespace(common=common, distributed_training=settings, model=model)
    prepare(cfg, environ)
    return {k: v for k, v in vars(settings).items() if v != FAIRSEQ[k]}


@pytest.fixture
def machine(monkeypatch):
    """``machine(n, command)``: one that says that it has n GPUs, and the command that it runs."""

    def pretend(count, command="train"):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr("sys.argv", [f"fairseq-{command}"])

    return pretend


def test_torchrun_and_srun_say_where_a_process_is():
    place = place_of({**of_torchrun(5, 8, 29500), "LOCAL_RANK": "1"})
    assert (place.launcher, place.rank, place.workers, place.local_rank) == ("torchrun", 5, 8, 1)
    environ = {"SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "4711"}
    places = [place_of({**of_srun(rank, 4, "node7"), **environ}) for rank in (2, 3)]
    place = places[1]
    assert (place.launcher, place.rank, place.workers, place.local_rank) == ("srun", 3, 4, 1)
    assert place.per_machine == 2
    (method,) = {place.init_method for place in places}  # where all tasks of a step meet
    host, _, port = method.rpartition(":")
    assert host == "tcp://node7" and 10_000 <= int(port) < 30_000
    assert place_of(of_srun(0), port=1234).init_method == "tcp://localhost:1234"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "1", "WORLD_SIZE": "2"},  # without an address: not torchrun's
        of_torchrun(0, 1, 29500),
        of_srun(0, 1),
        # The script of sbatch, which starts nothing by itself.
        {"SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        {**of_torchrun(0, 2, 29500), launchers.ALONE: "none"},
        {**of_srun(0, 2, "node7"), launchers.ALONE: "none"},
    ],
)
def test_a_process_without_others_has_no_place(environ):
    assert place_of(environ) is None
    assert prepared(environ) == {}


ENV = {"distributed_init_method": "env://"}
TCP = {"distributed_init_method": "tcp://n1:7"}
SECOND_OF_TWO = {**ENV, "distributed_world_size": 2, "distributed_rank": 1, **ON_CPU}
SEVENTH = {**of_torchrun(6, 8, 29500), "LOCAL_RANK": "2"}
SEVENTH_OF_8 = {**ENV, "distributed_world_size": 8, "distributed_rank": 6}
SEVENTH_OF_8 |= {"distributed_no_spawn": True}
TASK_A_GPU = {**of_srun(3, 4, "n1"), "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "1"}
LAST_OF_4 = {**TCP, "distributed_world_size": 4, "distributed_rank": 3}
LAST_OF_4 |= {"distributed_no_spawn": True, "distributed_port": 7, "device_id": 1}
MPI = {"distributed_backend": "mpi", "ddp_backend": "slowmo"}
TWO, EIGHT = {"distributed_world_size": 2}, {"distributed_world_size": 8}
ON_GPUS = {"cpu": False}
SIXTEEN = {"cpu": False, "fp16": True}
TPU = {"cpu": False, "tpu": True, "bf16": True}  # fairseq-train sets tpu, whatever the machine has


@pytest.mark.parametrize(
    "environ, count, options, changed",
    [
        (of_torchrun(1, 2, 29500), 0, {}, SECOND_OF_TWO),
        (of_torchrun(1, 2, 29500), 4, {"distributed_world_size": 4}, SECOND_OF_TWO),
        (of_torchrun(1, 2, 29500), 4, ENV, SECOND_OF_TWO),
        (SEVENTH, 4, {**ON_GPUS, "distributed_world_size": 4}, {**SEVENTH_OF_8, "device_id": 2}),
        (SEVENTH, 1, ON_GPUS, SEVENTH_OF_8),  # another worker's GPU is not seen
        (TASK_A_GPU, 2, {**ON_GPUS, "distributed_port": 7}, LAST_OF_4),
        # One command a worker on the CPU.
        ({}, 0, {**TCP, **TWO}, {**TCP, **TWO, **ON_CPU}),
        ({}, 0, {**TCP, **MPI}, {**TCP, **MPI, "distributed_no_spawn": True}),
        # The number of GPUs is fairseq's default number of workers.
        ({}, 8, EIGHT, {}),
        ({}, 8, {**ON_GPUS, **EIGHT}, EIGHT),
        ({}, 1, SIXTEEN, {}),
    ],
)
def test_what_is_changed(machine, environ, count, options, changed):
    machine(count)
    assert prepared(environ, **options) == changed


def test_srun_with_a_task_a_machine(machine):
    """fairseq reads Slurm's environment itself, if it knows a port."""
    machine(2)
    changed = prepared(of_srun(1, 2, "n1"), cpu=False, distributed_world_size=2)
    assert changed.keys() == {"distributed_world_size", "distributed_port"}


def test_other_commands_take_sixteen_bits(machine):
    machine(0, "eval-lm")
    assert prepared({}, **SIXTEEN) == {}


REFUSED = [  # command, number of GPUs, environment, options, what the message says
    ("train", 0, {}, {"distributed_world_size": 2}, "torchrun --nproc-per-node 2 $(which"),
    ("train", 0, of_torchrun(0, 2, 29500), {"distributed_world_size": 3}, "world-size must be 2"),
    ("train", 0, {}, SIXTEEN, "--fp16 needs a GPU"),
    ("hydra-train", 0, {}, {"bf16": True}, "--bf16 needs a GPU"),
    ("train", 1, {}, TPU, "--bf16 selects a TPU"),
    ("train", 1, {}, {**SIXTEEN, "matmul_precision": "bfloat16"}, "leave out --matmul-precision"),
]


@pytest.mark.parametrize("command, count, environ, options, message", REFUSED)
def test_what_cannot_work_is_refused(machine, command, count, environ, options, message):
    machine(count, command)
    assert message in refusal(prepared, environ, **options)


@pytest.mark.parametrize(
    "program", ["/bin/fairseq-eval-lm", "fairseq_cli/interactive.py", "fairseq-generate"]
)
def test_a_command_that_runs_in_one_process_refuses_copies(program, monkeypatch):
    launchers.refuse_copies([program])
    for name, value in of_torchrun(0, 2, 29500).items():
        monkeypatch.setenv(name, value)
    launchers.refuse_copies(["fairseq-train"])
    assert "runs in one process, but torchrun started 2" in refusal(
        launchers.refuse_copies, [program]
    )
    launchers.refuse_copies([program, "--num-shards", "2"])  # each its share


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
    task = {"data": "bin", "bptt": 70}
    settings = {"common": {"seed": 1}, "checkpoint": {"save_dir": "a"}, "task": task}
    sent = []
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    def gather(everyones, mine):
        sent.append(mine)
        everyones[:] = [sent[0], sent[-1]]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    launchers.check_same_training(OmegaConf.create(settings))
    second = OmegaConf.create({**settings, **changes})
    if problem is None:
        launchers.check_same_training(second)
    else:
        message = refusal(launchers.check_same_training, second)
        assert problem in message and "FAIRSEQ_DOC_LAUNCHER=none" in message
