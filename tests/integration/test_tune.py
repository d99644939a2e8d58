"""``fairseq-doc tune`` with real trainings: killed, continued by two processes at once, reported,
rerun."""

import json
import random
import re
import signal
import time
from types import SimpleNamespace

import pytest
import toy_translation
from conftest import (
    PACKAGE,
    SMALL_MODEL,
    SMALL_TRAINING,
    SMALL_TRANSLATION,
    doc,
    preprocessing,
    refused,
    run_here,
    start,
)

from fairseq_doc.tuning.slots import slots_of
from fairseq_doc.tuning.storage import load_study, open_storage

SPACE = "lr: {low: 3, high: 60.0, log: true}\noutput-dropout: {low: 0, high: 0.5}\n"
TRIALS = 4


def base(data, options=""):
    """The training to tune: two epochs, without what the space gives."""
    training = SMALL_TRAINING.replace("--lr 10 ", "")
    words = f"fairseq-train {data} --user-dir {PACKAGE} {SMALL_MODEL} {training} --max-epoch 2"
    return [*words.split(), *options.split()]


def slots(url):
    return slots_of(load_study(open_storage(url, create=False), "s")[0].get_trials())


def wait_for(folder, pattern, process):
    """Wait until a training has written a file."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def tuned(corpus, tmp_path_factory):
    """A study that was interrupted by Ctrl-C, killed at a random moment, and continued by two
    processes at once."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "space.yaml").write_text(SPACE)
    url = f"sqlite:///{folder}/tune.db"
    study = ["--study", "s", "--storage", url, "--dir", str(folder / "trials")]
    command = ["fairseq-doc", "tune", str(folder / "space.yaml"), *study, "--trials", TRIALS]
    command += ["--workers", 2, "--", *base(corpus.data)]

    process = start(command, folder)
    wait_for(folder, "trials/*/checkpoints/checkpoint_last.pt", process)
    process.send_signal(signal.SIGINT)
    interrupted = process.communicate(timeout=60)[0], process.returncode
    before = slots(url)
    unfinished = [
        path.parent.parent / "log.txt"
        for path in folder.glob("trials/*/checkpoints/checkpoint_last.pt")
        if "done training" not in (path.parent.parent / "log.txt").read_text()
    ]

    process = start(command, folder)
    wait_for(folder, "trials/*/command.txt", process)
    time.sleep(random.uniform(0, 8))
    process.kill()
    process.communicate()
    killed = slots(url)

    both = [start(command, folder) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    return SimpleNamespace(
        folder=folder,
        trials=folder / "trials",
        url=url,
        study=study,
        interrupted=interrupted,
        before=before,
        unfinished=unfinished,
        killed=killed,
        outputs=outputs,
        command=command,
    )


def test_an_interruption_leaves_a_study_that_goes_on(tuned):
    output, status = tuned.interrupted
    assert status == 130 and "Traceback" not in output
    assert any(slot.state == "interrupted" for slot in tuned.before)
    for log in tuned.unfinished:
        assert "terminated; the same command continues" in log.read_text()
        assert "Loaded checkpoint" in log.read_text()


def test_no_trial_is_lost_or_doubled(tuned):
    found = slots(tuned.url)
    assert [slot.complete for slot in found] == [True] * TRIALS
    settings = {slot.number: slot.settings for slot in found}
    for slot in [*tuned.before, *tuned.killed]:
        if slot.settings.keys() == settings[found[0].number].keys():  # not killed while drawn
            assert settings[slot.number] == slot.settings
    assert sorted(path.name for path in tuned.trials.glob("trial-*")) == [
        f"trial-{number:04d}" for number in settings
    ]
    for slot in found:
        log = (tuned.trials / f"trial-{slot.number:04d}" / "log.txt").read_text()
        assert log.count("done training in") == 1
        losses = re.findall(r"valid on 'valid' subset \| loss (\S+)", log)
        assert slot.value == min(map(float, losses))
    for output in tuned.outputs:
        assert f"study s: {TRIALS} trials complete, 0 of them diverged; 0 failed" in output


def test_a_further_call_trains_nothing(tuned):
    before = {path: path.stat().st_mtime_ns for path in tuned.trials.rglob("log.txt")}
    words = [str(word) for word in tuned.command[1:]]
    place = words.index("--")
    result = json.loads(doc(*words[:place], "--json", *words[place:])[0])
    assert result["complete"] == TRIALS
    assert {path: path.stat().st_mtime_ns for path in tuned.trials.rglob("log.txt")} == before
    best = result["best"]
    assert list(tuned.trials.glob("trial-*/checkpoints")) == [
        tuned.trials / f"trial-{best['trial']:04d}" / "checkpoints"
    ]


def test_the_best_trial_with_other_seeds(tuned):
    plain = ["--rerun", "best", "--seeds", "2", "--workers", "2"]
    words = [*plain, "--", "--log-interval", "7"]
    output, _ = doc("tune", *tuned.study, *words)
    values = [float(value) for value in re.findall(r"^seed \d: loss ([\d.]+)$", output, re.M)]
    assert len(values) == 2 and values[0] != values[1]
    mean = float(re.search(r"mean ([\d.]+), standard deviation", output)[1])
    assert mean == pytest.approx(sum(values) / 2, abs=2e-4)
    before = len(list(tuned.trials.glob("rerun-*/log.txt")))
    again, _ = doc("tune", *tuned.study, *words)
    assert again.splitlines()[-1] in output and before == 2
    assert "got one with --log-interval 7: remove" in refused("tune", *tuned.study, *plain)


def test_a_translation_by_its_bleu(tmp_path, monkeypatch):
    """A metric that is maximised, and a ready space."""
    monkeypatch.chdir(tmp_path)
    toy_translation.write_corpus(tmp_path / "text", "copy", 200, 20, 20)
    run_here(preprocessing(tmp_path / "text", tmp_path / "data"))
    training = SMALL_TRANSLATION.replace("--lr 1 --clip-norm 5", "--max-epoch 1 --eval-bleu")
    words = f"fairseq-train data --user-dir {PACKAGE} {training} --best-checkpoint-metric bleu "
    words += "--maximize-best-checkpoint-metric"
    study = ["--study", "s", "--storage", "tune.journal", "--trials", 1, "--json", "--"]
    result = json.loads(doc("tune", "luong", *study, *words.split())[0])
    assert result["metric"] == "bleu" and result["complete"] == 1
    assert result["best"]["value"] >= 0
