"""Checkpoints are whole and on the disk before they replace another."""

import os

import pytest
import torch
from conftest import files_up_to, refusal
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_doc import files, registration  # noqa: F401


@pytest.fixture
def last(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"old")
    return path


def save(path, numbers=10):
    checkpoint_utils.torch_persistent_save({"weight": torch.arange(numbers)}, str(path))


def copy(path, to):
    return PathManager.copy(str(path), str(to), overwrite=True)


def assert_folder(last, *others, contents=b"old"):
    """The last checkpoint has these contents, and its folder holds nothing but the others."""
    assert last.read_bytes() == contents
    assert {path.name for path in last.parent.iterdir()} == {last.name, *others}


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
    copy(last, last.with_name("copy.pt"))
    assert done == ["fsync", "replace", "fsync"] * 2
    assert_folder(last, "copy.pt", contents=last.read_bytes())


@pytest.mark.parametrize("by_copy", [False, True])
def test_on_a_full_disk_the_last_checkpoint_stays_and_the_error_says_so(last, by_copy):
    big = last.with_name("checkpoint2.pt")
    save(big, 100_000)
    with files_up_to(1 << 16):
        message = refusal(copy, big, last) if by_copy else refusal(save, last, 100_000)
    assert message == f"cannot write {last}: File too large; nothing was changed"
    assert_folder(last, big.name)


def test_an_error_that_is_not_the_disks_is_passed_on(last):
    with pytest.raises(Exception, match="local object"):
        checkpoint_utils.torch_persistent_save({"f": lambda: 0}, str(last))
    assert_folder(last)
