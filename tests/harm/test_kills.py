"""Commands that are ended at random moments: the same command again gives the undisturbed result."""

import random
import re
import signal
import time

import pytest
from conftest import has_ended, wait_until
from harm.endings import WHOLE, checkpoints_of, listing
from harm.inputs import TRAIN_LM

SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
# At this rate the validation loss soon rises: some epochs of SGD, some of averaging, a stage.
TRAINING = f"""fairseq-train data {TRAIN_LM} --lr 40 --nonmono 1 --finetune-stages 1 --max-epoch 30 --seed 1
    --keep-last-epochs 2 --save-interval-updates 4 --keep-interval-updates 2"""


def updates_of(output):
    return max(map(int, re.findall(r"num_updates=(\d+)", output)), default=0)


def test_an_interrupted_training_resumes_to_the_same_bits(server, case_of):
    """One that is asked to end, by SIGTERM or Ctrl-C, ends without a traceback."""
    case = case_of("lm")
    undisturbed = server.run(TRAINING, case)
    assert undisturbed.status == 0, undisturbed.err[-2000:]
    assert "averaging starts" in undisturbed.out and "stage 1 starts" in undisturbed.out
    expected, updates = checkpoints_of(case), updates_of(undisturbed.out)
    case, rng = case_of("lm"), random.Random(17)
    ends = 30 if WHOLE else 5
    for place in range(ends):
        number = SIGNALS[place % 3]
        moment = updates * (place + rng.random()) / (ends + 1)
        running = server.start(TRAINING, case)
        wait_until(lambda run=running, at=moment: updates_of(run.output()) >= at, pid=running.pid)
        time.sleep(rng.uniform(0, 0.06))
        running.kill(number)
        result = running.wait()
        assert result.status in (-number, 128 + number), result.err[-2000:]
        if number != signal.SIGKILL:
            assert "Traceback" not in result.out + result.err, result.err[-2000:]
        checkpoints_of(case)  # can be read, every one
    assert server.run(TRAINING, case).status == 0
    assert checkpoints_of(case) == expected


COMMANDS = {  # command: group
    "fairseq-doc prepare-lm text text new": "lm",
    "fairseq-doc prepare-lm text text new --unit byte": "lm",
    "fairseq-doc prepare-mt en de raw new --merges 40 --joint": "translation",
    "fairseq-doc prepare-parsing . new --pairs --threshold 2": "trees",
    "fairseq-doc rerank data dev.nbest --path lm.pt --cpu --output new --overwrite": "trees",
}


@pytest.mark.parametrize("place, command", enumerate(COMMANDS))
def test_another_ended_command_gives_the_same_files(place, command, server, case_of):
    """What is there after its end is whole."""
    case = case_of(COMMANDS[command])
    start = time.monotonic()
    assert server.run(command, case).status == 0
    seconds = time.monotonic() - start
    expected = files_of(case)
    case, rng = case_of(COMMANDS[command]), random.Random(place)
    for number in 4 * SIGNALS if WHOLE else [SIGNALS[place % 3]]:
        running = server.start(command, case)
        time.sleep(rng.uniform(0, 0.9 * seconds))
        if not has_ended(running.pid):
            running.kill(number)
        result = running.wait()
        assert result.status in (0, -number, 128 + number), result.err
        after = files_of(case)
        complete = expected.items() <= after.items()
        assert complete or "Traceback" not in result.out + result.err, result.err[-2000:]
        if number == signal.SIGKILL:  # the command cannot remove its temporary files
            after = {path: after[path] for path in after if path in expected or path[:4] == "new/"}
        assert after.items() <= expected.items()
        if complete:  # once more from the beginning
            case = case_of(COMMANDS[command])
    assert server.run(command, case).status == 0
    assert expected.items() <= files_of(case).items()


def files_of(folder):
    """The listing without reports of times."""
    found = listing(folder)
    return {path: value for path, value in found.items() if not path.endswith(".log")}
