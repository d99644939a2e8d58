"""One training writes to a folder of checkpoints."""

from types import SimpleNamespace

import pytest
from conftest import assert_refused, locked_elsewhere
from fairseq import checkpoint_utils

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches import save_dir_lock


@pytest.fixture
def other(tmp_path):
    """Another process, which holds the lock of ``tmp_path``."""
    with locked_elsewhere(tmp_path / ".training.lock") as process:
        yield process


def test_a_second_training_is_refused_until_the_first_has_ended(tmp_path, other):
    unfinished = tmp_path / ".checkpoint_last.pt.abcd1234.part"
    unfinished.touch()
    problem = "another training writes to .*another --save-dir"
    assert_refused(problem, save_dir_lock.take, str(tmp_path))
    assert unfinished.exists()
    other.kill()
    other.wait()
    save_dir_lock.take(str(tmp_path))
    assert not unfinished.exists()
    save_dir_lock.take(f"{tmp_path}/.")  # its own lock does not stop a process


def test_only_what_a_killed_run_left_is_removed(tmp_path):
    kept = {"checkpoint_last.pt", "notes.part", ".other.abcd1234.part"}
    for name in (*kept, ".checkpoint_1_25.pt.a_c01234.part", ".crash.pt.a_c01234.part"):
        (tmp_path / name).touch()
    save_dir_lock.take(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == kept | {".training.lock"}


def test_the_worker_that_saves_takes_the_lock(tmp_path, other):
    def of(rank, no_save):
        cfg = SimpleNamespace(save_dir=str(tmp_path), no_save=no_save)
        return cfg, SimpleNamespace(data_parallel_rank=rank, checkpoint_suffix="")

    assert_refused("another training", checkpoint_utils.load_checkpoint, *of(0, no_save=False))
    for others in (of(1, no_save=False), of(0, no_save=True)):
        load = save_dir_lock.load_with_lock
        assert load(lambda *args, **more: more, *others, reset=False) == {"reset": False}
