"""Workers start as their launcher says: torchrun, srun, or one command a worker.

fairseq reads torchrun's environment only where it sees several GPUs: on the CPU every process trains alone,
on everything, into the same folder. For srun it counts GPUs too, and it waits half an hour for a worker that
does not come. Here the launcher's environment is read first, and what cannot work is refused.

A GPU machine without a launcher stays fairseq's: one command, which starts one process a GPU.
"""

import functools
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf
from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

from fairseq_doc.errors import FairseqDocError, first_usage_error, shown
from fairseq_doc.fairseq_patches.error_messages import our_message

logger = logging.getLogger(__name__)

TIMEOUT = "FAIRSEQ_DOC_RENDEZVOUS_TIMEOUT"  # seconds that a worker waits for the others to start
ALONE = "FAIRSEQ_DOC_LAUNCHER"  # "none": every process trains alone, whoever started it
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
ONE_PROCESS = ("eval-lm", "generate", "interactive")
# What NCCL says of two workers on one GPU.
_SHARED_GPU = re.compile(r"Duplicate GPU detected", re.IGNORECASE)
TOO_FEW_GPUS = "expected a GPU for each worker; got {}: start fewer workers, or give --cpu"
# What gloo says when the process at the other end is gone.
_LOST = re.compile(
    r"closed by peer|reset by peer|broken pipe|closed connection|timed out waiting .* operation|"
    r"pair closure|remote process exited",
    re.IGNORECASE,
)


def apply() -> None:
    """Replace the functions that start a command and that join the workers.

    Raises:
        FairseqDocError: a command that runs in one process, started as several.
    """
    _refuse_copies(sys.argv)
    distributed_utils.call_main = _placed(distributed_utils.call_main)
    distributed_utils.distributed_init = _in_time(distributed_utils.distributed_init)
    # fairseq-hydra-train imports this package only after call_main.
    train: Any = sys.modules.get("fairseq_cli.train")
    if train is not None:
        train.add_defaults = _joining(train.add_defaults)


# Where a process is among the workers


@dataclass(frozen=True)
class Place:
    """One process among the workers that a launcher started."""

    launcher: str
    rank: int
    workers: int
    local_rank: int
    init_method: str
    per_machine: int | None = None  # workers a machine, where the launcher says it


def place_of(environ: Mapping[str, str], port: int = -1) -> Place | None:
    """This process's place by its environment; None where no launcher started it as one of several.

    Raises:
        FairseqDocError: an environment that is no launcher's.
    """
    place = None
    if environ.get(ALONE) == "none":
        return None
    if all(name in environ for name in TORCHRUN):
        place = _by_torchrun(environ)
    elif "SLURM_STEP_NODELIST" in environ and "SLURM_PROCID" in environ:  # a task of srun
        place = _by_srun(environ, port)
    return place if place is not None and place.workers > 1 else None


def _number(environ, name, default=None):
    text = environ.get(name, default)
    if text is None or not re.fullmatch(r"\d{1,9}", text):
        raise FairseqDocError(
            f"the environment variable {name}, which a launcher sets: expected a number; got "
            f"{'none' if text is None else shown(text)}"
        )
    return int(text)


def _by_torchrun(environ):
    rank = _number(environ, "RANK")
    return Place(
        launcher="torchrun",
        rank=rank,
        workers=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK", str(rank)),
        init_method="env://",
    )


def _by_srun(environ, port):
    name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    workers = _number(environ, name)
    if workers == 1:
        return None
    machines = _number(environ, "SLURM_STEP_NUM_NODES", environ.get("SLURM_NNODES", "1"))
    if port <= 0:  # the same for all tasks of a step
        job = _number(environ, "SLURM_JOB_ID", "0") + 7 * _number(environ, "SLURM_STEP_ID", "0")
        port = 10_000 + job % 20_000
    return Place(
        launcher="srun",
        rank=_number(environ, "SLURM_PROCID"),
        workers=workers,
        local_rank=_number(environ, "SLURM_LOCALID", "0"),
        init_method=f"tcp://{_first_host(environ['SLURM_STEP_NODELIST'])}:{port}",
        per_machine=workers // machines if workers % machines == 0 else None,
    )


