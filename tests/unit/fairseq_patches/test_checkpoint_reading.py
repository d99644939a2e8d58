import argparse
import pickle
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
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import checkpoint_reading

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
        "cfg": {
            "model": {"_name": "lstm_doc_lm"},
            "task": {"_name": "bptt_language_modeling"},
        },
        "model": {"weight": torch.arange(6.0).view(2, 3)},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **more,
    }


def load(path, overrides=None):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)


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


def test_a_refused_pickle_that_asks_for_petabytes(tmp_path):
    """A name that is not allowed, then a text of 2^60 bytes (BINUNICODE8)."""
    path = tmp_path / "c.pt"
    path.write_bytes(b"\x80\x04cposix\nsystem\n\x8d" + (2**60).to_bytes(8, "little") + b"x.")
    with pytest.raises(FairseqDocError, match=r"c\.pt is not a whole checkpoint: expected a file"):
        load(path)


@pytest.mark.parametrize("name", [b"torch.FloatStorage", b"torch._utils", b"_rebuild_tensor_v2"])
def test_an_old_checkpoint_cut_inside_a_name(tmp_path, name):
    """The half of a name is no name that a checkpoint may have."""
    path = tmp_path / "c.pt"
    save_old(checkpoint(), path)
    whole = path.read_bytes()
    if name not in whole:
        name = name.replace(b".", b"\n", 1)  # module and class, a line each
    path.write_bytes(whole[: whole.index(name) + len(name) - 3])
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


def test_what_is_no_file(tmp_path):
    with pytest.raises(FairseqDocError, match=r"no checkpoint at .*c\.pt: expected a file"):
        load(tmp_path / "c.pt")
    for other in (tmp_path, "/dev/zero"):
        with pytest.raises(
            FairseqDocError, match="expected a checkpoint, a regular file; got some"
        ):
            load(other)


# Damage that leaves an archive


@pytest.fixture
def archive(tmp_path):
    """A checkpoint with its path, its records' (offset, size) and a way to write it again."""
    path = tmp_path / "c.pt"
    save_zip(checkpoint(), path)
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


def test_a_byte_changed_anywhere_is_refused_or_changes_nothing(archive):
    expected = load(archive)["model"]["weight"]
    whole, refused = archive.read_bytes(), 0
    for place in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        archive.write_bytes(damaged)
        try:
            assert torch.equal(load(archive)["model"]["weight"], expected)
        except FairseqDocError as error:
            assert str(archive) in str(error)
            refused += 1
    assert refused > 5


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


# What a checkpoint holds


@pytest.mark.parametrize("model", [None, 5, "x", [], {}, {"weight": 1}, {1: torch.ones(1)}])
def test_a_model_that_is_none(tmp_path, model):
    save_zip(checkpoint(model=model), tmp_path / "c.pt")
    error = refusal(load, tmp_path / "c.pt")
    assert error.startswith(f"{tmp_path}/c.pt is not a whole checkpoint") and "tensor" in error


@pytest.mark.parametrize("missing", ["model", "cfg", "extra_state", "optimizer_history"])
def test_a_part_that_is_missing(tmp_path, missing):
    state = checkpoint()
    del state[missing]
    save_zip(state, tmp_path / "c.pt")
    assert "is not a whole checkpoint" in refusal(load, tmp_path / "c.pt")


@pytest.mark.parametrize("settings", [None, 5, "x", [], {}, {"model": {"_name": "x"}}])
def test_settings_that_are_none(tmp_path, settings):
    save_zip(checkpoint(cfg=settings), tmp_path / "c.pt")
    assert "is not a whole checkpoint" in refusal(load, tmp_path / "c.pt")


