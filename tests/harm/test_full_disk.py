"""A disk that is full while a command writes: what was good stays good."""

import re
import shutil

from harm.endings import check_ending, checkpoints_of
from harm.inputs import TRAIN_LM

# Checkpoints of about 300 KB, so that a limit stops them and not the log.
WIDE = "--decoder-embed-dim 48 --layer-dims 64,48"
TRAINING = f"fairseq-train data {TRAIN_LM} {WIDE} --save-interval-updates 5 --seed 1"


def test_while_a_training_saves(server, case_of, tmp_path):
    case = case_of("lm")
    assert server.run(f"{TRAINING} --max-epoch 1", case).status == 0
    whole = shutil.copytree(case, tmp_path / "whole")
    before, size = checkpoints_of(case), (case / "save" / "checkpoint_last.pt").stat().st_size
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size}))"
    result = server.run(f"{TRAINING} --max-epoch 2", case, before=limited)
    assert result.status == 1
    check_ending(result)
    assert re.search("cannot write|File too large|No space", result.err.splitlines()[-1])
    assert checkpoints_of(case) == before
    for folder in (case, whole):  # with space again
        assert server.run(f"{TRAINING} --max-epoch 2", folder).status == 0
    assert checkpoints_of(case) == checkpoints_of(whole)


def test_standard_output_that_takes_nothing(server, case_of):
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    result = server.run("fairseq-doc evalb dev.mrg best.mrg", case_of("trees"), before=full)
    assert result.status == 1 and "No space left" in result.err.splitlines()[-1]
    check_ending(result)