def _first_host(nodes):
    """The first machine of ``node[3-5,9],other``; only Slurm's ``scontrol`` reads such a list."""
    if not re.search(r"[\[,]", nodes):
        return nodes
    try:
        hosts = subprocess.check_output(["scontrol", "show", "hostnames", nodes], text=True)
        return hosts.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise FairseqDocError(
            f"SLURM_STEP_NODELIST {shown(nodes)}: expected `scontrol show hostnames` to name its "
            f"machines; got {type(error).__name__}; give --distributed-init-method tcp://HOST:PORT"
        ) from None


# Settings


def prepare(cfg: Any, environ: Mapping[str, str] | None = None) -> None:
    """Set ``cfg.distributed_training`` as the launcher says, and as the CPU needs it.

    Raises:
        FairseqDocError: settings that contradict the launcher, several workers on the CPU without one,
            more workers than GPUs, or training in 16 bits that cannot be.
    """
    settings = cfg.distributed_training
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    _check_sixteen_bits(cfg, on_cpu)
    if cfg.common.tpu or settings.pipeline_model_parallel:
        return
    visible = torch.cuda.device_count()  # what fairseq takes for the number of workers
    place = None
    if settings.distributed_init_method in (None, "env://"):
        place = place_of(os.environ if environ is None else environ, settings.distributed_port)
    if place is not None:
        _check_agreement(settings, place, visible)
        if not on_cpu and place.per_machine == 1 and visible > 1:  # fairseq starts one a GPU
            settings.distributed_port = int(place.init_method.rpartition(":")[2])
        else:
            settings.distributed_init_method = place.init_method
            settings.distributed_world_size = place.workers
            settings.distributed_rank = place.rank
            settings.distributed_no_spawn = True
            settings.device_id = 0 if on_cpu else place.local_rank % visible
    if on_cpu:
        _set_for_cpu(settings, visible)
    else:
        _check_gpus(settings, place, visible, os.environ if environ is None else environ)


def _check_sixteen_bits(cfg, on_cpu):
    """fairseq's optimizers of 16 bits need a GPU, and its ``--bf16`` a TPU; evaluation in 16 bits does
    not."""
    common = cfg.common
    if _command(sys.argv) not in ("train", "hydra-train"):
        return
    if on_cpu and common.amp:
        logger.warning(
            "--amp: fairseq trains in float32 on a CPU; --matmul-precision bfloat16 is the faster training"
        )
    if not (common.fp16 or common.bf16):
        return
    name = "--fp16" if common.fp16 else "--bf16"
    if on_cpu and (not common.tpu or common.cpu):
        raise FairseqDocError(
            f"{name}: expected a GPU to train in 16 bits; got a CPU, on which --matmul-precision "
            "bfloat16 is the faster training"
        )
    if common.tpu and find_spec("torch_xla") is None:
        raise FairseqDocError(
            "--bf16: fairseq-train takes it for a TPU, expected torch_xla; got none. On a GPU give --amp, "
            "or --matmul-precision bfloat16"
        )
    if getattr(cfg.model, "matmul_precision", "float32") != "float32":
        raise FairseqDocError(
            f"{name} trains a model in 16 bits: expected --matmul-precision float32; got bfloat16, which "
            "is for models in float32"
        )


def _check_gpus(settings, place, visible, environ):
    """Refuse more workers than GPUs on this machine where that is certain; a task of srun may see only
    its own. NCCL refuses the rest, see :func:`explanation`."""
    workers = settings.distributed_world_size if settings.distributed_init_method is None else 1
    if place is not None and place.launcher == "torchrun" and "CUDA_VISIBLE_DEVICES" not in environ:
        workers = _number(environ, "LOCAL_WORLD_SIZE", "1")
    if settings.distributed_backend == "nccl" and workers > visible:
        raise FairseqDocError(TOO_FEW_GPUS.format(f"{visible} for {workers} workers"))


