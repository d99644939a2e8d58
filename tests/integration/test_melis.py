"""The models and the training of Melis et al. (2018), by the commands that a user types."""

import functools
import re

import pytest
import torch
from conftest import (
    assert_same_run,
    doc,
    evaluated,
    evaluation,
    load,
    refused,
    result_of,
    run_here,
    training,
)

MODEL = """--arch lstm_melis_lm --num-params 8000 --embedding-ratio 0.5 --layers 2 --input-dropout 0.1
    --state-dropout 0.1 --output-dropout 0.1"""
TRAINING = """--task bptt_language_modeling --criterion doc_cross_entropy --sentence-avg --l2 1e-5
    --optimizer adam --adam-betas (0.0,0.999) --adam-eps 1e-9 --clip-norm 10 --lr 0.01
    --lr-scheduler plateau --updates-per-epoch 20 --batch-size 8 --batch-size-valid 4 --bptt 10
    --best-checkpoint-metric nll_loss --num-workers 0 --seed 3 --cpu --no-epoch-checkpoints
    --log-format simple --log-interval 10"""


melis_training = functools.partial(training, model=MODEL, schedule=TRAINING)


@pytest.fixture(scope="module")
def melis(corpus, tmp_path_factory):
    """An uninterrupted run of six checks, three times the text."""
    folder = tmp_path_factory.mktemp("melis")
    output = run_here(
        melis_training(corpus.data, folder, "--max-checks 6 --lr-patience 1 --save-interval 1")
    )
    return folder, output


def losses_of(output):
    return [float(x) for x in re.findall(r"valid on .*?\| nll_loss ([\d.]+)", output)]


def test_it_learns_ends_at_its_last_check_and_keeps_the_best(melis):
    folder, output = melis
    losses = losses_of(output)
    assert len(losses) == 6 and min(losses) < losses[0]
    assert "training stops at check 6: check 6 was the last" in output
    assert sorted(path.name for path in folder.glob("*.pt")) == [
        "checkpoint_best.pt",
        "checkpoint_last.pt",
    ]
    assert load(folder / "checkpoint_best.pt")["extra_state"]["best"] == min(losses)


@pytest.mark.parametrize("first", ["--max-checks 3", "--max-update 50"])
def test_a_run_interrupted_at_a_check_or_within_an_epoch_resumes_equally(
    corpus, melis, tmp_path, first
):
    """The first window of an epoch continues from the state at the end of the previous one."""
    run_here(melis_training(corpus.data, tmp_path, f"--lr-patience 1 {first}"))
    if "--max-update" in first:  # whose extra validation of update 50 is no check
        assert load(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 50
    run_here(melis_training(corpus.data, tmp_path, "--max-checks 6 --lr-patience 1"))
    assert_same_run(tmp_path / "checkpoint_last.pt", melis[0] / "checkpoint_last.pt")


def test_the_best_validation_is_kept_between_checkpoints(corpus, melis, tmp_path):
    options = "--max-checks 6 --lr-patience 1 --save-interval 4"
    output = run_here(melis_training(corpus.data, tmp_path, options))
    assert losses_of(output) == losses_of(melis[1])
    best, expected = (load(path / "checkpoint_best.pt") for path in (tmp_path, melis[0]))
    assert best["extra_state"]["best"] == expected["extra_state"]["best"]
    for name, x in expected["model"].items():
        assert torch.equal(best["model"][name], x)
    assert_same_run(tmp_path / "checkpoint_last.pt", melis[0] / "checkpoint_last.pt")
    output = run_here(melis_training(corpus.data, tmp_path, options))
    assert not losses_of(output)  # it has ended


def test_mogrifier_and_doc_with_averaged_adam(corpus, tmp_path):
    """An interrupted run is equal; the averages are validated and saved."""
    options = """--optimizer averaged_adam --average-at 2 --lr-patience 100 --save-interval 1
        --mogrifier-rounds 3 --mogrifier-rank 4 --doc-components 0,1,0,1 --component-dropout 0.1
        --max-checks 5"""
    whole = run_here(melis_training(corpus.data, tmp_path / "whole", options))
    assert "averaging starts after check 2" in whole
    first = run_here(melis_training(corpus.data, tmp_path / "cut", f"{options} --max-update 70"))
    second = run_here(melis_training(corpus.data, tmp_path / "cut", options))
    assert losses_of(second)[-1] == losses_of(whole)[-1] and "averaging starts" not in second
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "cut")]
    assert_same_run(*paths)
    state = load(paths[0])["last_optimizer_state"]
    assert state["param_groups"][0]["averaged_steps"] == 60
    raw = state["state"][0]["shadow"]  # since the averages are in the model
    assert any(
        w.shape == raw.shape and not torch.equal(w, raw) for w in load(paths[0])["model"].values()
    )
    words = f"eval-lm {corpus.data} --path {paths[0]} --gen-subset valid --batch-size 4 --cpu"
    found = result_of(*words.split(), "--eval-window", 4000)
    assert found["bits"] == pytest.approx(losses_of(whole)[-1], abs=2e-3)
    assert losses_of(first) == losses_of(whole)[: len(losses_of(first)) - 1] + losses_of(first)[-1:]


