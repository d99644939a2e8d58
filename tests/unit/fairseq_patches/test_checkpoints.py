import argparse
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.errors import FairseqDocError

from ..conftest import assert_close

# fairseq reads its configuration with hydra's old interface.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class RunsCode:
    """Its pickle creates a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def checkpoint(**more):
    """As much of one as fairseq needs to read it."""
    history = {
        "criterion_name": "c",
        "optimizer_name": "o",
        "lr_scheduler_state": {},
        "num_updates": 3,
    }
    return {
        "args": None,
        "cfg": {"model": {"_name": "lstm_doc_lm"}},
        "model": {"weight": torch.arange(6.0).view(2, 3)},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **more,
    }


def load(path):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


def save_zip(value, path):
    torch.save(value, path)


def save_old(value, path):
    torch.save(value, path, _use_new_zipfile_serialization=False)


def save_pickle(value, path):
    Path(path).write_bytes(pickle.dumps(value, protocol=2))


@pytest.mark.parametrize("save", [save_zip, save_old])
def test_a_checkpoint_with_a_namespace_is_read(tmp_path, save):
    args = argparse.Namespace(arch="lstm_doc_lm", task="bptt_language_modeling")
    save(checkpoint(args=args, extra=argparse.Namespace(a=1)), tmp_path / "c.pt")
    state = load(tmp_path / "c.pt")
    assert state["args"].arch == "lstm_doc_lm"
    assert state["extra"] == argparse.Namespace(a=1)
    assert state["cfg"].model._name == "lstm_doc_lm"
    assert_close(state["model"], checkpoint()["model"], rtol=0, atol=0)


def test_arrays_of_numbers_are_read_and_arrays_of_objects_refused(tmp_path):
    """The first are the counts of --eval-bleu, of one worker and of several."""
    for number in ("int64", "float64"):
        save_zip(checkpoint(counts=np.arange(4).astype(number)), tmp_path / "c.pt")
        counts = load(tmp_path / "c.pt")["counts"]
        assert counts.dtype == number and counts.tolist() == [0, 1, 2, 3]
    marker = tmp_path / "ran"
    for value in (1, RunsCode(marker)):
        save_zip(checkpoint(counts=np.array([value], dtype=object)), tmp_path / "c.pt")
        with pytest.raises(FairseqDocError, match=r"c\.pt was refused: .* could run code"):
            load(tmp_path / "c.pt")
    assert not marker.exists()


def test_what_the_trainer_sends_to_other_workers_is_read_there(tmp_path):
    """fairseq sends the first worker's state, tensors apart, through torch.save and torch.load."""
    save_zip(checkpoint(), tmp_path / "c.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(tmp_path / "c.pt", load_on_all_ranks=False)
    sent = {**state, "model": distributed_utils._TensorPlaceholder(index=0)}
    save_zip(sent, tmp_path / "sent")
    received = torch.load(tmp_path / "sent")
    assert received["model"].index == 0
    assert received["cfg"] == checkpoint()["cfg"]


@pytest.mark.parametrize("save", [save_zip, save_old, save_pickle])
def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(tmp_path, save):
    marker = tmp_path / "ran"
    save(checkpoint(extra=RunsCode(marker)), tmp_path / "c.pt")
    with pytest.raises(FairseqDocError, match=r"c\.pt was refused: .* could run code"):
        load(tmp_path / "c.pt")
    assert not marker.exists()
    pickle.loads(pickle.dumps(RunsCode(marker)))  # it is no dud
    assert marker.exists()


@pytest.mark.parametrize("save", [save_zip, save_old])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_checkpoint(tmp_path, save, share):
    path = tmp_path / "c.pt"
    save(checkpoint(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(FairseqDocError, match=r"c\.pt is not a whole checkpoint: expected a file"):
        load(path)


def test_a_text_file(tmp_path):
    (tmp_path / "c.pt").write_text("a corpus , not a checkpoint\n")
    with pytest.raises(FairseqDocError, match="is not a whole checkpoint: .* of another kind"):
        load(tmp_path / "c.pt")


def test_a_torch_file_of_another_kind(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "c.pt")
    with pytest.raises(FairseqDocError, match="is not a whole checkpoint: .* of another kind"):
        load(tmp_path / "c.pt")


def test_a_missing_file_stays_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "c.pt")


def test_a_copy_that_is_killed_leaves_the_last_checkpoint(monkeypatch, tmp_path):
    new, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    new.write_bytes(b"new")
    last.write_bytes(b"old")

    def killed(source, destination):
        Path(destination).write_bytes(b"n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {new.name, last.name}
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {new.name, last.name}
