import argparse
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import refusal
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches.checkpoint_reading import load_named_file

from ..conftest import assert_close

CODE = re.compile(r"c\.pt is not a complete checkpoint.*types that could run code")

# fairseq reads its configuration with hydra's old interface.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class RunsCode:
    """Its pickle creates a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.pt"


@pytest.fixture
def archive(path):
    """The file of a checkpoint."""
    torch.save(checkpoint(), path)
    return path


@pytest.fixture
def marker(tmp_path):
    """A file that code in a checkpoint would make."""
    yield tmp_path / "ran"
    assert not (tmp_path / "ran").exists()


def checkpoint(**more):
    """As much of one as fairseq needs to read it."""
    names = ("criterion_name", "optimizer_name", "lr_scheduler_state", "num_updates")
    return {
        "args": None,
        "cfg": {"model": {"_name": "lstm_doc_lm"}, "task": {"_name": "bptt_language_modeling"}},
        "model": {"weight": torch.arange(6.0).view(2, 3)},
        "optimizer_history": [dict(zip(names, ("c", "o", {}, 3), strict=True))],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **more,
    }


def load(path, overrides=None):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)


def reloaded(path, overrides=None, model=None, **more):
    """A checkpoint, written and read; ``model``: settings of the model."""
    state = checkpoint(**more)
    if model is not None:
        state["cfg"]["model"] = model
    torch.save(state, path)
    return load(path, overrides)


def test_a_checkpoint_with_a_namespace_is_read(path):
    args = argparse.Namespace(arch="lstm_doc_lm", task="bptt_language_modeling")
    state = reloaded(path, args=args, extra=argparse.Namespace(a=1))
    assert state["args"].arch == state["cfg"].model._name == "lstm_doc_lm"
    assert state["extra"] == argparse.Namespace(a=1)
    assert_close(state["model"], checkpoint()["model"], rtol=0, atol=0)


def test_arrays_of_numbers_are_read_and_arrays_of_objects_refused(path, marker):
    """The first are the counts of --eval-bleu, of one worker and of several."""
    for number in ("int64", "float64"):
        counts = reloaded(path, counts=np.arange(4).astype(number))["counts"]
        assert counts.dtype == number and counts.tolist() == [0, 1, 2, 3]
    for value in (1, RunsCode(marker)):
        assert CODE.search(refusal(reloaded, path, counts=np.array([value], dtype=object)))


@pytest.mark.parametrize("package", ["numpy.core", "numpy._core"])
def test_an_array_of_another_numpy_is_read(path, tmp_path, package):
    """numpy 2 renamed the module of the function that makes arrays."""
    array = np.arange(6.0).reshape(2, 3)
    torch.save({"counts": array}, path)
    own = f"{array.__reduce__()[0].__module__}\n".encode()
    records = records_of(path)
    assert own in records["data.pkl"]
    other = f"{package}.multiarray\n".encode()
    records["data.pkl"] = records["data.pkl"].replace(own, other)
    other = rewritten(tmp_path / "x.pt", records.items())
    assert_close(torch.load(other)["counts"], array, rtol=0, atol=0)


def test_what_the_trainer_sends_to_other_workers_is_read_there(archive, tmp_path):
    """fairseq sends the first worker's state, tensors apart, through torch.save and torch.load."""
    state = checkpoint_utils.load_checkpoint_to_cpu(archive, load_on_all_ranks=False)
    sent = {**state, "model": distributed_utils._TensorPlaceholder(index=0)}
    torch.save(sent, tmp_path / "sent")
    received = torch.load(tmp_path / "sent")
    assert received["model"].index == 0
    assert received["cfg"] == checkpoint()["cfg"]


def test_code_is_refused_and_not_run(path, marker, monkeypatch):
    torch.save(checkpoint(extra={"state": {0: RunsCode(marker)}}), path)
    assert CODE.search(refusal(load, path))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert "unset it" in refusal(load, path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(RunsCode(marker)))  # it is no dud
    marker.unlink()


def archive_after_a_pickle(path):
    torch.save(checkpoint(), path)
    path.write_bytes(pickle.dumps(checkpoint(), protocol=2) + path.read_bytes())


def saved(value):
    return lambda path: torch.save(value, path)


def without(part):
    return {name: value for name, value in checkpoint().items() if name != part}


NOT_WHOLE = {
    "text": lambda path: path.write_text("a corpus , not a checkpoint\n"),
    "empty": lambda path: path.write_bytes(b""),
    "pickle": lambda path: path.write_bytes(pickle.dumps(checkpoint(), protocol=2)),
    "archive after a pickle": archive_after_a_pickle,
    "weights alone": saved({"weight": torch.ones(2)}),
    "no tensors": saved(checkpoint(model={})),
    "no task": saved(checkpoint(cfg={"model": {"_name": "x"}})),
    **{f"no {part}": saved(without(part)) for part in ("model", "cfg", "optimizer_history")},
}


