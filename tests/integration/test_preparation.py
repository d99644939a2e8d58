"""A text in one file, and real text."""

import gzip

import pytest
import toy_language
from conftest import doc, result_of


def test_one_file_is_split_by_the_command(tmp_path):
    toy_language.write_corpus(tmp_path / "text", 2_000, 20, 20)
    lines = (tmp_path / "text" / "train.txt").read_bytes().splitlines(keepends=True)[:101]
    (tmp_path / "all.gz").write_bytes(gzip.compress(b"".join(lines)))
    words = ["prepare-lm", "text", tmp_path / "all.gz", tmp_path / "bin"]
    result = result_of(*words, "--split", "80,10.5,9.5")
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
