"""Text by what a data folder says: tokens as in training, and back."""

import html
import json
import re
import shutil
from dataclasses import replace

import pytest
from conftest import refusal
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_doc.preparation.corpora import LanguageModelText
from fairseq_doc.preparation.language_model import prepare
from fairseq_doc.preparation.pipeline import SPLITS
from fairseq_doc.preparation.text_form import (
    NAMES,
    WORDS,
    TextForm,
    form_of,
    form_of_side,
    text_of,
    tokens_of,
    unit_of,
)
from fairseq_doc.preparation.tokenization import BPE_KINDS

from .conftest import binarised, dictionary_of, write_splits


def test_bytes_have_256_names_and_the_line_feed_that_of_the_end_mark():
    assert len(set(NAMES)) == 256
    assert [NAMES[byte] for byte in b"\x00\na\xff"] == ["<0x00>", "</s>", "<0x61>", "<0xFF>"]


def test_a_dictionary_is_of_bytes_where_every_symbol_names_one():
    for symbols in (["<0x61>"], ["<0x61>", "<0xFF>"]):
        assert unit_of(dictionary_of(*symbols)) == "byte"
    for symbols in (["<0x61>", "a"], ["<0x61>", "<0x1>"], ["<0xff>"], [], ["a", "b"]):
        assert unit_of(dictionary_of(*symbols)) == "word"


@given(st.binary() | st.text().map(str.encode))
def test_bytes_keep_their_names_and_text_comes_back(data):
    assert tokens_of(data.decode("utf-8", "surrogateescape"), "byte") == [NAMES[b] for b in data]
    assert text_of([NAMES[b] for b in data], "byte") == data.decode("utf-8", "replace")


@given(st.lists(st.lists(st.sampled_from(["a", "bc", "a</s>", "<unk>"]))))
def test_words_have_blanks_between_them_and_lines_end_marks(lines):
    tokens = [token for line in lines for token in [*line, "</s>"]]
    assert text_of(tokens, "word") == "".join(" ".join(line) + "\n" for line in lines)
    for line in lines:
        assert text_of(line, "word") == " ".join(line)
        assert tokens_of(f" {' '.join(line)}\t", "word") == line


