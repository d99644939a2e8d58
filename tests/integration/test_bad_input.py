import pickle
import shutil

import pytest
import torch
from conftest import PACKAGE, ROOT, evaluation, fail, run, training


def one_line(output):
    """The program's error: its last line, and no traceback of ours before it."""
    lines = [line for line in output.splitlines() if line.strip()]
    assert lines[-1].startswith("fairseq_doc: error: "), output[-2000:]
    assert "Traceback" not in output
    return lines[-1]


@pytest.mark.parametrize(
    "options, told",
    [
        ("--doc-components 0,5,15", "expected 4 numbers, for layers 0 (the embedding) to 3"),
        ("--doc-components 0,0,-1,2", "none negative; got -1"),
        ("--doc-components 0,0,0,0", "at least one positive; got none"),
        ("--doc-components a,b", "expected 4 numbers"),
        ("--component-dim 17", "must be --decoder-embed-dim, 16; got 17"),
        ("--plain-output --doc-components 0,0,0,1", "a last layer 16 wide"),
        ("--layer-dims 24,x,20", "expected positive widths"),
        ("--component-dropout 1.5", "--component-dropout must be in [0, 1); got 1.5"),
        ("--batch-size 100000", "100000 columns over the"),
        ("--max-tokens 100", "no --max-tokens"),
        ("--bptt 0", "--bptt must be at least 1 step; got 0"),
        ("--lr-scheduler fixed", "needs --lr-scheduler nt_asgd"),
        (
            "--optimizer sgd",
            "--lr-scheduler nt_asgd needs --optimizer nt_asgd; got the optimizer SGD",
        ),
        ("--skip-remainder-batch", "would leave targets out"),
        ("--lr 20,10", "expected one --lr; got 20.0,10.0"),
        ("--finetune-stages -2", "--finetune-stages must be at least -1; got -2"),
        ("--valid-subset nothing", "no binarised split 'nothing'"),
    ],
)
def test_a_wrong_setting_is_one_line_and_nothing_is_written(options, told, corpus, tmp_path):
    output = fail(training(corpus.data, tmp_path / "run", f"--max-update 1 {options}"))
    assert told in one_line(output)
    assert not list((tmp_path / "run").rglob("*.pt"))


def test_a_missing_batch_size_is_told(corpus, tmp_path):
    command = training(corpus.data, tmp_path).replace("--batch-size 8 ", " ")
    assert "expected --batch-size" in one_line(fail(command))
    assert "no --max-tokens; got --batch-size None" in one_line(fail(f"{command} --max-tokens 9"))


def test_an_empty_split_and_a_missing_dictionary(corpus, tmp_path):
    shutil.copytree(corpus.data, tmp_path / "data")
    (tmp_path / "empty.txt").write_text("")
    run(
        f"fairseq-preprocess --only-source --srcdict {corpus.data}/dict.txt "
        f"--validpref {tmp_path}/empty.txt --destdir {tmp_path}/empty --padding-factor 1"
    )
    for suffix in ("bin", "idx"):
        shutil.copy(tmp_path / "empty" / f"valid.{suffix}", tmp_path / "data" / f"valid.{suffix}")
    assert "is empty" in one_line(fail(training(tmp_path / "data", tmp_path / "run")))
    (tmp_path / "data" / "dict.txt").unlink()
    assert "no dictionary at" in one_line(fail(training(tmp_path / "data", tmp_path / "run")))


def test_a_checkpoint_of_another_dictionary(corpus, trained, tmp_path):
    checkpoint = trained.folder / "checkpoint_last.pt"
    for name, change in (("fewer", lambda w: w[:-1]), ("order", lambda w: w[::-1])):
        data = tmp_path / name
        shutil.copytree(corpus.data, data)
        words = (data / "dict.txt").read_text().splitlines()
        (data / "dict.txt").write_text("\n".join(change(words)) + "\n")
        told = one_line(fail(evaluation(data, checkpoint)))
        assert "checkpoint is of another dictionary" in told


