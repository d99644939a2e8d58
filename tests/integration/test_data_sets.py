"""The real corpora: their published counts, and text with whatever people write."""

import pytest
from conftest import doc, run_here, training

MODEL = "--arch lstm_doc_lm --decoder-embed-dim 4 --layer-dims 4,4 --doc-components 0,0,1"
# The columns are counted before the first update; nothing is validated after it.
COUNTED = "--max-update 1 --batch-size-valid 1 --valid-subset valid,test --validate-after-updates 9"


@pytest.mark.data
@pytest.mark.parametrize(
    "name, words, targets",
    [("ptb", 10_002, (73_759, 82_429)), ("wikitext2", 33_280, (217_645, 245_568))],
)
def test_counts_of_words_and_targets(name, words, targets, data_sets, tmp_path):
    data = tmp_path / "bin"
    doc("prepare-lm", name, data_sets / name, data)
    output = run_here(training(data, tmp_path / "run", COUNTED, MODEL))
    assert f"dictionary: {words:,} words" in output
    for count in targets:
        assert f"{count:,} targets scored, 0 left out" in output


@pytest.mark.data
def test_real_text_is_binarised_whole(data_sets, tmp_path):
    files = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("en", "de")]
    for name in files:
        with open(data_sets / "debian_ddtp" / f"en-de.{name}", "rb") as file:
            (tmp_path / name).write_bytes(b"".join(file.readlines()[:400]))
    report, _ = doc("prepare-mt", "en", "de", tmp_path, tmp_path / "bin", "--merges", 500)
    assert all(f"{name}: 400 sentences and" in report for name in files)
