"""``fairseq-doc tune`` with real trainings: interrupted, resumed, reported, rerun."""

import re
import signal
from types import SimpleNamespace

import pytest
from conftest import (
    PACKAGE,
    SMALL_MODEL,
    SMALL_TRAINING,
    SMALL_TRANSLATION,
    doc,
    refused,
    result_of,
    wait_until,
)

from fairseq_doc.tuning import training
from fairseq_doc.tuning.storage import finite, load_study, open_storage, state_of, trial_folder

SPACE = "lr: {low: 3, high: 60, log: true}\noutput-dropout: {low: 0, high: 0.5}\n"
TRIALS = 3


def trials_of(url):
    return load_study(open_storage(url, create=False), "s").study.get_trials()


@pytest.fixture(scope="module")
def tuned(corpus, server, tmp_path_factory):
    """A study of trainings of two epochs that was interrupted by Ctrl-C, resumed, and killed; the
    trials of the killed process were run again by the next one."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "space.yaml").write_text(SPACE)
    url = f"sqlite:///{folder}/tune.db"
    study = ["--study", "s", "--storage", url, "--dir", str(folder / "trials")]
    words = f"{server.programs}/fairseq-train {corpus.data} --user-dir {PACKAGE} {SMALL_MODEL}"
    words += f" {SMALL_TRAINING.replace('--lr 10 ', '')} --max-epoch 2"
    command = ["fairseq-doc", "tune", str(folder / "space.yaml"), *study, "--trials", TRIALS]
    command += ["--workers", 2, "--", *words.split()]

    def start(streams):
        return server.start(command, folder, folder / streams)

    process = start("streams")
    wait_until(
        lambda: list(folder.glob("trials/*/checkpoints/checkpoint_last.pt")), pid=process.pid
    )
    process.kill(signal.SIGINT)
    interrupted = process.wait()
    before = trials_of(url)
    saved = folder.glob("trials/*/checkpoints/checkpoint_last.pt")
    logs = [path.parent.parent / "log.txt" for path in saved]
    unfinished = [log for log in logs if "done training" not in log.read_text()]

    def resumed():
        return sum("Loaded checkpoint" in log.read_text() for log in unfinished)

    process = start("streams")
    wait_until(resumed, pid=process.pid)
    process.kill()
    assert process.wait().status == -signal.SIGKILL
    running = [trial.number for trial in trials_of(url) if state_of(trial) == "running"]
    command[-len(words.split()) - 1 : -len(words.split()) - 1] = [f"--retry={n}" for n in running]
    ended = start("streams").wait()
    assert ended.status == 0, ended
    return SimpleNamespace(
        trials=folder / "trials",
        url=url,
        study=study,
        interrupted=interrupted,
        before=before,
        unfinished=unfinished,
        running=running,
        output=ended.out,
    )


@pytest.fixture(autouse=True)
def forked(server, monkeypatch):
    """A rerun in this process starts trainings as forks, too."""
    program = [f"{server.programs}/fairseq-train"]
    monkeypatch.setattr(training, "program_for", lambda words: program)


def test_an_interruption_leaves_a_study_that_is_resumed(tuned):
    found = tuned.interrupted
    assert found.status == 130 and "Traceback" not in found.out + found.err
    assert "waiting" in map(state_of, tuned.before) and tuned.unfinished and tuned.running
    for log in tuned.unfinished:
        assert "terminated; the same command continues" in log.read_text()
        assert "Loaded checkpoint" in log.read_text()


def test_every_trial_was_trained_to_its_end_once(tuned):
    found = finite(trials_of(tuned.url))
    assert len(found) == TRIALS == len(list(tuned.trials.glob("trial-*")))
    for trial in found:
        log = (trial_folder(tuned.trials, trial) / "log.txt").read_text()
        assert log.count("done training in") == 1
        losses = re.findall(r"valid on 'valid' subset \| loss (\S+)", log)
        assert trial.value == min(map(float, losses))
        assert not trial.params["lr"].is_integer()
    drawn = [trial.params for trial in tuned.before if trial.params]
    assert drawn and all(settings in [trial.params for trial in found] for settings in drawn)
    assert f"study s: {TRIALS} trials complete, 0 of them diverged; 0 failed" in tuned.output


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


def test_a_translation_by_its_bleu(parallel, tmp_path, monkeypatch):
    """A metric that is maximised, and a ready space."""
    monkeypatch.chdir(tmp_path)
    words = SMALL_TRANSLATION.replace("--lr 1 --clip-norm 5", "--max-epoch 1 --eval-bleu")
    words = (
        f"fairseq-train {parallel.data} --user-dir {PACKAGE} {words} --best-checkpoint-metric bleu "
    )
    words += "--maximize-best-checkpoint-metric"
    study = ["--study", "s", "--storage", "tune.journal", "--trials", 1, "--"]
    result = result_of("tune", "luong", *study, *words.split())
    assert result["metric"] == "bleu" and result["complete"] == 1
    assert result["best"]["value"] >= 0