def test_every_evaluation_of_language_models_takes_them(corpus, melis, trained):
    """fairseq-eval-lm and eval-lm agree; scores, an ensemble with an AWD-LSTM, rank, text."""
    checkpoint = melis[0] / "checkpoint_best.pt"
    perplexity, _, tokens = evaluated(run_here(evaluation(corpus.data, checkpoint)))
    settings = [corpus.data, "--cpu", "--path"]

    def json_of(command, *options, stdin=b""):
        return result_of(command, *settings, *options, stdin=stdin)

    alone = json_of("eval-lm", checkpoint)
    assert alone["tokens"] == tokens
    assert alone["perplexity"] == pytest.approx(perplexity, abs=0.006)
    other = trained.folder / "checkpoint_best.pt"
    both = json_of("eval-lm", f"{checkpoint}:{other}")
    assert both["models"] == 2
    assert both["perplexity"] < max(alone["perplexity"], json_of("eval-lm", other)["perplexity"])
    text = (corpus.text / "test.txt").read_bytes()
    carried = json_of("score", checkpoint, "--state", "carried", stdin=text)
    assert carried["log_prob"] == pytest.approx(-alone["nll"], rel=1e-5)
    assert json_of("rank", checkpoint, "--gen-subset", "valid")["rank"] > 1
    assert doc("generate", *settings, checkpoint, "--length", "5")[0].strip()


def test_samples_and_temperature(corpus, melis):
    settings = ["eval-lm", corpus.data, "--cpu", "--path", melis[0] / "checkpoint_best.pt"]
    plain = result_of(*settings)
    searched = result_of(*settings, "--temperature", "search")
    assert len(searched["searched"]) == 14
    temperature = f"{searched['temperature']:.4f}"
    assert searched["searched"][temperature] == min(searched["searched"].values())
    samples = [*settings, "--samples", "5", "--batch-size", "2"]
    first, again, other, none = (
        result_of(*samples, *more)["nll"]
        for more in ([], [], ["--seed", "2"], ["--dropout-scale", "0"])
    )
    assert first == again != other
    found = result_of(*samples, "--temperature", "search")
    given = result_of(*samples, "--temperature", repr(found["temperature"]))
    assert found["nll"] == given["nll"]  # the search draws masks, too
    two = result_of(*settings, "--batch-size", "2")
    assert none == pytest.approx(two["nll"], rel=1e-5)
    assert abs(first / two["nll"] - 1) < 0.1 and plain["samples"] == 0
    assert "--dropout-scale must be below" in refused(*samples, "--dropout-scale", "20")
