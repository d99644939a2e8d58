"""Tokens per second of training with two workers, one thread each, compared with one such worker, on a CPU.

Each row is one training at the paper's size for Penn Treebank on the same random text with 10,000 words,
started by torchrun. The machine needs one core per worker. The speed is the median after the first updates,
for all workers together. Rows:

    one worker                  batch 12, one thread: the baseline
    two trainings               two independent baselines at the same time: an upper bound for two
                                workers
    two workers                 batch 12 each: an update reads twice as much text
    two workers, same update    batch 6 each: the same columns and updates as the baseline

Two workers sum 23 million gradients in every update. With batch 6 a worker does half the work between two
sums, and its products have fewer rows, so their kernels are less efficient.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import train_step
from benchmarks.train_step import BIN, COMMON, LOG_INTERVAL, OURS, PACKAGE, prepare
from fairseq_doc.options import option

ROWS = {  # trainings at once, workers of each, options
    "one worker": (1, 1, "--batch-size 12"),
    "two trainings": (2, 1, "--batch-size 12"),
    "two workers": (1, 2, "--batch-size 12"),
    "two workers, same update": (1, 2, "--batch-size 6"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    updates: int = option("updates per training", 25, least=4 * LOG_INTERVAL)
    options: str = option("options of fairseq-train, such as those of a smaller model", "")


def train(data, save_dir, workers, options, updates):
    """Start one training and return its process. With --no-save the folder stays empty, so that
    the next training does not resume this one."""
    settings = f"{COMMON} {OURS} {options} --max-update {updates} --log-interval {LOG_INTERVAL}"
    launcher = ["--standalone", "--nproc-per-node", str(workers), BIN / "fairseq-train"]
    folders = [data, "--save-dir", save_dir, "--user-dir", PACKAGE, "--no-save"]
    words = ["env", "OMP_NUM_THREADS=1", BIN / "torchrun", *launcher, *folders, *settings.split()]
    return subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def speed(training, workers):
    """Tokens per second of one training, over all its workers."""
    output, _ = training.communicate()
    if training.returncode or (workers > 1 and f"training on {workers} devices" not in output):
        sys.exit(f"{workers} workers failed:\n{output[-2000:]}")
    return train_step.tokens_per_second(output)


def run(settings):
    """Result: ``tokens_per_second`` of one worker, and the ratios to it."""
    speeds = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare(folder)
        for row, (trainings, workers, options) in ROWS.items():
            how = workers, f"{settings.options} {options}", settings.updates
            started = [train(data, folder / "empty", *how) for _ in range(trainings)]
            speeds[row] = sum(speed(training, workers) for training in started)
            ratio = speeds[row] / speeds["one worker"]
            print(f"{row:25} {speeds[row]:7.0f} tokens/s  {ratio:5.2f}", flush=True)
    baseline = speeds["one worker"]
    return {
        "tokens_per_second": baseline,
        "two_trainings_over_one": speeds["two trainings"] / baseline,
        "two_workers_over_one": speeds["two workers"] / baseline,
        "two_workers_same_update_over_one": speeds["two workers, same update"] / baseline,
    }
