"""A setting, a text or a checkpoint that cannot be used gives a one-line error."""

import shutil

import pytest
from conftest import PACKAGE, error_of, evaluation, fail, fail_here, run_here, training

# fairseq's own language model and task
LSTM_LM = """--task language_modeling --arch lstm_lm --decoder-embed-dim 8 --decoder-hidden-size 8
    --decoder-out-embed-dim 8 --sample-break-mode none --tokens-per-sample 20 --batch-size 8
    --max-update 1 --cpu --num-workers 0 --disable-validation"""


@pytest.mark.parametrize("options", ["--doc-components 0,5,15", "--skip-remainder-batch"])
def test_a_wrong_setting_is_refused_and_nothing_is_written(options, corpus, tmp_path):
    output = fail_here(training(corpus.data, tmp_path / "run", f"--max-update 1 {options}"))
    assert options.split()[0] in output
    assert not list((tmp_path / "run").rglob("*.pt"))


def test_the_error_of_a_process_is_one_line(corpus, tmp_path):
    command = training(corpus.data, tmp_path).replace("--batch-size 8 ", " ")
    assert "need --batch-size" in error_of(fail(command))
    output = fail_here(f"{command} --max-tokens 9")
    assert "got --batch-size None, 9 tokens" in output


def test_no_optimizer_no_task_no_architecture(corpus, tmp_path):
    command = training(corpus.data, tmp_path).replace("--weight-decay 1.2e-6", "")
    pair = "--optimizer nt_asgd --lr-scheduler nt_asgd"
    assert "give --optimizer" in fail_here(command.replace(pair, ""))
    words = command.replace("--task bptt_language_modeling", "").replace("--bptt 40", "")
    assert "give --task bptt_language_modeling" in fail_here(words)
    bare = f"fairseq-train {corpus.data} --user-dir {PACKAGE}"
    assert "expected --arch, such as lstm_doc_lm" in fail_here(bare)


def test_a_missing_dictionary(corpus, tmp_path):
    data = shutil.copytree(corpus.data, tmp_path / "data")
    for name in ("SHA256SUMS", "dict.txt"):
        (data / name).unlink()
    assert "dict.txt: No such file" in fail_here(training(data, tmp_path / "run"))


def test_a_checkpoint_of_another_dictionary(corpus, trained, tmp_path):
    checkpoint = trained.folder / "checkpoint_last.pt"
    for name, change in (("fewer", lambda w: w[:-1]), ("order", lambda w: w[::-1])):
        data = tmp_path / name
        shutil.copytree(corpus.data, data)
        words = (data / "dict.txt").read_text().splitlines()
        (data / "dict.txt").write_text("\n".join(change(words)) + "\n")
        error = fail_here(evaluation(data, checkpoint))
        assert "dict.txt is damaged or was changed" in error
        (data / "SHA256SUMS").unlink()
        error = fail_here(evaluation(data, checkpoint))
        assert "checkpoint has a different dictionary" in error


def test_a_checkpoint_of_another_architecture(corpus, trained, tmp_path):
    shutil.copy(trained.folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    for options, problem in (
        ("--layer-dims 24,20 --doc-components 0,1,1", "a different architecture"),
        ("--layer-dims 24,26,20", "a different size"),
        ("--mogrifier-rounds 1", "missing: decoder.lstm.mogrifiers.0.rounds.0"),
    ):
        assert problem in fail_here(training(corpus.data, tmp_path, options))


def test_fairseqs_own_models_do_not_fit_the_task_and_the_optimizer(corpus, tmp_path):
    train = f"fairseq-train {corpus.data} --user-dir {PACKAGE} {LSTM_LM} --lr 1"
    run_here(f"{train} --optimizer sgd --save-dir {tmp_path}/other")
    output = fail_here(evaluation(corpus.data, tmp_path / "other" / "checkpoint_last.pt"))
    assert "got lstm_lm" in output  # a model that carries no state
    output = fail_here(f"{train} --optimizer nt_asgd --lr-scheduler nt_asgd --save-dir {tmp_path}")
    assert "needs --task bptt_language_modeling" in output


def test_a_resume_in_mid_epoch_with_other_windows(corpus, trained, tmp_path):
    middle = sorted(trained.folder.glob("checkpoint_*_*.pt"))[0]
    shutil.copy(middle, tmp_path / "checkpoint_last.pt")
    output = fail_here(training(corpus.data, tmp_path, f"{trained.options} --bptt 30"))
    assert "within an epoch" in output and "'bptt': 40" in output


def test_a_context_window_is_refused(corpus, trained):
    command = evaluation(corpus.data, trained.folder / "checkpoint_last.pt", "--context-window 5")
    assert "--context-window 0" in fail_here(command)


def test_settings_in_a_yaml_file_that_is_missing(server, tmp_path):
    """fairseq-hydra-train would train with its defaults."""
    result = server.run("fairseq-hydra-train --config-dir . --config-name run", tmp_path)
    assert result.status == 1
    assert "run.yaml does not exist" in error_of(result.out + result.err)
