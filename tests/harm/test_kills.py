"""Commands that are ended at random moments: the same command again gives the undisturbed result."""

import random
import shutil
import signal
import time
from collections import Counter

import pytest
from harm.campaign import WHOLE, listing
from harm.interruptions import (
    checkpoints_of,
    end_at,
    moments,
    training,
    undisturbed,
    unfinished_files,
)

ENDS = 32 if WHOLE else 5
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT]


@pytest.fixture(scope="module")
def data(inputs):
    return inputs("lm") / "data"


@pytest.fixture(scope="module")
def reference(server, data, tmp_path_factory):
    return undisturbed(server, tmp_path_factory.mktemp("undisturbed"), training(data))


def test_an_interrupted_training_resumes_to_the_same_bits(server, data, reference, tmp_path):
    """One that is asked to end, by SIGTERM or Ctrl-C, ends without a traceback or an unfinished file."""
    rng = random.Random(17)
    phases = Counter()
    for place, update in enumerate(moments(reference, ENDS, seed=17)):
        number = SIGNALS[place % 4]
        left = set(unfinished_files(tmp_path))
        running = server.start(training(data), tmp_path, full_exit=True)
        end_at(running, update, number, rng, during_a_save=place % 3 == 1)
        result = running.wait()
        assert result.status in (0, -number, 128 + number), result.err[-2000:]
        if result.status == 0:  # it had reached its end
            continue
        phases["cases"] += 1
        phases[f"in {reference.phase(update)}"] += 1
        phases["during a save"] += bool(set(unfinished_files(tmp_path)) - left)
        if number != signal.SIGKILL:
            assert "Traceback" not in result.out + result.err, result.err[-2000:]
            assert not result.timed_out and set(unfinished_files(tmp_path)) <= left
        if (tmp_path / "save").exists():
            checkpoints_of(tmp_path)  # every one is whole
    result = server.run(training(data), tmp_path, full_exit=True)
    assert result.status == 0, result.err[-2000:]
    assert checkpoints_of(tmp_path) == reference.checkpoints
    assert phases["cases"] >= ENDS - 1
    assert all(phases[f"in {phase}"] for phase in reference.starts)
    assert phases["during a save"] or not WHOLE


COMMANDS = {
    "prepare-lm": ("lm", "prepare-lm text text new"),
    "prepare-lm of bytes": ("lm", "prepare-lm text text new --unit byte"),
    "prepare-mt": ("translation", "prepare-mt en de raw new --merges 40 --joint"),
    "prepare-parsing": ("trees", "prepare-parsing . new --pairs --threshold 2"),
    "rerank": (
        "trees",
        "rerank data dev.nbest --path lm.pt --cpu --max-candidates 3 "
        "--output new.mrg --output-nbest new.nbest --overwrite --no-progress-bar",
    ),
}


SHORT_FORM = [
    ("prepare-lm", signal.SIGKILL),
    ("prepare-lm of bytes", signal.SIGKILL),
    ("rerank", signal.SIGINT),
]
WHOLE_FORM = [(name, number) for name in COMMANDS for number in sorted(set(SIGNALS))]


@pytest.mark.parametrize("name, number", WHOLE_FORM if WHOLE else SHORT_FORM)
def test_another_ended_command_gives_the_same_files(name, number, server, inputs, tmp_path):
    group, line = COMMANDS[name]
    words = ("fairseq-doc", *line.split())
    rng = random.Random(f"{name} {number}")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        shutil.copytree(inputs(group), folder)
    before = listing(cut)
    result = server.run(words, whole)
    assert result.status == 0, result.err
    expected = files_of(whole)
    ended = Counter()
    for _ in range(8 if WHOLE else 3):
        running = server.start(words, cut, timeout=60, full_exit=True)
        time.sleep(rng.uniform(0, 0.95 * result.seconds))
        running.kill(number)
        last = running.wait()
        after = files_of(cut)
        complete = expected.items() <= after.items()
        ended.update({"cases": 1, "before the result was there": not complete})
        assert last.status in (0, -number, 128 + number) and not last.timed_out, last.err
        assert complete or "Traceback" not in last.out + last.err, last.err[-2000:]
        made = {path for path in after.keys() - before.keys() if not unfinished(path, number)}
        # what is there is whole
        assert all(after[path] == expected[path] for path in made), made
        if complete:  # once more from the beginning
            shutil.rmtree(cut)
            shutil.copytree(inputs(group), cut)
    last = server.run(words, cut)
    assert last.status == 0, last.err
    after = files_of(cut)
    left = {path for path in after.keys() - expected.keys() if not unfinished(path, number)}
    assert expected.items() <= after.items() and not left


def unfinished(path, number):
    """Whether a file may be there because the command was ended: a preparation's folder, and, where
    it had no chance to remove it, a temporary file."""
    if path.startswith("new.part"):
        return True
    return number == signal.SIGKILL and path.split("/")[0] not in ("new", "new.mrg", "new.nbest")


def files_of(folder):
    """The listing, without reports that hold times and folders."""
    found = listing(folder)
    return {path: value for path, value in found.items() if not path.endswith(".log")}
