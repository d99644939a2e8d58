from types import SimpleNamespace

import pytest
from conftest import refusal
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE

from fairseq_doc import registration  # noqa: F401


def codes(path):
    return SimpleNamespace(bpe_codes=str(path), bpe_separator="@@")


@pytest.mark.parametrize("damage", ["l o w\n", "l\n", "\xff"])
def test_damaged_codes_are_refused(tmp_path, damage):
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\nl o\n" + damage, encoding="latin-1")
    assert str(path) in refusal(SubwordNMTBPE, codes(path))


def test_good_codes_are_used(tmp_path):
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\nl o\nlo w</w>\n")
    assert SubwordNMTBPE(codes(path)).encode("low lot") == "low lo@@ t"


def test_missing_files_and_other_files_are_refused(tmp_path):
    assert "none" in refusal(SubwordNMTBPE, codes(tmp_path / "none"))
    text = tmp_path / "text"
    text.write_text("no model\n")
    assert str(text) in refusal(SentencepieceBPE, SimpleNamespace(sentencepiece_model=str(text)))