LINES = [
    "The dogs ' tails, and the cat's.",
    "A dog sees <unk> tails; the cats see it.",
    "<unk> sees the dog",
    "cats see the <unk>",
] * 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{BPE: a data folder of tokenised text in its units}, and the text."""
    folder = tmp_path_factory.mktemp("form")
    text = write_splits(folder / "text", dict.fromkeys(SPLITS, LINES))
    for bpe in BPE_KINDS:
        merges = None if bpe == "none" else 40
        settings = LanguageModelText("text", text, tokenizer="moses", bpe=bpe, merges=merges)
        prepare(settings, folder / bpe, say=lambda line: None)
    return {bpe: folder / bpe for bpe in BPE_KINDS}


@pytest.mark.parametrize("bpe", BPE_KINDS)
def test_a_line_has_the_tokens_that_were_binarised_and_comes_back(folders, bpe):
    form = form_of(folders[bpe])
    assert binarised(folders[bpe] / "valid", folders[bpe] / "dict.txt") == [
        " ".join(form.tokens(line)) for line in LINES
    ]
    for line in LINES:
        assert form.tokens(line).count("<unk>") == line.split().count("<unk>")
    for line in ("The dog sees the cat's tails, and it.", "a <unk> sees", "<unk>"):
        assert form.text(form.tokens(line)) == line
    assert form.text([*form.tokens("a dog"), "</s>", *form.tokens("a cat")]) == "a dog\na cat"


KINDS = ["plain", "byte", "none", "subword_nmt", "sentencepiece"]
PIECES = ["dog", "amp", "U.S", "é", "日本", "\x01", *"'s.,\"-&<;@["]
written = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


def made(folders, kind):
    """A form: plain words, bytes, or Moses with these units."""
    return {"plain": WORDS, "byte": TextForm("byte")}.get(kind) or form_of(folders[kind])


def undone(tokens, kind):
    """The characters of tokens, without blanks."""
    if kind == "byte":
        return "".join(bytes(int(token[1:-1], 16) for token in tokens).decode().split())
    text = "".join(re.sub("@@$|\u2581", "", token) for token in tokens)
    if kind == "plain":
        return "".join(tokens)
    return html.unescape(text.replace("@-@", "-"))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(words=st.lists(written | st.just("<unk>"), max_size=6), blanks=st.sampled_from(" \u3000\t"))
def test_words_as_written_have_the_tokens_of_their_characters(folders, kind, words, blanks):
    assume(not any(word.strip("\x01") == "" for word in words) and "@-@" not in "".join(words))
    assume(kind != "subword_nmt" or not any("@@" in word for word in words))
    form, line = made(folders, kind), blanks.join(words)
    tokens = form.tokens(line)
    parts = form.word_spans(line, tokens)
    assert [word for word, _ in parts] == line.split() == words
    for word, count in parts:
        own, tokens = tokens[:count], tokens[count:]
        expected = word if kind in ("plain", "byte") else word.replace("\x01", "")
        assert undone(own, kind) == expected
    assert tokens == []


@pytest.mark.parametrize("kind", KINDS[2:])
@pytest.mark.parametrize("tokenizer", ["moses", "none"])
@given(words=st.lists(written, max_size=4), blanks=st.text("\t\r \u00a0\u2028\x1f", min_size=1))
def test_white_space_of_any_kind_is_a_blank(folders, kind, tokenizer, words, blanks):
    form = replace(form_of(folders[kind]), tokenizer=tokenizer)
    for line in ([*words, "<unk>", *words], ["<unk>", "<unk>"]):
        assert form.tokens(f"{blanks}{blanks.join(line)}{blanks}") == form.tokens(" ".join(line))
        assert form.text(form.tokens(blanks.join(line))).count("<unk>") == line.count("<unk>")
        assert "  " not in form.units(form.words(blanks.join(line)))


@pytest.mark.parametrize(
    "kind, line, counts",
    [
        ("none", "a quick-witted 'Ah' & <unk>, AT&T <unk>", [1, 3, 3, 1, 4, 3, 1]),
        ("none", "\ufeffAh, a", [2, 1]),
        ("none", "a \x01 b\x01c", [1, 0, 2]),
        ("byte", "a é  b", [2, 4, 1]),
        ("byte", " a\r", [3]),
        ("byte", "  ", [2]),
        ("byte", "", []),
    ],
)
def test_how_many_tokens_a_word_has(folders, kind, line, counts):
    form = made(folders, kind)
    assert [count for _, count in form.word_spans(line, form.tokens(line))] == counts


def test_tokens_that_are_not_those_of_the_words_are_refused(folders):
    form = made(folders, "none")
    for line, tokens in (
        ("a b", ["a", "c"]),
        ("a b", ["a"]),
        ("DOTMULTI b", form.tokens("DOTMULTI b")),  # a name of Moses' own, which becomes a dot
    ):
        assert "give units" in refusal(form.word_spans, line, tokens)


def test_settings_of_other_sides_are_refused(folders, tmp_path):
    shutil.copy(folders["none"] / "dict.txt", tmp_path)
    settings = {"made by": {}, "source": "en", "target": "de", "bpe": "none", "tokenizer": "moses"}
    (tmp_path / "settings.json").write_text(json.dumps({**settings, "joint": True}))
    assert "got no side fr" in refusal(form_of_side, tmp_path, "fr")
    assert form_of_side(tmp_path, "de").language == "de"
    (tmp_path / "settings.json").unlink()
    assert form_of(tmp_path) == form_of_side(tmp_path, "de") == WORDS


@pytest.mark.parametrize("name", ["settings.json", "bpe.codes"])
def test_what_changed_after_it_was_prepared_is_refused(folders, tmp_path, name):
    folder = shutil.copytree(folders["subword_nmt"], tmp_path / "data")
    assert form_of(folder).tokens("a")
    with open(folder / name, "a") as file:
        file.write(" ")
    assert f"{folder}/{name} is damaged" in refusal(lambda: form_of(folder).tokens("a"))
    (folder / name).unlink()
    assert f"{folder}/{name} is missing" in refusal(lambda: form_of(folder).tokens("a"))


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<pad>"])
def test_a_sentence_holds_no_marks(symbol):
    line = f"a {symbol} dog"
    assert "line 3: expected a sentence without fairseq's own symbols" in refusal(
        WORDS.sentence, line, "line 3: "
    )
    assert WORDS.tokens(line) == line.split()  # a prompt may be a text of several sentences
    assert WORDS.sentence("a <unk> <S>") == ["a", "<unk>", "<S>"]
    as_bytes = TextForm("byte")
    assert as_bytes.sentence(line) == as_bytes.tokens(line)
