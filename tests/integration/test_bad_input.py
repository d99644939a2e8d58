"""A setting, a text or a checkpoint that cannot be used gives a one-line error."""

import shutil

from conftest import PACKAGE, error_of, evaluation, fail, fail_here, training


def test_a_wrong_setting_is_refused_and_nothing_is_written(corpus, tmp_path):
    assert "--doc-components" in fail_here(
        training(corpus.data, tmp_path, "--doc-components 0,5,15")
    )
    assert not list(tmp_path.rglob("*.pt"))


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
    data = shutil.copytree(corpus.data, tmp_path / "order")
    words = (data / "dict.txt").read_text().splitlines()
    (data / "dict.txt").write_text("\n".join(words[::-1]) + "\n")
    assert "dict.txt is damaged or was changed" in fail_here(evaluation(data, checkpoint))
    (data / "SHA256SUMS").unlink()
    assert "checkpoint has a different dictionary" in fail_here(evaluation(data, checkpoint))


def test_a_checkpoint_of_another_architecture(corpus, trained, tmp_path):
    shutil.copy(trained.folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    options = "--layer-dims 24,20 --doc-components 0,1,1"
    assert "a different architecture" in fail_here(training(corpus.data, tmp_path, options))


def test_settings_in_a_yaml_file_that_is_missing(server, tmp_path):
    """fairseq-hydra-train would train with its defaults."""
    result = server.run("fairseq-hydra-train --config-dir . --config-name run", tmp_path)
    assert result.status == 1
    assert "run.yaml does not exist" in error_of(result.out + result.err)
