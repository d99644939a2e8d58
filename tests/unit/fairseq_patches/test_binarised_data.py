import gc

import numpy as np
import pytest
import torch
from conftest import refusal
from fairseq.data import data_utils, indexed_dataset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairseq_doc import checksums, registration  # noqa: F401
from fairseq_doc.errors import FairseqDocError

from ..conftest import small_dictionary, write_split

LINES = [[5, 6, 2], [7, 2], [2], [8, 9, 9, 19, 2]]
DICTIONARY = small_dictionary(20)


@pytest.fixture
def split(tmp_path):
    return write_split(tmp_path, "test", LINES)


def load(split, dictionary=DICTIONARY):
    dataset = data_utils.load_indexed_dataset(str(split), dictionary)
    return [dataset[i].tolist() for i in range(len(dataset))]


def changed(path, place, new):
    contents = bytearray(path.read_bytes())
    contents[place : place + len(new)] = new
    path.write_bytes(contents)


def test_what_fairseq_preprocess_wrote(split):
    assert load(split) == load(split, None) == LINES
    assert data_utils.load_indexed_dataset(f"{split}9", DICTIONARY) is None


@pytest.mark.parametrize("impl", ["cached", "lazy"])
def test_fairseqs_older_forms(tmp_path, impl):
    old = write_split(tmp_path, "old", LINES, impl="cached")
    dataset = data_utils.load_indexed_dataset(old, DICTIONARY, dataset_impl=impl)
    assert len(dataset) == len(LINES)


@pytest.mark.parametrize("ending, change", [("bin", -1), ("bin", 8), ("bin", 0), ("idx", -1)])
def test_a_file_of_another_length(split, tmp_path, ending, change):
    path = tmp_path / f"test.{ending}"
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(change) if change > 0 else whole[:change])
    assert str(split) in refusal(load, split)


def test_words_that_are_not_in_the_dictionary(split, tmp_path):
    error = refusal(load, split, small_dictionary(19))
    assert "different dictionary" in error and "number 19, but the dictionary has 19 words" in error
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{tmp_path}/x.bin", dtype=np.int64)
    builder.add_item(torch.tensor([5, -4, 2]))
    builder.finalize(f"{tmp_path}/x.idx")
    assert "word number -4" in refusal(load, tmp_path / "x")


def test_other_words_than_were_prepared(split, tmp_path):
    checksums.write(tmp_path, ["test.bin", "test.idx"])
    assert load(split) == LINES
    changed(tmp_path / "test.bin", 2, b"\7")
    assert "was changed after preparation" in refusal(load, split)
    (tmp_path / checksums.NAME).unlink()
    assert load(split) != LINES  # which nothing else can see


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.sampled_from(["bin", "idx"]), st.integers(0, 200), st.integers(1, 255))
@example("bin", 21, 2)
def test_a_changed_byte_keeps_lengths_or_is_refused(split, tmp_path, ending, place, change):
    path = tmp_path / f"test.{ending}"
    whole = path.read_bytes()
    place %= len(whole)
    try:
        changed(path, place, bytes([whole[place] ^ change]))
        loaded = load(split)
        assert [len(line) for line in loaded] == [len(line) for line in LINES]
        assert all(0 <= word < 20 for line in loaded for word in line)
        assert ending == "bin"
    except FairseqDocError as error:
        assert str(split) in str(error) and "\n" not in str(error)
    finally:
        path.write_bytes(whole)


def test_what_fairseq_could_not_open_is_closed_without_a_word(tmp_path, monkeypatch):
    noise = []
    monkeypatch.setattr("sys.unraisablehook", noise.append)
    for kind in (indexed_dataset.MMapIndexedDataset, indexed_dataset.MMapIndexedDataset.Index):
        with pytest.raises(FileNotFoundError):
            kind(f"{tmp_path}/nothing")
    gc.collect()
    assert not noise