@pytest.mark.parametrize("value", [None, 5, "x", [], [1, 2], torch.ones(2)])
def test_a_file_that_holds_something_else(tmp_path, value):
    save_zip(value, tmp_path / "c.pt")
    assert "is not a whole checkpoint" in refusal(load, tmp_path / "c.pt")


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
    save_zip(state, tmp_path / "c.pt")
    loaded = load(tmp_path / "c.pt")
    for settings in (loaded["cfg"].model, loaded["args"] if legacy else loaded["cfg"].model):
        assert settings.encoder_embed_path is None and settings.decoder_embed_path is None


@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_a_component_threshold_is_named_and_left_out(tmp_path, caplog, threshold):
    saved = checkpoint()
    saved["cfg"]["model"]["component_threshold"] = threshold
    save_zip(saved, tmp_path / "c.pt")
    load(tmp_path / "c.pt")
    assert ("--component-threshold 0.4" in caplog.text) == (threshold > 0)


@pytest.mark.parametrize("kind", ["DictConfig", "Namespace"])
def test_an_option_younger_than_the_checkpoint_can_be_overridden(tmp_path, kind):
    state = checkpoint()
    settings = {"_name": "lstm_doc_lm", "layer_dims": "6,5"}
    state["cfg"]["model"] = argparse.Namespace(**settings) if kind == "Namespace" else settings
    save_zip(state, tmp_path / "c.pt")
    overrides = {"matmul_precision": "bfloat16", "layer_dims": "7,5", "no_such_option": 1}
    model = load(tmp_path / "c.pt", overrides)["cfg"].model
    assert (model.matmul_precision, model.layer_dims) == ("bfloat16", "7,5")
    assert not hasattr(load(tmp_path / "c.pt")["cfg"].model, "matmul_precision")


# Code


@pytest.mark.parametrize("save", [save_zip, save_old, save_pickle])
@pytest.mark.parametrize("place", ["cfg", "args", "last_optimizer_state", "model", "extra_state"])
def test_code_in_any_part_is_refused_and_not_run(tmp_path, save, place):
    marker = tmp_path / "ran"
    value = {"state": {0: {"momentum_buffer": RunsCode(marker)}}}
    save(checkpoint(**{place: value}), tmp_path / "c.pt")
    with pytest.raises(FairseqDocError, match=r"c\.pt was refused: .* could run code"):
        load(tmp_path / "c.pt")
    assert not marker.exists()


def test_an_environment_that_lets_code_run(tmp_path, monkeypatch):
    save_zip(checkpoint(extra=RunsCode(tmp_path / "ran")), tmp_path / "c.pt")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert "unset it" in refusal(load, tmp_path / "c.pt")
    assert not (tmp_path / "ran").exists()


# What is no fault of the file


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_that_is_missing(tmp_path, monkeypatch, error):
    save_zip(checkpoint(), tmp_path / "c.pt")
    monkeypatch.setattr("torch.load", mock.Mock(side_effect=error))
    message = refusal(load, tmp_path / "c.pt")
    assert "no memory is left" in message and "not a whole" not in message


def test_a_disk_that_fails(tmp_path, monkeypatch):
    save_zip(checkpoint(), tmp_path / "c.pt")
    monkeypatch.setattr("torch.load", mock.Mock(side_effect=OSError(5, "Input/output error")))
    assert refusal(load, tmp_path / "c.pt") == f"cannot read {tmp_path}/c.pt: Input/output error"


def test_a_file_without_checksums_is_named(tmp_path, caplog):
    for save, warned in ((save_zip, False), (save_old, True)):
        caplog.clear()
        save(checkpoint(), tmp_path / "c.pt")
        load(tmp_path / "c.pt")
        assert ("c.pt has no checksums" in caplog.text) == warned


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_to_restore_that_is_none_is_refused(tmp_path, kind):
    """fairseq would train from the beginning without a word."""
    path = tmp_path / "begin.pt"
    if kind == "folder":
        path.mkdir()
    seen = []
    restoring = checkpoint_reading._of_named_file(lambda cfg, trainer: seen.append(cfg))
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
