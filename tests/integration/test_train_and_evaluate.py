"""Preparing, training and evaluating a language model by the commands that a user types."""

import re

from conftest import PACKAGE, evaluated, evaluation, last_validation, run, run_here, training


def test_evaluation_agrees_with_validation_and_scores_every_token(corpus, trained):
    checkpoint = trained.folder / "checkpoint_last.pt"
    validation = last_validation(trained.output)
    perplexity, loss, tokens = evaluated(
        run_here(evaluation(corpus.data, checkpoint, "--gen-subset valid --batch-size 4"))
    )
    lines = (corpus.text / "valid.txt").read_text().splitlines()
    valid_tokens = sum(len(line.split()) + 1 for line in lines)
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