@pytest.mark.parametrize("write", NOT_WHOLE.values(), ids=NOT_WHOLE.keys())
def test_incomplete_checkpoints_are_refused(path, write):
    write(path)
    message = refusal(load, path)
    assert message.startswith(f"{path} is not a complete checkpoint")
    assert "import-checkpoint" in message  # for the models of other programs


def test_a_truncated_checkpoint(archive):
    whole = archive.read_bytes()
    for share in (0.02, 0.5, 0.99):
        archive.write_bytes(whole[: int(share * len(whole))])
        assert "is not a complete checkpoint" in refusal(load, archive)


def test_what_is_no_file(path, tmp_path):
    assert "c.pt: No such file" in refusal(load, path)
    assert "expected a regular file; got a folder" in refusal(load, tmp_path)


def records_of(path):
    """{name of a record of an archive, without the folder: its contents}."""
    with zipfile.ZipFile(path) as records:
        return {name.partition("/")[2]: records.read(name) for name in records.namelist()}


def rewritten(path, records):
    """The archive with these (name, contents)."""
    with zipfile.ZipFile(path, "w") as file, warnings.catch_warnings():
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
        assert "not a complete checkpoint" in refusal(load, archive)
    archive.write_bytes(whole)
    load(archive)


def test_two_records_of_one_name(archive, tmp_path, marker):
    records = list(records_of(archive).items())
    code = pickle.dumps(checkpoint(extra=RunsCode(marker)), protocol=2)
    for name in ("data.pkl", "DATA.PKL"):  # torch's reader ignores case
        error = refusal(load, rewritten(tmp_path / "two.pt", [*records, (name, code)]))
        assert "two records of the same name" in error
    load(rewritten(tmp_path / "one.pt", records))


@pytest.mark.parametrize("legacy", [False, True])
def test_the_file_of_embeddings_is_forgotten(path, legacy):
    """A model is used without the file that its training started from."""
    settings = {"encoder_embed_path": "/gone", "decoder_embed_path": "/gone"}
    if legacy:
        args = argparse.Namespace(arch="lstm", task="translation", **settings)
        state = reloaded(path, cfg=None, args=args)
    else:
        state = reloaded(path, model=settings)
    for settings in (state["cfg"].model, state["args"] if legacy else state["cfg"].model):
        assert settings.encoder_embed_path is None and settings.decoder_embed_path is None


@pytest.mark.parametrize("kind", [dict, argparse.Namespace])
def test_an_option_younger_than_the_checkpoint_can_be_overridden(path, kind):
    settings = kind(_name="lstm_doc_lm", layer_dims="6,5")
    overrides = {"matmul_precision": "bfloat16", "layer_dims": "7,5", "no_such_option": 1}
    model = reloaded(path, overrides, model=settings)["cfg"].model
    assert (model.matmul_precision, model.layer_dims) == ("bfloat16", "7,5")
    assert not hasattr(load(path)["cfg"].model, "matmul_precision")


def test_a_file_to_restore_that_is_none_is_refused(tmp_path):
    """fairseq would train from the beginning without a word."""

    def restore(path, once=None):
        places = {"save_dir": str(tmp_path), "finetune_from_model": None}
        cfg = SimpleNamespace(restore_file=path, continue_once=once, **places)
        trainer = SimpleNamespace(checkpoint_suffix="")
        return load_named_file(lambda cfg, trainer: "restored", cfg, trainer)

    last = "checkpoint_last.pt"
    for path in (f"{tmp_path}/none.pt", str(tmp_path)):
        assert path in refusal(restore, path) and path in refusal(restore, last, path)
    assert restore(last) == "restored"  # the first start
    (tmp_path / last).touch()  # a resume, which fairseq prefers to --continue-once
    assert restore(last, f"{tmp_path}/none.pt") == "restored"


def test_hours_and_averages_of_a_first_training_do_not_count(tmp_path):
    cfg = SimpleNamespace(
        restore_file="checkpoint_last.pt", continue_once=None, save_dir=str(tmp_path),
        finetune_from_model="first.pt",
    )  # fmt: skip
    trainer = SimpleNamespace(checkpoint_suffix="")

    def load(cfg, trainer):
        trainer._previous_training_time, trainer._ema = 36_000, "the first training's"

    load_named_file(load, cfg, trainer)
    assert (trainer._previous_training_time, trainer._ema) == (0, None)
    (tmp_path / "checkpoint_last.pt").touch()  # a resume
    load_named_file(load, cfg, trainer)
    assert (trainer._previous_training_time, trainer._ema) == (36_000, "the first training's")
