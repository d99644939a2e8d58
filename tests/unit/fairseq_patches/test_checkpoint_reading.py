import argparse
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import refusal
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches import checkpoint_reading

from ..conftest import assert_close

CODE = re.compile(r"c\.pt was refused: .* could run code")

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
        "cfg": {"model": {"_name": "lstm_doc_lm"}, "task": {"_name": "bptt_language_modeling"}},
        "model": {"weight": torch.arange(6.0).view(2, 3)},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **more,
    }


def load(path, overrides=None):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)


def test_a_checkpoint_with_a_namespace_is_read(tmp_path):
    args = argparse.Namespace(arch="lstm_doc_lm", task="bptt_language_modeling")
    torch.save(checkpoint(args=args, extra=argparse.Namespace(a=1)), tmp_path / "c.pt")
    state = load(tmp_path / "c.pt")
    assert state["args"].arch == "lstm_doc_lm"
    assert state["extra"] == argparse.Namespace(a=1)
    assert state["cfg"].model._name == "lstm_doc_lm"
    assert_close(state["model"], checkpoint()["model"], rtol=0, atol=0)


def test_arrays_of_numbers_are_read_and_arrays_of_objects_refused(tmp_path):
    """The first are the counts of --eval-bleu, of one worker and of several."""
    for number in ("int64", "float64"):
        torch.save(checkpoint(counts=np.arange(4).astype(number)), tmp_path / "c.pt")
        counts = load(tmp_path / "c.pt")["counts"]
        assert counts.dtype == number and counts.tolist() == [0, 1, 2, 3]
    marker = tmp_path / "ran"
    for value in (1, RunsCode(marker)):
        torch.save(checkpoint(counts=np.array([value], dtype=object)), tmp_path / "c.pt")
        assert CODE.search(refusal(load, tmp_path / "c.pt"))
    assert not marker.exists()


def test_what_the_trainer_sends_to_other_workers_is_read_there(tmp_path):
    """fairseq sends the first worker's state, tensors apart, through torch.save and torch.load."""
    torch.save(checkpoint(), tmp_path / "c.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(tmp_path / "c.pt", load_on_all_ranks=False)
    sent = {**state, "model": distributed_utils._TensorPlaceholder(index=0)}
    torch.save(sent, tmp_path / "sent")
    received = torch.load(tmp_path / "sent")
    assert received["model"].index == 0
    assert received["cfg"] == checkpoint()["cfg"]


@pytest.mark.parametrize("place", ["extra", "cfg", "args", "last_optimizer_state", "model"])
def test_code_in_any_part_is_refused_and_not_run(tmp_path, place):
    marker = tmp_path / "ran"
    value = {"state": {0: {"momentum_buffer": RunsCode(marker)}}}
    torch.save(checkpoint(**{place: value}), tmp_path / "c.pt")
    assert CODE.search(refusal(load, tmp_path / "c.pt"))
    assert not marker.exists()
    pickle.loads(pickle.dumps(RunsCode(marker)))  # it is no dud
    assert marker.exists()


def test_an_environment_that_lets_code_run(tmp_path, monkeypatch):
    torch.save(checkpoint(extra=RunsCode(tmp_path / "ran")), tmp_path / "c.pt")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert "unset it" in refusal(load, tmp_path / "c.pt")
    assert not (tmp_path / "ran").exists()


def before_torch_1_6(path):
    torch.save(checkpoint(), path, _use_new_zipfile_serialization=False)


def archive_after_a_pickle(path):
    torch.save(checkpoint(), path)
    path.write_bytes(pickle.dumps(checkpoint(), protocol=2) + path.read_bytes())


def without(part):
    return lambda path: torch.save({k: v for k, v in checkpoint().items() if k != part}, path)


NOT_WHOLE = {
    "text": lambda path: path.write_text("a corpus , not a checkpoint\n"),
    "empty": lambda path: path.write_bytes(b""),
    "pickle": lambda path: path.write_bytes(pickle.dumps(checkpoint(), protocol=2)),
    "torch 1.5": before_torch_1_6,
    "archive after a pickle": archive_after_a_pickle,
    "weights alone": lambda path: torch.save({"weight": torch.ones(2)}, path),
    **{
        f"{value!r}": lambda path, value=value: torch.save(value, path)
        for value in (None, 5, "x", [], [1, 2], torch.ones(2))
    },
    **{
        f"model {value!r}": lambda path, value=value: torch.save(checkpoint(model=value), path)
        for value in (None, 5, "x", [], {}, {"weight": 1}, {1: torch.ones(1)})
    },
    **{
        f"cfg {value!r}": lambda path, value=value: torch.save(checkpoint(cfg=value), path)
        for value in (None, 5, "x", [], {}, {"model": {"_name": "x"}})
    },
    **{
        f"no {part}": without(part) for part in ("model", "cfg", "extra_state", "optimizer_history")
    },
}


@pytest.mark.parametrize("write", NOT_WHOLE.values(), ids=NOT_WHOLE.keys())
def test_what_is_no_whole_checkpoint_is_refused(tmp_path, write):
    path = tmp_path / "c.pt"
    write(path)
    assert refusal(load, path).startswith(f"{path} is not a whole checkpoint: expected an archive")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_checkpoint(archive, share):
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(share * len(whole))])
    assert "is not a whole checkpoint" in refusal(load, archive)


def test_what_is_no_file(tmp_path):
    assert "c.pt: No such file" in refusal(load, tmp_path / "c.pt")
    for other in (tmp_path, "/dev/zero"):
        assert "expected a regular file; got a" in refusal(load, other)


@pytest.fixture
def archive(tmp_path):
    """A checkpoint with its path, its records' (offset, size) and a way to write it again."""
    path = tmp_path / "c.pt"
    torch.save(checkpoint(), path)
    return path


