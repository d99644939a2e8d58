"""Tokens a second of training by two workers with one thread each, against one such worker, on a CPU.

    python scripts/benchmark_workers.py [--json] [--updates 25]

Each row is one training at the paper's Penn Treebank size on the same random text of 10,000 words, started
by torchrun. Nothing else should run on the machine, which needs a core a worker. The speed is the median
after the first updates, of all workers together. Rows:

    one worker                  batch 12, one thread: the baseline
    two trainings               two of the baseline at once, which share nothing but the machine: no
                                two workers can be faster
    two workers                 batch 12 each: an update reads twice the text
    two workers, same update    batch 6 each: the columns, and so the updates, of the baseline

Two workers sum 23 million gradients at every update. With batch 6 a worker does half the work between two
sums, and its products have fewer rows, so that their kernels are less efficient.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_tools import make_parser, print_machine
from benchmark_train_step import BIN, COMMON, LOG_INTERVAL, OURS, prepare

ROWS = {  # trainings at once, workers of each, options
    "one worker": (1, 1, "--batch-size 12"),
    "two trainings": (2, 1, "--batch-size 12"),
    "two workers": (1, 2, "--batch-size 12"),
    "two workers, same update": (1, 2, "--batch-size 6"),
}


def train(data, save_dir, workers, options, updates):
    """Start one training; its process. Nothing is saved: an empty ``save_dir`` has nothing to resume."""
    package = Path(__file__).resolve().parent.parent / "fairseq_doc"
    settings = f"{COMMON} {OURS} {options} --max-update {updates} --log-interval {LOG_INTERVAL}"
    launcher = ["--standalone", "--nproc-per-node", str(workers), BIN / "fairseq-train"]
    folders = [data, "--save-dir", save_dir, "--user-dir", package, "--no-save"]
    words = ["env", "OMP_NUM_THREADS=1", BIN / "torchrun", *launcher, *folders, *settings.split()]
    return subprocess.Popen(
        list(map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def speed(training, workers):
    """Tokens a second of one training, over all its workers."""
    output, _ = training.communicate()
    if training.returncode or (workers > 1 and f"training on {workers} devices" not in output):
        sys.exit(f"{workers} workers failed:\n{output[-2000:]}")
    speeds = [float(s) for s in re.findall(r"train_inner .*?\bwps=([\d.]+)", output)]
    return statistics.median(speeds[2:])


def main():
    """Train once for every row, and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument(
        "--options", default="", help="of fairseq-train, such as those of a smaller model"
    )
    args = parser.parse_args()
    if args.updates < 4 * LOG_INTERVAL:
        parser.error(f"--updates must be at least {4 * LOG_INTERVAL}; got {args.updates}")

    print_machine(to_stderr=args.json)
    speeds = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare(folder)
        for row, (trainings, workers, options) in ROWS.items():
            options = f"{args.options} {options}"
            started = [
                train(data, folder / "empty", workers, options, args.updates)
                for _ in range(trainings)
            ]
            speeds[row] = sum(speed(training, workers) for training in started)
            if not args.json:
                ratio = speeds[row] / speeds["one worker"]
                print(f"{row:25} {speeds[row]:7.0f} tokens/s  {ratio:5.2f}", flush=True)
    if args.json:
        baseline = speeds["one worker"]
        figures = {
            "tokens_per_second": baseline,
            "two_trainings_over_one": speeds["two trainings"] / baseline,
            "two_workers_over_one": speeds["two workers"] / baseline,
            "two_workers_same_update_over_one": speeds["two workers, same update"] / baseline,
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
