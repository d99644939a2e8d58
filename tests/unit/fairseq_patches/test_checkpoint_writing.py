"""Checkpoints are whole and on the disk before they replace another."""

import contextlib
import os
import resource
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_doc import files, registration  # noqa: F401
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import checkpoint_writing


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def last(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"old")
    return path


@pytest.fixture
def small_disk():
    """No file can grow beyond 64 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save(path, numbers=10):
    checkpoint_utils.torch_persistent_save({"weight": torch.arange(numbers)}, str(path))


def test_a_checkpoint_is_flushed_before_it_gets_its_name(last, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        whole = getattr(os, name)

        def noted(*args, name=name, whole=whole):
            done.append(name)
            return whole(*args)

        monkeypatch.setattr(os, name, noted)
    save(last)
    assert done == ["fsync", "replace", "fsync"]  # the file; its name; the folder
    assert torch.load(last)["weight"].tolist() == list(range(10))
    PathManager.copy(str(last), str(last.with_name("copy.pt")), overwrite=True)
    assert done == ["fsync", "replace", "fsync"] * 2
    assert names(last.parent) == {"checkpoint_last.pt", "copy.pt"}


@pytest.mark.parametrize("by_copy", [False, True])
def test_on_a_full_disk_the_last_checkpoint_stays_and_the_error_says_so(last, by_copy, request):
    big = last.with_name("checkpoint2.pt")
    save(big, 100_000)
    request.getfixturevalue("small_disk")
    with pytest.raises(FairseqDocError) as caught:
        if by_copy:
            PathManager.copy(str(big), str(last), overwrite=True)
        else:
            save(last, 100_000)
    message = str(caught.value)
    assert message == f"cannot write {last}: File too large; nothing was changed"
    assert last.read_bytes() == b"old" and names(last.parent) == {last.name, big.name}


def test_an_error_that_is_not_the_disks_is_passed_on(last):
    with pytest.raises(Exception, match="local object"):
        checkpoint_utils.torch_persistent_save({"f": lambda: 0}, str(last))
    assert last.read_bytes() == b"old" and names(last.parent) == {last.name}


class Interrupted:
    """A file whose ``count``-th write is interrupted."""

    def __init__(self, file, count, error):
        self._file, self._count, self._error = file, count, error

    def write(self, data):
        self._count -= 1
        if self._count == 0:
            raise self._error
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
@pytest.mark.parametrize("error", [SystemExit(143), KeyboardInterrupt()], ids=["SIGTERM", "Ctrl-C"])
def test_a_save_that_is_interrupted_ends_as_the_signal_asks(last, error, count, monkeypatch):
    """torch still ends the archive of such a save, which raises an error of its own."""

    @contextlib.contextmanager
    def whole_file(*args, **settings):
        with files.whole_file(*args, **settings) as file:
            yield Interrupted(file, count, error)

    monkeypatch.setattr(checkpoint_writing, "whole_file", whole_file)
    with pytest.raises(type(error)) as caught:
        save(last)
    assert caught.value is error
    assert last.read_bytes() == b"old" and names(last.parent) == {last.name}


def test_a_signal_just_after_the_temporary_file_is_made_leaves_none(last, monkeypatch):
    make = os.open

    def interrupted(path, flags, *mode):
        make(path, flags, *mode)
        if flags & os.O_CREAT:
            raise KeyboardInterrupt
        raise AssertionError("another file was opened")

    monkeypatch.setattr(files.os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(last)
    monkeypatch.undo()
    assert last.read_bytes() == b"old" and names(last.parent) == {last.name}


def test_a_copy_that_is_killed_leaves_the_last_checkpoint(last, monkeypatch):
    new = last.with_name("checkpoint1.pt")
    new.write_bytes(b"new")

    def killed(source, destination, *length):
        destination.write(b"n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfileobj", killed)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"old" and names(last.parent) == {last.name, new.name}
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"new" and names(last.parent) == {last.name, new.name}


@pytest.mark.parametrize("with_amp", [False, True])
@pytest.mark.parametrize(
    "at_ends, end_of_epoch, expected",
    [(True, False, None), (True, True, 2.0), (False, False, 2.0), (None, False, 2.0)],
)
def test_the_best_model_is_one_of_epoch_ends(at_ends, end_of_epoch, expected, with_amp):
    optimizer = SimpleNamespace()
    if at_ends is not None:  # other optimizers have no such thing
        optimizer.best_at_epoch_ends = at_ends
    if with_amp:
        optimizer = SimpleNamespace(fp32_optimizer=optimizer)
    seen = []
    epoch_itr = SimpleNamespace(end_of_epoch=lambda: end_of_epoch)
    checkpoint_writing.save_best_at_epoch_ends(
        lambda *args: seen.append(args[-1]),
        None,
        SimpleNamespace(optimizer=optimizer),
        epoch_itr,
        2.0,
    )
    assert seen == [expected]