def test_a_damaged_checkpoint_and_one_that_carries_code(corpus, trained, tmp_path):
    whole = (trained.folder / "checkpoint_last.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    assert "is not a whole checkpoint" in one_line(
        fail(evaluation(corpus.data, tmp_path / "cut.pt"))
    )

    class Code:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    for write in (torch.save, lambda x, path: path.write_bytes(pickle.dumps(x))):
        write({"model": {}, "cfg": Code()}, tmp_path / "code.pt")
        told = one_line(fail(evaluation(corpus.data, tmp_path / "code.pt")))
        assert "was refused" in told and "code.pt" in told
        assert not (tmp_path / "ran").exists()


def test_a_checkpoint_of_another_architecture(corpus, trained, tmp_path):
    # on a resume, with other layers
    shutil.copy(trained.folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")
    told = one_line(
        fail(training(corpus.data, tmp_path, "--layer-dims 24,20 --doc-components 0,1,1"))
    )
    assert "the checkpoint is of another architecture" in told
    told = one_line(fail(training(corpus.data, tmp_path, "--layer-dims 24,26,20")))
    assert "the checkpoint is of another size" in told
    # in evaluation, of a model that carries no state
    run(
        f"fairseq-train {corpus.data} --user-dir {PACKAGE} --task language_modeling --arch lstm_lm "
        "--optimizer sgd --lr 1 "
        "--decoder-embed-dim 8 --decoder-hidden-size 8 --decoder-out-embed-dim 8 --max-update 1 "
        "--sample-break-mode none --tokens-per-sample 20 --batch-size 8 --cpu --disable-validation "
        f"--save-dir {tmp_path}/other"
    )
    told = one_line(fail(evaluation(corpus.data, tmp_path / "other" / "checkpoint_last.pt")))
    assert "got lstm_lm" in told


def test_nt_asgd_with_another_task(corpus, tmp_path):
    output = fail(
        f"fairseq-train {corpus.data} --user-dir {PACKAGE} --task language_modeling --arch lstm_lm "
        "--decoder-embed-dim 8 --decoder-hidden-size 8 --decoder-out-embed-dim 8 --batch-size 8 "
        "--optimizer nt_asgd --lr-scheduler nt_asgd --lr 1 --max-update 1 --cpu "
        f"--sample-break-mode none --tokens-per-sample 20 --save-dir {tmp_path}"
    )
    assert "needs --task bptt_language_modeling" in one_line(output)


def test_a_resume_in_mid_epoch_with_other_windows(corpus, trained, tmp_path):
    middle = sorted(trained.folder.glob("checkpoint_*_*.pt"))[0]
    shutil.copy(middle, tmp_path / "checkpoint_last.pt")
    told = one_line(fail(training(corpus.data, tmp_path, f"{trained.options} --bptt 30")))
    assert "in mid-epoch with {" in told and "'bptt': 40" in told


def test_a_context_window_is_refused(corpus, trained):
    checkpoint = trained.folder / "checkpoint_last.pt"
    output = fail(evaluation(corpus.data, checkpoint, "--context-window 5"))
    assert "--context-window: expected 0" in one_line(output)


@pytest.mark.parametrize(
    "arguments, told",
    [
        ("ptb {text} {new}", "expected 929589 tokens, as published"),
        ("text {new} {new}", "expected text in"),
        ("text {text} {data}", "exists"),
        ("music {text} {new}", "expected ptb, wikitext2 or text; got music"),
    ],
)
def test_preparation_refuses(arguments, told, corpus, tmp_path):
    places = {"text": corpus.text, "data": corpus.data, "new": tmp_path / "new"}
    output = fail(f"{ROOT}/scripts/prepare_lm.sh {arguments.format(**places)}")
    assert told in output.splitlines()[-1]
    assert not (tmp_path / "new").exists()
