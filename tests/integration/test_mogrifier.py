"""A language model with Mogrifier gates, by the commands that a user types."""

import json
import math
import shutil

import pytest
from conftest import (
    doc,
    evaluated,
    evaluation,
    fail_here,
    last_validation,
    load,
    run_here,
    training,
)

GATES = "--mogrifier-rounds 3 --mogrifier-rank 4"
OPTIONS = f"{GATES} --max-update 30"


@pytest.fixture(scope="module")
def gated(corpus, tmp_path_factory):
    """A short training."""
    folder = tmp_path_factory.mktemp("mogrifier")
    return folder, run_here(training(corpus.data, folder, OPTIONS))


def test_it_learns(gated):
    folder, output = gated
    assert last_validation(output)["nll_loss"] < math.log2(len("wwww/")) + 0.3
    state = load(folder / "checkpoint_last.pt")
    names = [name for name in state["model"] if "mogrifiers" in name]
    assert len(names) == 3 * 3 * 3  # layers, rounds, two factors and a bias


def test_evaluation_scores_ensembles_and_samples(corpus, gated, trained):
    last = gated[0] / "checkpoint_last.pt"
    options = "--gen-subset test --batch-size 4"

    def lm(command, path, *words, stdin=b""):
        return json.loads(
            doc(command, corpus.data, "--path", path, "--cpu", "--json", *words, stdin=stdin)[0]
        )

    one = lm("eval-lm", last, *options.split())
    assert one["bits"] == pytest.approx(
        evaluated(run_here(evaluation(corpus.data, last, options)))[1], abs=2e-4
    )
    text = (corpus.text / "test.txt").read_bytes()
    carried = lm("score", last, "--state", "carried", stdin=text)
    whole = lm("eval-lm", last, "--gen-subset", "test")
    assert carried["log_prob"] == pytest.approx(-whole["nll"], rel=1e-6)
    both = lm("eval-lm", f"{last}:{trained.folder / 'checkpoint1.pt'}", "--gen-subset", "test")
    assert both["models"] == 2 and both["nll"] != whole["nll"]
    samples = [
        doc("generate", corpus.data, "--path", last, "--cpu", "--length", 20, "--seed", 1)[0]
        for _ in range(2)
    ]
    assert samples[0] == samples[1] and samples[0].strip()


def test_a_checkpoint_of_other_gates_is_refused(corpus, gated, tmp_path):
    shutil.copy(gated[0] / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    for gates, problem in (
        ("--mogrifier-rounds 4 --mogrifier-rank 4", "missing: decoder.lstm.mogrifiers.0.rounds.3"),
        ("--mogrifier-rounds 3 --mogrifier-rank 5", "expected decoder.lstm.mogrifiers.0.rounds.0"),
        ("", "unknown: decoder.lstm.mogrifiers.0.rounds.0"),
    ):
        assert problem in fail_here(training(corpus.data, tmp_path, gates))
