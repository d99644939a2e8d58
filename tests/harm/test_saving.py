"""A disk that is full while a command writes: what was good stays good."""

import re
import shutil

import pytest
from harm import oracles
from harm.campaign import WHOLE, listing
from harm.inputs import LM_MODEL, LM_TRAINING
from harm.interruptions import checkpoints_of
from harm.targets import USER_DIR

# Checkpoints of about 300 KB, so that a limit stops them and not the log.
WIDE = [*LM_MODEL.replace("8", "48").replace("12,", "64,").split(), *LM_TRAINING.split()]
SAVING = ["--save-interval-updates", "5", "--save-dir", "save", "--seed", "1"]
SHARES = (0.2, 0.6, 0.99, 0.9999) if WHOLE else (0.6,)


def training(epochs):
    return ("fairseq-train", "data", *USER_DIR, *WIDE, *SAVING, "--max-epoch", str(epochs))


@pytest.fixture(scope="module")
def begun(server, inputs, tmp_path_factory):
    """A folder with a run of one epoch."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    folder.mkdir()
    shutil.copytree(inputs("lm") / "data", folder / "data")
    result = server.run(training(1), folder)
    assert result.status == 0, result.err[-2000:]
    return folder


@pytest.mark.parametrize("share", SHARES)
def test_a_full_disk_while_a_training_saves(share, server, begun, tmp_path):
    case, whole = tmp_path / "case", tmp_path / "whole"
    for folder in (case, whole):
        shutil.copytree(begun, folder)
    size = (case / "save" / "checkpoint_last.pt").stat().st_size
    assert size > 150_000
    before = checkpoints_of(case)
    limits = {"RLIMIT_FSIZE": int(size * share)}
    result = server.run(training(2), case, limits=limits, full_exit=True)
    assert result.status == 1, result.err[-2000:]
    oracles.check_ending(result)
    assert re.search("cannot write|File too large|No space", result.err.splitlines()[-1])
    assert checkpoints_of(case) == before
    for folder in (case, whole):  # with space again
        result = server.run(training(2), folder)
        assert result.status == 0, result.err[-2000:]
    assert checkpoints_of(case) == checkpoints_of(whole)


RERANK = "rerank data dev.nbest --path lm.pt --cpu"
COLLECT = "collect-parses test.out --sentences test.mrg --output new --overwrite"
WRITERS = {  # name: (group, words, the file that exists before)
    "rerank --output": ("trees", f"{RERANK} --output new --overwrite", "new"),
    "rerank --output-nbest": ("trees", f"{RERANK} --output-nbest new --overwrite", "new"),
    "collect-parses": ("trees", COLLECT, "new"),
    "weights": ("lm", "weights data --path a.pt --cpu --picture new.png --overwrite", "new.png"),
    "curves": ("lm", "curves new.png a=train.log --overwrite", "new.png"),
    "prepare-lm": ("lm", "prepare-lm text text new", None),
    "prepare-mt": ("translation", "prepare-mt en de raw new --merges 40 --joint", None),
    "prepare-parsing": ("trees", "prepare-parsing . new --threshold 2", None),
}
LIMIT = {"prepare-lm": 1000, "prepare-parsing": 3000, "weights": 3000, "curves": 3000}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_while_another_command_writes(name, server, inputs, tmp_path):
    group, line, existing = WRITERS[name]
    words = ("fairseq-doc", *line.split())
    case = tmp_path / "case"
    shutil.copytree(inputs(group), case)
    if existing:
        (case / existing).write_text("what was there\n")
    before = listing(case)
    limits = {"RLIMIT_FSIZE": LIMIT.get(name, 200)}
    result = server.run(words, case, limits=limits)
    assert result.status == 1, result.err[-2000:]
    oracles.check_ending(result)
    after = listing(case)
    left = [path for path in after if path not in before and not path.startswith("new.part")]
    assert all(after[path] == content for path, content in before.items())
    assert not left
    result = server.run(words, case)  # with space again
    assert result.status == 0, result.err[-2000:]


@pytest.mark.parametrize("name", ["score", "weights", "evalb"])
def test_standard_output_that_takes_nothing(name, server, inputs, tmp_path):
    group, line = {
        "score": ("lm", "score data --path a.pt --cpu --input lines.txt"),
        "weights": ("lm", "weights data --path a.pt --cpu"),
        "evalb": ("trees", "evalb dev.mrg best.mrg"),
    }[name]
    before = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    shutil.copytree(inputs(group), tmp_path / "case")
    words = ("fairseq-doc", *line.split())
    result = server.run(words, tmp_path / "case", before=before, full_exit=True)
    assert result.status == 1 and "No space left" in result.err.splitlines()[-1], result.err
    oracles.check_ending(result)
