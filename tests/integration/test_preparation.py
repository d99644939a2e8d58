"""Real text."""

import pytest
from conftest import doc


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
