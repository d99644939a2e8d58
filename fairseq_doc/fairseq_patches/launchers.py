"""Workers follow their launcher: torchrun, srun, or one command per worker.

fairseq reads torchrun's environment only if it sees several GPUs: on the CPU every process trains
alone, on all data, into the same folder. With srun it also counts GPUs, and it waits half an hour
for a missing worker. Here the launcher's environment decides, and what cannot work is refused.
Without a launcher, fairseq still starts one process per GPU.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import fairseq_cli.train
import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf
from torch import distributed
from torch.distributed import distributed_c10d

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.fairseq_patches.wrapping import replaces

TIMEOUT = "FAIRSEQ_DOC_RENDEZVOUS_TIMEOUT"  # seconds for which a worker waits for the others
ALONE = "FAIRSEQ_DOC_LAUNCHER"  # "none": each process trains alone, even under a launcher
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


@replaces(distributed_utils, "call_main")
def prepare_and_call(call_main, cfg, main, **kwargs):
    """Run a command with the settings of its launcher."""
    prepare(cfg)
    return call_main(cfg, main, **kwargs)


@replaces(fairseq_cli.train, "add_defaults")
def add_defaults_and_join(add_defaults, cfg):
    """Prepare in the first step of a training, since fairseq-hydra-train imports this package only
    after call_main."""
    add_defaults(cfg)
    settings = cfg.distributed_training
    if settings.distributed_init_method is None and not distributed.is_initialized():
        prepare(cfg)
        if settings.distributed_init_method is not None:
            if torch.cuda.is_available() and not cfg.common.cpu:
                torch.cuda.set_device(settings.device_id)
            distributed_utils.distributed_init(cfg)


@dataclass(frozen=True)
class Place:
    """The place of a process among the workers of a launcher."""

    launcher: str
    rank: int
    workers: int
    local_rank: int
    init_method: str = "env://"
    per_machine: int | None = None  # workers per machine, if known from the launcher


def place_of(environ: Mapping[str, str], port: int = -1) -> Place | None:
    """The place of this process among several, or None. ``port`` is used under srun; below 1, one
    is derived from the number of the job."""
    if environ.get(ALONE) == "none":
        return None
    if all(name in environ for name in TORCHRUN):
        rank = int(environ["RANK"])
        local_rank = int(environ.get("LOCAL_RANK", rank))
        place = Place("torchrun", rank, int(environ["WORLD_SIZE"]), local_rank)
    elif "SLURM_STEP_NODELIST" in environ and "SLURM_PROCID" in environ:  # a task of srun
        place = _place_by_srun(environ, port)
    else:
        return None
    return place if place.workers > 1 else None


def _place_by_srun(environ, port):
    workers = int(environ.get("SLURM_STEP_NUM_TASKS") or environ["SLURM_NTASKS"])
    machines = int(environ.get("SLURM_STEP_NUM_NODES") or environ.get("SLURM_NNODES", "1"))
    nodes = environ["SLURM_STEP_NODELIST"]
    if workers > 1 and ("[" in nodes or "," in nodes):  # only Slurm's scontrol reads such a list
        listed = subprocess.check_output(["scontrol", "show", "hostnames", nodes], text=True)
        nodes = listed.split()[0]
    if port <= 0:  # choose the same port in all tasks of a step
        job = int(environ.get("SLURM_JOB_ID", "0")) + 7 * int(environ.get("SLURM_STEP_ID", "0"))
        port = 10_000 + job % 20_000
    rank, local_rank = int(environ["SLURM_PROCID"]), int(environ.get("SLURM_LOCALID", "0"))
    per_machine = workers // machines if workers % machines == 0 else None
    return Place("srun", rank, workers, local_rank, f"tcp://{nodes}:{port}", per_machine)


def command_of(argv: list[str]) -> str:
    """``generate`` for ``fairseq-generate`` and ``fairseq_cli/generate.py``."""
    return Path(argv[0]).stem.removeprefix("fairseq-").replace("_", "-") if argv else ""


def refuse_copies(argv: list[str]) -> None:
    """Raise ``FairseqDocError`` if each process of torchrun would do the same work."""
    command = command_of(argv)
    shared = any(word.startswith(("--num-shards", "--distributed-world-size")) for word in argv)
    if command in ("eval-lm", "generate", "interactive") and not shared:
        place = place_of(os.environ)
        if place is not None and place.launcher == "torchrun":
            raise FairseqDocError(
                f"fairseq-{command} runs in one process, but torchrun started {place.workers}, "
                "which would all do the same work; start it without a launcher"
            )


def prepare(cfg: Any, environ: Mapping[str, str] = os.environ) -> None:
    """Set ``cfg.distributed_training`` for the launcher and for the CPU."""
    settings = cfg.distributed_training
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    if command_of(sys.argv) in ("train", "hydra-train"):
        _check_sixteen_bits(cfg, on_cpu)
    visible = torch.cuda.device_count()  # fairseq's number of workers
    if settings.distributed_init_method in (None, "env://"):
        place = place_of(environ, settings.distributed_port)
        if place is not None:
            _take_place(settings, place, visible, on_cpu)
    if on_cpu:
        _set_for_cpu(settings, visible)


def _check_sixteen_bits(cfg, on_cpu):
    """Refuse --fp16 and --bf16 on a CPU, on a TPU (which fairseq-train --bf16 always selects), and
    together with --matmul-precision."""
    common = cfg.common
    if not (common.fp16 or common.bf16):
        return
    name = "--fp16" if common.fp16 else "--bf16"
    if on_cpu or common.tpu:
        needs = "selects a TPU, which is not supported" if common.tpu else "needs a GPU"
        raise FairseqDocError(
            f"{name} {needs}: give --matmul-precision bfloat16, or --amp on a GPU"
        )
    if getattr(cfg.model, "matmul_precision", "float32") != "float32":
        raise FairseqDocError(
            f"{name} trains a model in 16 bits: leave out --matmul-precision, which is for float32 "
            "models"
        )


def _take_place(settings, place, visible, on_cpu):
    size, one_a_machine = settings.distributed_world_size, place.per_machine == 1
    if size not in (1, visible, place.workers) and not one_a_machine:
        raise FairseqDocError(
            f"--distributed-world-size must be {place.workers}, the number of processes that "
            f"{place.launcher} started, or be left out; got {size}"
        )
    if not on_cpu and one_a_machine and visible > 1:  # fairseq starts one process per GPU
        settings.distributed_port = int(place.init_method.rpartition(":")[2])
        return
    settings.distributed_init_method = place.init_method
    settings.distributed_world_size = place.workers
    settings.distributed_rank = place.rank
    settings.distributed_no_spawn = True
    settings.device_id = 0 if on_cpu else place.local_rank % visible


def _set_for_cpu(settings, visible):
    size = settings.distributed_world_size
    if settings.distributed_init_method is None:
        if size > 1 and size != visible:
            raise FairseqDocError(
                f"--distributed-world-size {size} on the CPU needs one process per worker: start "
                f"them by `torchrun --nproc-per-node {size} $(which fairseq-train)` with the same "
                "options, but without --distributed-world-size"
            )
        settings.distributed_world_size = 1  # fairseq's default is the number of GPUs
        return
    settings.distributed_no_spawn = True  # fairseq would start one process per GPU, so none
    if settings.distributed_backend == "nccl":
        settings.distributed_backend = "gloo"
    if settings.ddp_backend in ("pytorch_ddp", "c10d"):  # fairseq passes GPUs to them
        settings.ddp_backend = "legacy_ddp"


@replaces(distributed_utils, "distributed_init")
def join_in_time(distributed_init, cfg):
    """Wait for the others no longer than the rendezvous timeout. After the start the backend's own
    limit applies, since one worker can save or validate for a long time."""
    initialize = distributed.init_process_group
    timeout = timedelta(seconds=int(os.environ.get(TIMEOUT, "45")))
    distributed.init_process_group = functools.partial(initialize, timeout=timeout)
    try:
        rank = distributed_init(cfg)
    finally:
        distributed.init_process_group = initialize
    limit = distributed_c10d._get_default_timeout(distributed.get_backend())
    distributed_c10d._set_pg_timeout(limit)
    check_same_training(cfg)
    return rank


def check_same_training(cfg: Any) -> None:
    """Raise ``FairseqDocError`` if the workers' settings differ, so that independent trainings
    started by one launcher, such as a search over seeds, do not become one training."""
    mine = {"common.seed": str(cfg.common.seed), "checkpoint.save_dir": cfg.checkpoint.save_dir}
    for group in ("task", "model", "criterion", "optimizer", "lr_scheduler", "optimization"):
        settings = getattr(cfg, group, None)
        if OmegaConf.is_dict(settings):
            values: Any = OmegaConf.to_container(settings)
            mine |= {f"{group}.{name}": str(value) for name, value in values.items()}
    mine.pop("task.data", None)  # the folder may differ between machines
    everyones: list[dict[str, str]] = [{} for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everyones, mine)
    for rank, theirs in enumerate(everyones):
        for name, value in everyones[0].items():
            if theirs.get(name) != value:
                raise FairseqDocError(
                    f"workers of one training must have the same settings: worker 0 has {name} "
                    f"{shown(value)}, worker {rank} {shown(theirs.get(name, ''))}; for independent "
                    f"trainings set the environment variable {ALONE}=none"
                )
