"""Workers side by side, each as a process of its own would be, without the seconds of its imports: they
are forked from one process that has imported fairseq."""

import atexit
import importlib
import multiprocessing
import os
import shlex
import socket
import sys

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["fairseq_cli.train", "fairseq_cli.hydra_train"])


class Worker:
    """A running command of fairseq."""

    started: list["Worker"] = []

    def __init__(self, command, output, **environ):
        self.output_file = output
        words = shlex.split(command) if isinstance(command, str) else [str(w) for w in command]
        self.process = CONTEXT.Process(target=_run, args=(words, str(output), environ))
        self.process.start()
        Worker.started.append(self)

    def output(self):
        """What it has printed."""
        return self.output_file.read_text() if self.output_file.exists() else ""

    def wait(self, timeout=120):
        """Its exit status; after ``timeout`` seconds an error, and its end."""
        self.process.join(timeout)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            self.process.join()
        assert status is not None, f"no end in {timeout} s\n{self.output()[-3000:]}"
        return status


def end_all():
    """End what a failed test has left running."""
    while Worker.started:
        worker = Worker.started.pop()
        worker.process.kill()
        worker.process.join()


def _run(words, output, environ):
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environ, OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # of data workers: the system's default
    sys.argv = words
    name = words[0].removeprefix("fairseq-").replace("-", "_")
    try:
        importlib.import_module(f"fairseq_cli.{name}").cli_main()
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out


def free_port():
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def of_torchrun(rank, workers=2, port=None):
    """The environment of one of torchrun's processes."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def of_srun(rank, workers=2, nodes="localhost"):
    """The environment of one of srun's tasks, one a machine."""
    return {
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(workers),
        "SLURM_STEP_NUM_TASKS": str(workers),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": "0",
    }
