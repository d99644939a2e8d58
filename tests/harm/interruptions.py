"""Trainings and other commands that are ended at random moments, and the same command again."""

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from conftest import PACKAGE, has_ended
from harm.inputs import LM_MODEL, LM_TRAINING
from harm.targets import checkpoint

# At this rate the validation loss soon rises: some epochs of SGD, some of averaging, a stage.
SCHEDULE = """--lr 40 --nonmono 1 --finetune-stages 1 --max-epoch 30 --seed 1 --keep-last-epochs 2
    --save-interval-updates 4 --keep-interval-updates 2"""
SGD, AVERAGING, STAGE = "SGD", "averaging", "a fine-tuning stage"
PAUSE = 0.06  # seconds at most between the update that is waited for and the signal
SAVE = 0.004  # the same after a save began


def training(data, *options):
    """The command line of a training with all phases, into ``save``."""
    words = (*LM_MODEL.split(), *LM_TRAINING.split(), *SCHEDULE.split(), "--save-dir", "save")
    return ("fairseq-train", data, "--user-dir", PACKAGE, *words, *options)


@dataclass
class Undisturbed:
    """A training that nothing ended early."""

    checkpoints: dict[str, str]  # {name: digest} of what it left
    updates: int  # how many it made
    starts: dict[str, int]  # {phase: the number of updates before it}

    def phase(self, update):
        """The phase in which this update is made."""
        return max(self.starts, key=lambda phase: (self.starts[phase] < update, self.starts[phase]))


def undisturbed(server, folder, words):
    """Run a training to its end."""
    result = server.run(words, folder, full_exit=True)
    assert result.status == 0, result.err[-2000:]
    starts, updates = {SGD: 0}, 0
    for line in result.out.splitlines():
        updates = max([updates, *map(int, re.findall(r"num_updates[= ](\d+)", line))])
        if "averaging starts after epoch" in line:
            starts[AVERAGING] = updates
        if "fine-tuning stage 1 starts" in line:
            starts[STAGE] = updates
    assert len(starts) == 3 and updates - starts[STAGE] > 4, result.out[-2000:]
    return Undisturbed(checkpoints_of(folder), updates, starts)


def checkpoints_of(folder):
    """{name: digest} of the checkpoints, and the names of everything else but locks."""
    found = {}
    for path in sorted((folder / "save").iterdir()):
        if path.suffix == ".pt":
            found[path.name] = checkpoint(path)
        elif "lock" not in path.name:
            found[path.name] = "no checkpoint"
    return found


def moments(reference, count, seed):
    """Updates at which to end a run: in ``count`` equal parts of every phase's updates, a third each."""
    rng = random.Random(seed)
    ends = {SGD: AVERAGING, AVERAGING: STAGE, STAGE: None}
    found = []
    for number, (phase, next_phase) in enumerate(ends.items()):
        first = reference.starts[phase] + 1
        last = reference.starts.get(next_phase, reference.updates)
        if next_phase is None:  # the signal comes some updates later
            last -= (last - first) // 3
        share = (count + 2 - number) // 3  # the first phases get what a third leaves over
        parts = [first + (last - first) * (i + rng.random()) / share for i in range(share)]
        found += [int(part) for part in parts]
    return found


def end_at(running, update, number, rng, during_a_save=False):
    """Send a signal when a training has made this update and a random moment has passed, which with
    ``during_a_save`` is in the next save; nothing, where it ends before."""
    pattern = re.compile(r"num_updates=(\d+)")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        made = pattern.findall(running.output()[-4000:])
        if made and int(made[-1]) >= update:
            break
        if "done training" in running.output()[-4000:] or has_ended(running.pid):
            return
        time.sleep(0.003)
    folder = Path(running.request["folder"])
    while during_a_save and not unfinished_files(folder) and not has_ended(running.pid):
        time.sleep(0.0005)
    time.sleep(rng.uniform(0, SAVE if during_a_save else PAUSE))
    running.kill(number)


def unfinished_files(folder):
    """Files of a folder of checkpoints that are neither checkpoints nor locks: a save was under way."""
    save = folder / "save"
    if not save.exists():
        return []
    return [p.name for p in save.iterdir() if p.suffix != ".pt" and "lock" not in p.name]