def _check_agreement(settings, place, visible):
    size = settings.distributed_world_size
    if size not in (1, visible, place.workers) and place.per_machine != 1:
        raise FairseqDocError(
            f"--distributed-world-size: expected {place.workers}, the processes that "
            f"{place.launcher} started, or no such option; got {size}"
        )


def _set_for_cpu(settings, visible):
    size = settings.distributed_world_size
    if settings.distributed_init_method is None:
        if size > 1 and size == visible:  # the default on a machine with GPUs
            settings.distributed_world_size = size = 1
        if size > 1:
            raise FairseqDocError(
                f"--distributed-world-size {size} on the CPU: expected one process a worker, got one "
                f"for all; start them by `torchrun --nproc-per-node {size} $(which fairseq-train)` "
                "and the options without --distributed-world-size"
            )
        return
    settings.distributed_no_spawn = True  # fairseq would start one process a GPU: none
    if settings.distributed_backend == "nccl":
        settings.distributed_backend = "gloo"
    if settings.ddp_backend in ("pytorch_ddp", "c10d"):  # fairseq gives it GPUs
        settings.ddp_backend = "legacy_ddp"
    if _command(sys.argv) == "validate" and size > 1:
        raise FairseqDocError(
            "fairseq-validate on the CPU: expected one process, because fairseq gathers its results "
            f"on GPUs; got {size}"
        )


def _command(argv):
    """``generate`` for ``fairseq-generate`` and ``fairseq_cli/generate.py``."""
    return Path(argv[0]).stem.removeprefix("fairseq-").replace("_", "-") if argv else ""


def _refuse_copies(argv):
    place = place_of(os.environ) if _command(argv) in ONE_PROCESS else None
    shares = {"--num-shards", "--distributed-world-size"} & {word.split("=")[0] for word in argv}
    if place is not None and place.launcher == "torchrun" and not shares:
        raise FairseqDocError(
            f"fairseq-{_command(argv)} runs in one process: {place.launcher} started {place.workers}, "
            "and each would do all of the work; start it without a launcher"
        )


# Starting


def _placed(call_main):
    @functools.wraps(call_main)
    def placed(cfg, main, **kwargs):
        prepare(cfg)
        try:
            return call_main(cfg, main, **kwargs)
        except Exception as error:
            usage_error = first_usage_error(error) or explanation(error)
            if usage_error is None:
                raise
            if distributed.is_torchelastic_launched():
                ErrorHandler().record_exception(usage_error)  # for torchrun's closing report
            if usage_error is error:
                raise
            raise usage_error from error

    return placed


