"""How ``fairseq-doc attention`` reads a sentence; tests/integration/test_translation.py runs it."""

import pytest
from conftest import refusal

from fairseq_doc.cli.attention import Options
from fairseq_doc.preparation.parallel_text import ParallelText, prepare

from ..preparation.conftest import sentence, write


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of tokenised text in units, one model a side."""
    folder = tmp_path_factory.mktemp("attention")
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            write(folder / f"{split}.{side}", [sentence(number, side) for number in range(9)])
    settings = ParallelText("en", "de", folder, merges=20)
    prepare(settings, folder / "data", say=lambda line: None)
    return folder / "data"


def test_a_sentence_is_read_by_the_settings_of_the_folder_or_by_the_options(data):
    own = Options(data=str(data), path="a.pt").form("en")
    codes = {"bpe": "subword_nmt", "bpe_codes": str(data / "bpe.codes.en")}
    given = Options(data=str(data), path="a.pt", tokenizer="moses", **codes).form("en")
    line = "A\tdog's <unk> ball."
    assert own.tokens(line) == given.tokens(line) and own.tokens(line)[-1] == "."
    as_it_is = Options(data=str(data), path="a.pt", tokenizer="none").form("en")
    assert as_it_is.tokens(line) == line.split()
    assert "no side fr" in refusal(Options(data=str(data), path="a.pt").form, "fr")


def test_a_sentence_is_as_it_is_without_settings(data, tmp_path):
    assert Options(data=str(tmp_path), path="a.pt").form("en").tokens("a@@\u00a0b.") == [
        "a@@",
        "b.",
    ]
