"""A training program that takes no time: it writes a checkpoint as fairseq does, without torch, and prints
what fairseq prints at the end.

Its loss is (log10 lr + 2)^2 + 0.01 seed. $FAKE_SECONDS is how long it trains, in steps with a checkpoint
after each; it resumes from checkpoint_last.pt. --act says how it ends. With $FAKE_DEAF it ignores SIGTERM.
"""

import argparse
import math
import os
import pickle
import signal
import sys
import time
import zipfile

STEPS = 5


def save(path, extra_state):
    """A checkpoint that torch reads."""
    with zipfile.ZipFile(f"{path}.part", "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({"extra_state": extra_state}, protocol=2))
        archive.writestr("a/version", "3\n")
        archive.writestr("a/byteorder", "little")
    os.replace(f"{path}.part", path)


def read_step(path):
    if not os.path.exists(path):
        return 0
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("a/data.pkl"))["extra_state"]["step"]


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--save-dir")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--act", default="train")
    args, _ = parser.parse_known_args()
    if args.act == "fail":
        sys.exit("ValueError: it cannot")
    if args.act == "diverge":
        sys.exit("FloatingPointError: gradients are Nan/Inf")
    if os.environ.get("FAKE_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("2026 | INFO | dictionary: 10,000 words")
    os.makedirs(args.save_dir, exist_ok=True)
    last = os.path.join(args.save_dir, "checkpoint_last.pt")
    loss = (math.log10(args.lr) + 2) ** 2 + 0.01 * args.seed
    first = read_step(last)
    print(f"starts at step {first}", flush=True)
    for step in range(first, STEPS):
        time.sleep(float(os.environ.get("FAKE_SECONDS", "0")) / STEPS)
        best = {"nan": math.nan, "huge": 2.3e21}.get(args.act, loss + 1 / (step + 1) - 1 / STEPS)
        save(last, {"best": best, "step": step + 1})
    print("done training in 0.1 seconds", flush=True)


if __name__ == "__main__":
    main()