def _joining(add_defaults: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(add_defaults)
    def joining(cfg):
        add_defaults(cfg)
        settings = cfg.distributed_training
        if settings.distributed_init_method is None and not distributed.is_initialized():
            prepare(cfg)
            if settings.distributed_init_method is not None:
                if torch.cuda.is_available() and not cfg.common.cpu:
                    torch.cuda.set_device(settings.device_id)
                distributed_utils.distributed_init(cfg)
                _explain_uncaught()

    return joining


def _explain_uncaught():
    """The errors of a training that did not go through our call_main."""
    previous = sys.excepthook

    def hook(kind, error, traceback):
        usage_error = first_usage_error(error) or explanation(error) or error
        previous(type(usage_error), usage_error, traceback)

    sys.excepthook = hook


def rendezvous_timeout(environ: Mapping[str, str] | None = None) -> timedelta:
    """How long a worker waits for the others to start."""
    return timedelta(
        seconds=_number(os.environ if environ is None else environ, TIMEOUT, default="45")
    )


def _in_time(distributed_init):
    """fairseq's function, with a limit to its waiting. Once the workers are joined, the backend's own
    limit holds, since one worker can save or validate for a long time."""

    @functools.wraps(distributed_init)
    def join(cfg):
        waiting = rendezvous_timeout()
        initialize = distributed.init_process_group
        distributed.init_process_group = functools.partial(initialize, timeout=waiting)
        try:
            rank = distributed_init(cfg)
        except (RuntimeError, ValueError) as error:
            if "CUDA" in str(error):  # of the device, not of the others
                raise
            settings = cfg.distributed_training
            raise FairseqDocError(_not_joined(settings, waiting, error)) from error
        finally:
            distributed.init_process_group = initialize
        limit = distributed_c10d._get_default_timeout(distributed.get_backend())
        distributed_c10d._set_pg_timeout(limit)
        _check_same_training(cfg)
        return rank

    return join


def _not_joined(settings, waiting, error):
    reason = " ".join(str(error).split())
    worker = f"worker {settings.distributed_rank} of {settings.distributed_world_size}"
    address = settings.distributed_init_method
    if re.search("EADDRINUSE|address already in use", reason, re.IGNORECASE):
        return f"{worker} cannot listen at {address}: the port is in use; give another one"
    if re.search("timed? ?out", reason, re.IGNORECASE):
        return (
            f"{worker} waited {waiting.total_seconds():.0f} s at {address} for the others: expected "
            "all of them to start; one has ended, see its output, or cannot be reached "
            f"({TIMEOUT} sets the seconds)"
        )
    *_, last = [line.strip() for line in str(error).splitlines() if line.strip()] or ["nothing"]
    return f"{worker} cannot join the others at {address}: got {shown(last, 500)}"


def _check_same_training(cfg):
    """Independent trainings that one launcher started, such as the tasks of a search over seeds, must
    not become workers of one."""
    mine = {"common.seed": str(cfg.common.seed), "checkpoint.save_dir": cfg.checkpoint.save_dir}
    for group in ("task", "model", "criterion", "optimizer", "lr_scheduler", "optimization"):
        settings = getattr(cfg, group, None)
        if OmegaConf.is_dict(settings):
            values: Any = OmegaConf.to_container(settings)
            mine |= {f"{group}.{name}": str(value) for name, value in values.items()}
    mine.pop("task.data", None)  # may be a folder of each machine
    everyones: list[dict[str, str]] = [{} for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everyones, mine)
    for rank, theirs in enumerate(everyones):
        differing = sorted(k for k in mine if theirs.get(k) != everyones[0].get(k))
        if differing:
            name = differing[0]
            raise FairseqDocError(
                f"workers of one training must have the same settings: worker 0 has {name} "
                f"{shown(everyones[0].get(name, ''))}, worker {rank} {shown(theirs.get(name, ''))}; "
                f"for independent trainings set the environment variable {ALONE}=none"
            )


def explanation(error: BaseException | None) -> FairseqDocError | None:
    """Our error for what a worker raises when another one has ended or has its GPU; None for any
    other error."""
    while error is not None:
        text = " ".join(str(error).split())
        if isinstance(error, torch.multiprocessing.ProcessRaisedException):
            usage = re.search(r"FairseqDocError: (.*)\s*$", str(error))
            last = str(error).rstrip().rpartition("\n")[2].partition(": ")[2]
            message = usage[1] if usage else our_message(last)
            return FairseqDocError(message) if message else None
        if isinstance(error, torch.multiprocessing.ProcessExitedException):
            return FairseqDocError(f"a worker ended ({shown(text)}); {_REMEDY}")
        if _SHARED_GPU.search(text):
            return FairseqDocError(TOO_FEW_GPUS.format("one for two workers"))
        found = _LOST.search(text) if isinstance(error, RuntimeError) else None
        if found:
            return FairseqDocError(f"another worker ended ({found[0]}), see its output; {_REMEDY}")
        error = error.__cause__ or error.__context__
    return None


_REMEDY = "the same command, on every machine, continues from the last checkpoint"
