"""A setting, a text or a checkpoint that cannot be used gives a one-line error."""

import pickle
import shutil

import pytest
import torch
from conftest import PACKAGE, ROOT, evaluation, fail, fail_here, refused, run_here, training

# fairseq's own language model and task
LSTM_LM = """--task language_modeling --arch lstm_lm --decoder-embed-dim 8 --decoder-hidden-size 8
    --decoder-out-embed-dim 8 --sample-break-mode none --tokens-per-sample 20 --batch-size 8
    --max-update 1 --cpu --num-workers 0 --disable-validation"""


def error_of(output):
    """The one-line error: the last line, without a traceback before it."""
    lines = [line for line in output.splitlines() if line.strip()]
    assert lines[-1].startswith("fairseq_doc: error: "), output[-2000:]
    assert "Traceback" not in output
    return lines[-1]


@pytest.mark.parametrize(
    "options, problem",
    [
        ("--doc-components 0,5,15", "expected 4 numbers"),
        ("--batch-size 100000", "100000 columns"),
        ("--max-tokens 100", "no --max-tokens"),
        ("--bptt 0", "--bptt must be at least 1; got 0"),
        ("--optimizer sgd", "needs --optimizer nt_asgd"),
        ("--skip-remainder-batch", "--skip-remainder-batch"),
        ("--valid-subset nothing", "no binarised split 'nothing'"),
    ],
)
def test_a_wrong_setting_is_refused_and_nothing_is_written(options, problem, corpus, tmp_path):
    output = fail_here(training(corpus.data, tmp_path / "run", f"--max-update 1 {options}"))
    assert problem in error_of(output)
    assert not list((tmp_path / "run").rglob("*.pt"))


def test_the_error_of_a_process_is_one_line(corpus, tmp_path):
    command = training(corpus.data, tmp_path).replace("--batch-size 8 ", " ")
    assert "needs --batch-size" in error_of(fail(command))
    output = fail_here(f"{command} --max-tokens 9")
    assert "no --max-tokens; got --batch-size None" in error_of(output)


def test_no_optimizer_no_task_no_architecture(corpus, tmp_path):
    command = training(corpus.data, tmp_path).replace("--weight-decay 1.2e-6", "")
    pair = "--optimizer nt_asgd --lr-scheduler nt_asgd"
    assert f"give {pair}" in error_of(fail_here(command.replace(pair, "")))
    words = command.replace("--task bptt_language_modeling", "").replace("--bptt 40", "")
    assert "give --task bptt_language_modeling" in error_of(fail_here(words))
    bare = f"fairseq-train {corpus.data} --user-dir {PACKAGE}"
    assert "expected --arch, such as lstm_doc_lm" in error_of(fail_here(bare))


