"""What launchers of workers give their processes."""

import socket


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
