"""Preparing, training and evaluating a language model by the commands that a user types."""

import math
import re

import torch
from conftest import (
    PACKAGE,
    SMALL_MODEL,
    evaluated,
    evaluation,
    last_validation,
    run,
    run_here,
    training,
)


def count_tokens(path):
    return sum(len(line.split()) + 1 for line in path.read_text().splitlines())


def test_evaluation_agrees_with_validation_and_scores_every_token(corpus, trained):
    checkpoint = trained.folder / "checkpoint_last.pt"
    validation = last_validation(trained.output)
    perplexity, loss, tokens = evaluated(
        run_here(evaluation(corpus.data, checkpoint, "--gen-subset valid --batch-size 4"))
    )
    valid_tokens = count_tokens(corpus.text / "valid.txt")
    assert tokens == 4 * (valid_tokens // 4 - 1)
    assert abs(perplexity / validation["ppl"] - 1) < 1e-4
    assert abs(loss / validation["nll_loss"] - 1) < 1e-4

    one_column = run_here(evaluation(corpus.data, checkpoint, "--gen-subset valid"))
    assert evaluated(one_column)[2] == valid_tokens - 1
    assert f"{valid_tokens - 1:,} targets scored, 0 left out" in one_column
    for option in ("--softmax-batch 7", "--eval-window 13"):
        again = run_here(evaluation(corpus.data, checkpoint, f"--gen-subset valid {option}"))
        assert evaluated(again)[2] == valid_tokens - 1
        assert abs(evaluated(again)[1] - evaluated(one_column)[1]) < 2e-4


def test_terms_of_the_objective_are_logged_apart(trained):
    line = re.search(r"train_inner .*", trained.output).group()
    for name in ("loss", "nll_loss", "ppl", "balance_cv", "ar", "tar"):
        assert re.search(rf"\b{name}=[\d.e+-]+", line), name


HYDRA = """
common: {{user_dir: {package}, cpu: true, seed: 3, log_format: simple, log_interval: 10}}
task: {{_name: bptt_language_modeling, data: {data}, bptt: 40}}
model: {{_name: lstm_doc_lm_small, decoder_embed_dim: 16, layer_dims: "24,24,20",
        doc_components: "0,1,1,2"}}
criterion: {{_name: doc_cross_entropy, doc_balance: published, doc_lambda: 0.001, ar_alpha: 2.0,
            tar_beta: 1.0}}
optimizer: {{_name: nt_asgd, weight_decay: 1.2e-6}}
lr_scheduler: {{_name: nt_asgd}}
optimization: {{lr: [10.0], clip_norm: 0.25, max_epoch: 1}}
dataset: {{batch_size: 8, batch_size_valid: 4, num_workers: 0}}
distributed_training: {{distributed_world_size: 1}}
checkpoint: {{save_dir: {folder}/hydra}}
hydra: {{run: {{dir: {folder}/log}}}}
"""


def test_hydra_trains_a_preset_to_the_same_loss(corpus, server, tmp_path):
    model = SMALL_MODEL.replace("--arch lstm_doc_lm ", "--arch lstm_doc_lm_small ")
    by_arguments = run_here(training(corpus.data, tmp_path / "a", "--max-epoch 1", model))
    config = HYDRA.format(package=PACKAGE, data=corpus.data, folder=tmp_path)
    (tmp_path / "toy.yaml").write_text(config)
    result = server.run("fairseq-hydra-train --config-dir . --config-name toy", tmp_path)
    logged = result.out + (tmp_path / "log" / "hydra_train.log").read_text()
    assert last_validation(logged)["nll_loss"] == last_validation(by_arguments)["nll_loss"]


def test_processes_in_another_directory_show_no_warnings_about_fairseqs_own_code(
    corpus, trained, tmp_path
):
    checkpoint = trained.folder / "checkpoint_last.pt"
    for command in (
        training(corpus.data, tmp_path / "c", "--max-update 12 --tensorboard-logdir tb"),
        evaluation(corpus.data, checkpoint),
    ):
        output = run(command.replace(str(PACKAGE), "fairseq_doc"), cwd=tmp_path)
        # torch 2.15 has one about the import of fairseq, which comes before that of --user-dir.
        output = "".join(re.split(r".*`torch\.jit\.script` is deprecated.*\n.*\n", output))
        assert "Warning" not in output and "deprecat" not in output
    assert list((tmp_path / "tb").rglob("events.out.tfevents.*"))


def test_several_windows_make_one_update(corpus, trained, tmp_path):
    output = run_here(training(corpus.data, tmp_path, "--max-epoch 1 --update-freq 3"))

    def updates_of_an_epoch(text):
        return int(re.search(r"\| train \| .*num_updates (\d+)", text).group(1))

    assert updates_of_an_epoch(output) == math.ceil(updates_of_an_epoch(trained.output) / 3)


def test_from_pretrained_gives_the_evaluators_perplexity(corpus, trained):
    from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel

    hub = LSTMDocLanguageModel.from_pretrained(
        str(trained.folder), "checkpoint_last.pt", str(corpus.data)
    )
    (model,) = hub.models
    hub.task.load_dataset("test")
    tokens = hub.task.dataset("test").tokens.unsqueeze(0)
    with torch.no_grad():
        output = model(tokens[:, :-1])
        scores = model.get_normalized_probs(output, log_probs=True)
    nll = -scores.gather(-1, tokens[:, 1:].unsqueeze(-1)).mean()
    checkpoint = trained.folder / "checkpoint_last.pt"
    printed = evaluated(run_here(evaluation(corpus.data, checkpoint, "--gen-subset test")))
    assert abs(nll.item() / math.log(2) - printed[1]) < 2e-4