def test_an_empty_split_and_a_missing_dictionary(corpus, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(corpus.data, data)
    (data / "SHA256SUMS").unlink()
    (tmp_path / "empty.txt").write_text("")
    run_here(
        f"fairseq-preprocess --only-source --srcdict {corpus.data}/dict.txt "
        f"--validpref {tmp_path}/empty.txt --destdir {tmp_path}/empty --padding-factor 1"
    )
    for suffix in ("bin", "idx"):
        shutil.copy(tmp_path / "empty" / f"valid.{suffix}", data / f"valid.{suffix}")
    assert "is empty" in error_of(fail_here(training(data, tmp_path / "run")))
    (data / "dict.txt").unlink()
    assert "dict.txt: No such file" in error_of(fail_here(training(data, tmp_path / "run")))


def test_a_checkpoint_of_another_dictionary(corpus, trained, tmp_path):
    checkpoint = trained.folder / "checkpoint_last.pt"
    for name, change in (("fewer", lambda w: w[:-1]), ("order", lambda w: w[::-1])):
        data = tmp_path / name
        shutil.copytree(corpus.data, data)
        words = (data / "dict.txt").read_text().splitlines()
        (data / "dict.txt").write_text("\n".join(change(words)) + "\n")
        error = error_of(fail_here(evaluation(data, checkpoint)))
        assert "dict.txt is damaged, or was changed after it was prepared" in error
        (data / "SHA256SUMS").unlink()
        error = error_of(fail_here(evaluation(data, checkpoint)))
        assert "checkpoint has another dictionary" in error


def test_a_damaged_checkpoint_and_one_that_carries_code(corpus, trained, tmp_path):
    whole = (trained.folder / "checkpoint_last.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    output = fail_here(evaluation(corpus.data, tmp_path / "cut.pt"))
    assert "is not a whole checkpoint" in error_of(output)

    for write in (torch.save, lambda x, path: path.write_bytes(pickle.dumps(x))):
        write({"model": {}, "cfg": Code(tmp_path / "ran")}, tmp_path / "code.pt")
        error = error_of(fail_here(evaluation(corpus.data, tmp_path / "code.pt")))
        assert "was refused" in error or "is not a whole checkpoint" in error
        assert not (tmp_path / "ran").exists()


def test_settings_of_a_checkpoint_that_fairseq_would_evaluate(corpus, trained, tmp_path):
    """Before, ``eval(args.decoder_layers)`` ran while the model was built."""
    state = torch.load(trained.folder / "checkpoint_last.pt")
    code = f"open({str(tmp_path / 'ran')!r}, 'w')"
    state["cfg"]["model"] = {"_name": "fconv_lm", "decoder_layers": code, "tokens_per_sample": 9}
    torch.save(state, tmp_path / "code.pt")
    error = error_of(fail_here(evaluation(corpus.data, tmp_path / "code.pt")))
    assert "settings, which a checkpoint may bring along, must not run code" in error
    assert "is not evaluated" in refused("eval-lm", corpus.data, "--path", tmp_path / "code.pt")
    assert not (tmp_path / "ran").exists()


class Code:
    """Writes a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_checkpoint_of_another_architecture(corpus, trained, tmp_path):
    shutil.copy(trained.folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    for options, problem in (
        ("--layer-dims 24,20 --doc-components 0,1,1", "another architecture"),
        ("--layer-dims 24,26,20", "another size"),
    ):
        assert problem in error_of(fail_here(training(corpus.data, tmp_path, options)))


def test_fairseqs_own_models_do_not_fit_the_task_and_the_optimizer(corpus, tmp_path):
    train = f"fairseq-train {corpus.data} --user-dir {PACKAGE} {LSTM_LM} --lr 1"
    run_here(f"{train} --optimizer sgd --save-dir {tmp_path}/other")
    output = fail_here(evaluation(corpus.data, tmp_path / "other" / "checkpoint_last.pt"))
    assert "got lstm_lm" in error_of(output)  # a model that carries no state
    output = fail_here(f"{train} --optimizer nt_asgd --lr-scheduler nt_asgd --save-dir {tmp_path}")
    assert "needs --task bptt_language_modeling" in error_of(output)


def test_a_resume_in_mid_epoch_with_other_windows(corpus, trained, tmp_path):
    middle = sorted(trained.folder.glob("checkpoint_*_*.pt"))[0]
    shutil.copy(middle, tmp_path / "checkpoint_last.pt")
    output = fail_here(training(corpus.data, tmp_path, f"{trained.options} --bptt 30"))
    assert "inside a pass over the text" in error_of(output) and "'bptt': 40" in error_of(output)


def test_a_context_window_is_refused(corpus, trained):
    command = evaluation(corpus.data, trained.folder / "checkpoint_last.pt", "--context-window 5")
    assert "--context-window 0" in error_of(fail_here(command))


def test_preparation_does_not_overwrite(corpus, tmp_path):
    assert "exists" in refused("prepare-lm", "text", corpus.text, corpus.data)


def test_broken_settings_in_yaml(tmp_path):
    (tmp_path / "run.yaml").write_text(f"common:\n  user_dir: {PACKAGE}\n task: [x\n")
    output = fail(
        f"fairseq-hydra-train --config-dir {tmp_path} --config-name run",
        tmp_path,
        PYTHONPATH=str(ROOT),
    )
    error = error_of(output)
    assert f'{tmp_path}/run.yaml", line 3' in error and "expected <block end>" in error
