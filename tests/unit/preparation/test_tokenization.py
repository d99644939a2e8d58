import io

import pytest
from conftest import refusal
from fairseq.data.data_utils import post_process
from fairseq.tokenizer import tokenize_line
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_doc.preparation.tokenization import (
    RESERVED,
    clean,
    learn_merges,
    learn_sentencepiece,
    make_segmenter,
    make_tokenizer,
    moses,
    moses_remark,
    why_unusable,
)

from .conftest import sentence

TYPED = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(" \u00a0\u2028.,'\"-@&ab")
)


BLANKS = " \t\r\x0b\u2028\u2029\x85\u00a0\u3000\x00\x1b\x7f\x9f"


@given(st.text(st.characters() | st.sampled_from(f"ab\ufeff\u200b\u00ad\u2581e\u0301{BLANKS}")))
def test_only_blanks_control_characters_and_a_byte_order_mark_are_cleaned(text):
    def blank(character):
        return character.isspace() or character < " " or "\x7f" <= character <= "\x9f"

    kept = text[1:] if text.startswith("\ufeff") else text
    assert clean(text) == " ".join("".join(" " if blank(c) else c for c in kept).split())


def codes(lines, merges):
    """subword-nmt's segmenter, learned on these lines."""
    out = io.StringIO()
    learn_bpe(lines, out, merges)
    return BPE(out).process_line


@settings(max_examples=100)
@given(st.lists(st.text(st.sampled_from("ab@</wé "), max_size=12), min_size=1, max_size=6))
def test_merges_are_undone(texts):
    usable = [x for x in map(clean, texts) if why_unusable(x, "subword_nmt") is None]
    segment = codes([*usable, "abab ab@ @b"] * 2, 8)
    for line in usable:
        assert post_process(segment(line), "subword_nmt") == line


@pytest.mark.parametrize("line", ["a@@ b", "a @@", "@@@", "a@@b", "@@b", "a@ b", "@", "a\u2581b"])
def test_what_cannot_be_undone_is_found(line):
    """The mark of one kind is an ordinary character of another."""
    ends = any(word.endswith("@@") for word in line.split())
    assert (why_unusable(line, "subword_nmt") is not None) == ends
    assert (why_unusable(line, "sentencepiece") is not None) == ("\u2581" in line)
    assert why_unusable(line, "none") is None


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A sentencepiece model's segmenter."""
    folder = tmp_path_factory.mktemp("pieces")
    text = [sentence(n) for n in range(60)] + ["x\u200by fi \ufb01 </s> <unk> ½ ²"] * 3
    learn_sentencepiece(iter(text), folder / "m", 70)
    return make_segmenter("sentencepiece", folder / "m")


@given(st.text() | st.text(st.sampled_from("x </s>pad\ufb01½²e\u0301\u200b")))
def test_pieces_are_undone(pieces, text):
    line = clean(text)
    if line and why_unusable(line, "sentencepiece") is None:
        units = pieces(line)
        assert post_process(units, "sentencepiece") == line
        assert not set(RESERVED).intersection(units.split())
        assert units.split() == units.split(" ")


def test_reserved_words_are_found_where_they_would_become_units():
    for bpe, found in (("sentencepiece", True), ("subword_nmt", False), ("none", False)):
        assert (why_unusable("a <s>b", bpe) is not None) == found
        assert "<s>, <pad>, </s>" in why_unusable("a <s> b", bpe)
        assert why_unusable("a s b <unk>", bpe) is None


@pytest.fixture(scope="module")
def merges():
    return codes([sentence(n) for n in range(60)], 60)


@given(TYPED)
def test_any_text_is_read_as_fairseq_reads_what_is_typed(merges, text):
    words = make_tokenizer("moses", "en")(clean(text))
    assert words.split(" ") == tokenize_line(words) or not words
    typed = merges(moses("en").encode(text.strip()))
    assert tokenize_line(merges(words)) == tokenize_line(typed)
    assert post_process(merges(words), "subword_nmt") == words


@pytest.mark.parametrize(
    "bpe, content, problem",
    [
        ("subword_nmt", "#version: x\na b\n", "expected subword-nmt's codes"),
        ("subword_nmt", "#version: 0.2\na b\nabc\n", "line 3 in BPE codes file: abc"),
        ("sentencepiece", "no model", "expected a model of sentencepiece"),
    ],
)
def test_other_files_than_models_are_refused(tmp_path, bpe, content, problem):
    """subword-nmt would end the process, or raise a ValueError."""
    (tmp_path / "model").write_text(content)
    assert problem in refusal(make_segmenter, bpe, tmp_path / "model")


def test_codes_with_a_byte_order_mark_and_windows_line_ends(tmp_path):
    (tmp_path / "codes").write_bytes("\ufeff#version: 0.2\r\na b</w>\r\n\n".encode())
    assert make_segmenter("subword_nmt", tmp_path / "codes")("ab ba") == "ab b@@ a"
    (tmp_path / "codes").write_bytes(b"a b\n")  # of an early version
    assert make_segmenter("subword_nmt", tmp_path / "codes")("abc ba") == "ab@@ c b@@ a"


def test_a_word_of_many_characters_is_unusable_at_once():
    line = "a " + "." * 1_000_000
    words = make_tokenizer("moses", "en")(line)
    assert why_unusable(words, "subword_nmt") == "holds a word of more than 5,000 characters"
    assert why_unusable("a " * 5_000, "subword_nmt") is None


def test_blanks_that_moses_doubles_are_single():
    encoded = moses("en").encode("He said 'stop.'")
    assert encoded != " ".join(encoded.split())
    words = make_tokenizer("moses", "en")("He said 'stop.'")
    assert words == "He said &apos; stop . &apos;"


def test_languages_without_abbreviations_get_a_remark():
    assert moses_remark("de") is None
    assert "'xx'" in moses_remark("xx")


def test_words_without_a_pair_that_occurs_twice_have_nothing_to_merge(tmp_path):
    for lines in (["ab cd"], ["a b"]):
        message = refusal(learn_merges, iter(lines), tmp_path / "codes", 5)
        assert "nothing to merge: give --bpe none" in message
    assert not (tmp_path / "codes").exists()
