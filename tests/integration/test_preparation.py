"""Preparations that are killed, and real text."""

import gzip
import json
import multiprocessing
import time

import pytest
import toy_language
from conftest import doc, run

from fairseq_doc.preparation.corpora import Settings
from fairseq_doc.preparation.language_model import prepare


@pytest.mark.parametrize(
    "unit, seconds",
    [("word", 0), ("word", 0.05), ("word", 0.2), ("word", 0.5), ("byte", 0), ("byte", 0.02)],
)
def test_a_preparation_that_is_killed_goes_on(tmp_path, unit, seconds):
    """Wherever it is killed: the files are those of a whole preparation."""
    toy_language.write_corpus(tmp_path / "text", 30_000, 3_000, 3_000)
    settings = Settings("text", tmp_path / "text", unit=unit)
    work = multiprocessing.get_context("fork").Process(
        target=prepare, args=(settings, tmp_path / "bin")
    )
    work.start()
    while work.is_alive() and not (tmp_path / "bin.part").exists():
        time.sleep(0.001)
    time.sleep(seconds)
    work.kill()
    work.join()
    if not (tmp_path / "bin").exists():
        prepare(settings, tmp_path / "bin")
    prepare(settings, tmp_path / "whole")
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "bin" / path.name).read_bytes() == path.read_bytes()


def test_one_file_is_split_by_the_command(tmp_path):
    toy_language.write_corpus(tmp_path / "text", 2_000, 20, 20)
    lines = (tmp_path / "text" / "train.txt").read_bytes().splitlines(keepends=True)[:101]
    (tmp_path / "all.gz").write_bytes(gzip.compress(b"".join(lines)))
    command = f"fairseq-doc prepare-lm text {tmp_path}/all.gz {tmp_path}/bin --split 80,10.5,9.5"
    result = json.loads(run([*command.split(), "--json"]).splitlines()[-1])
    sizes = [split["sentences"] for split in result["splits"].values()]
    assert sizes == [80, 11, 10]  # ends at 80.8 and 91.405 lines
    tokens = [split["tokens"] for split in result["splits"].values()]
    ends = [(0, 80), (80, 91), (91, 101)]
    assert tokens == [len(b"".join(lines[a:b]).split()) + b - a for a, b in ends]


@pytest.mark.data
def test_real_text_is_binarised_whole(data_sets, tmp_path):
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            with open(data_sets / "debian_ddtp" / f"en-de.{split}.{side}", "rb") as file:
                (tmp_path / f"{split}.{side}").write_bytes(b"".join(file.readlines()[:400]))
    report, _ = doc("prepare-mt", "en", "de", tmp_path, tmp_path / "bin", "--merges", 500)
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            assert f"{split}.{side}: 400 sentences and" in report