def records_of(path):
    with zipfile.ZipFile(path) as records:
        return {
            record.filename.partition("/")[2]: records.read(record) for record in records.infolist()
        }


def rewritten(path, records, compression=zipfile.ZIP_STORED):
    """The archive with these (name, contents)."""
    with zipfile.ZipFile(path, "w", compression) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        for name, contents in records:
            file.writestr(f"archive/{name}", contents)
    return path


def test_a_flipped_bit_of_a_weight(archive):
    whole = archive.read_bytes()
    weight = records_of(archive)["data/0"]
    assert len(weight) == 6 * 4 and whole.count(weight) == 1
    place = whole.index(weight)
    for bit in range(0, 8 * len(weight), 7):
        damaged = bytearray(whole)
        damaged[place + bit // 8] ^= 1 << bit % 8
        archive.write_bytes(damaged)
        assert "not a whole checkpoint" in refusal(load, archive)
    archive.write_bytes(whole)
    load(archive)


def test_two_records_of_one_name(archive, tmp_path):
    marker = tmp_path / "ran"
    records = list(records_of(archive).items())
    code = pickle.dumps(checkpoint(extra=RunsCode(marker)), protocol=2)
    for name in ("data.pkl", "DATA.PKL"):  # torch's reader ignores case
        for many in ([(name, code), *records], [*records, (name, code)]):
            error = refusal(load, rewritten(tmp_path / "two.pt", many))
            assert "was refused: it holds two records of one name" in error
    load(rewritten(tmp_path / "one.pt", records))
    assert not marker.exists()


def test_an_archive_that_expands(archive, tmp_path):
    records = [*records_of(archive).items(), ("more", bytes(10**7))]
    packed = rewritten(tmp_path / "packed.pt", records, zipfile.ZIP_DEFLATED)
    assert "expands" in refusal(load, packed)


@pytest.mark.parametrize("legacy", [False, True])
def test_the_file_of_embeddings_is_forgotten(tmp_path, legacy):
    """A model is used without the file that its training started from."""
    paths = {"encoder_embed_path": "/gone", "decoder_embed_path": "/gone"}
    state = checkpoint()
    if legacy:
        state["cfg"] = None
        state["args"] = argparse.Namespace(arch="lstm", task="translation", **paths)
    else:
        state["cfg"]["model"].update(paths)
    torch.save(state, tmp_path / "c.pt")
    loaded = load(tmp_path / "c.pt")
    for settings in (loaded["cfg"].model, loaded["args"] if legacy else loaded["cfg"].model):
        assert settings.encoder_embed_path is None and settings.decoder_embed_path is None


@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_a_component_threshold_is_named_and_left_out(tmp_path, caplog, threshold):
    saved = checkpoint()
    saved["cfg"]["model"]["component_threshold"] = threshold
    torch.save(saved, tmp_path / "c.pt")
    load(tmp_path / "c.pt")
    assert ("--component-threshold 0.4" in caplog.text) == (threshold > 0)


@pytest.mark.parametrize("kind", ["DictConfig", "Namespace"])
def test_an_option_younger_than_the_checkpoint_can_be_overridden(tmp_path, kind):
    state = checkpoint()
    settings = {"_name": "lstm_doc_lm", "layer_dims": "6,5"}
    state["cfg"]["model"] = argparse.Namespace(**settings) if kind == "Namespace" else settings
    torch.save(state, tmp_path / "c.pt")
    overrides = {"matmul_precision": "bfloat16", "layer_dims": "7,5", "no_such_option": 1}
    model = load(tmp_path / "c.pt", overrides)["cfg"].model
    assert (model.matmul_precision, model.layer_dims) == ("bfloat16", "7,5")
    assert not hasattr(load(tmp_path / "c.pt")["cfg"].model, "matmul_precision")


@pytest.mark.parametrize(
    "error, message",
    [
        (MemoryError(), "no memory is left to read "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), "no memory is left to "),
        (OSError(5, "Input/output error"), "c.pt: Input/output error"),
    ],
)
def test_what_is_no_fault_of_the_file(archive, monkeypatch, error, message):
    monkeypatch.setattr("torch.load", mock.Mock(side_effect=error))
    refused = refusal(load, archive)
    assert message in refused and "not a whole" not in refused


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_to_restore_that_is_none_is_refused(tmp_path, kind):
    """fairseq would train from the beginning without a word."""
    path = tmp_path / "begin.pt"
    if kind == "folder":
        path.mkdir()
    seen = []

    def restoring(cfg, trainer):
        return checkpoint_reading.load_named_file(
            lambda cfg, trainer: seen.append(cfg), cfg, trainer
        )

    trainer = SimpleNamespace(checkpoint_suffix="")
    message = refusal(restoring, SimpleNamespace(restore_file=str(path)), trainer)
    assert str(path) in message and seen == []
    restoring(SimpleNamespace(restore_file="checkpoint_last.pt"), trainer)  # the first start
    assert len(seen) == 1


@pytest.mark.parametrize("package", ["numpy.core", "numpy._core"])
def test_an_array_of_another_numpy_is_read(tmp_path, package):
    """numpy 2 renamed the module of the function that makes arrays."""
    array = np.arange(6.0).reshape(2, 3)
    torch.save({"counts": array}, tmp_path / "own.pt")
    own = f"{array.__reduce__()[0].__module__}\n".encode()
    with (
        zipfile.ZipFile(tmp_path / "own.pt") as old,
        zipfile.ZipFile(tmp_path / "x.pt", "w") as new,
    ):
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                assert own in content
                content = content.replace(own, f"{package}.multiarray\n".encode())
            new.writestr(name, content)
    assert_close(torch.load(tmp_path / "x.pt")["counts"], array, rtol=0, atol=0)
