"""What the benchmarks share: the machine's description, a measurement in a process of its own."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def processor() -> str:
    """The name of the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> str:
    """The processor, its cores, and who multiplies matrices: one line above every table.

    The environment variable FAIRSEQ_DOC_MATMUL forces the backend.
    """
    import torch

    from fairseq_doc.ops import matmul

    return (
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; torch "
        f"{torch.__version__}; matmul backend: {matmul.backend}"
    )


def print_machine(to_stderr: bool) -> None:
    """Print :func:`machine`, on standard error where standard output is JSON."""
    print(machine(), file=sys.stderr if to_stderr else sys.stdout, flush=True)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work()`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured_apart(arguments: list[str], environment: dict[str, str] | None = None) -> dict:
    """The JSON object that this script, started again with ``arguments`` in a process of its own,
    prints last. Exits with the last line of its error where it fails."""
    done = subprocess.run(
        [sys.executable, sys.argv[0], *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(arguments)}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
