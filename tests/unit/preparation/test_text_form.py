"""Text by what a data folder says: tokens as in training, and back."""

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation.language_model import Settings, prepare
from fairseq_doc.preparation.text_form import WORDS, TextForm, form_of

from .conftest import contents, write

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
    (folder / "text").mkdir()
    for split in ("train", "valid", "test"):
        write(folder / "text" / f"{split}.txt", LINES)
    made = {}
    for bpe in ("none", "subword_nmt", "sentencepiece"):
        settings = Settings("text", folder / "text", tokenizer="moses", bpe=bpe, merges=40)
        prepare(settings, folder / bpe, say=lambda line: None)
        made[bpe] = folder / bpe
    return made


@pytest.mark.parametrize("bpe", ["none", "subword_nmt", "sentencepiece"])
def test_a_line_has_the_tokens_that_were_binarised(folders, bpe):
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(folders[bpe] / "dict.txt"))
    form = form_of(folders[bpe])
    data = data_utils.load_indexed_dataset(str(folders[bpe] / "valid"), dictionary)
    for number, line in enumerate(LINES):
        tokens = form.tokens(line)
        assert [dictionary.index(token) for token in tokens] == data[number].tolist()[:-1]
        assert tokens.count("<unk>") == line.split().count("<unk>")


@pytest.mark.parametrize("bpe", ["none", "subword_nmt", "sentencepiece"])
def test_tokens_become_the_text_again(folders, bpe):
    form = form_of(folders[bpe])
    for line in ("The dog sees the cat's tails, and it.", "a <unk> sees", "<unk>"):
        assert form.text(form.tokens(line)) == line
    assert form.text([*form.tokens("a dog"), "</s>", *form.tokens("a cat")]) == "a dog\na cat"


@given(st.lists(st.sampled_from(["a", "b,", "<unk>", "c's"]), max_size=8))
def test_without_settings_words_stand_between_blanks(words):
    assert WORDS.tokens("  ".join(words)) == words
    assert WORDS.text(words) == " ".join(words)


def test_bytes_know_no_words():
    form = TextForm("byte")
    assert form.tokens("a b") == ["<0x61>", "<0x20>", "<0x62>"]
    assert form.text(form.tokens("a é")) == "a é"


def test_the_data_folder_has_what_is_needed(folders):
    assert "bpe.codes" in contents(folders["subword_nmt"])
    assert "sentencepiece.model" in contents(folders["sentencepiece"])
    assert "settings.json" in contents(folders["none"])
    assert form_of(folders["none"]) == TextForm(tokenizer="moses")


def test_other_settings_are_refused(folders, tmp_path):
    for name in ("dict.txt", "settings.json"):
        (tmp_path / name).write_text((folders["none"] / name).read_text().replace("moses", "x"))
    assert "expected the settings of prepare-lm; got tokenizer 'x'" in refusal(form_of, tmp_path)


@pytest.mark.parametrize("settings", [{"tokenizer": "moses"}, {"bpe": "sentencepiece"}])
@pytest.mark.parametrize("corpus, unit", [("ptb", None), ("enwik8", None), ("text", "byte")])
def test_published_corpora_and_bytes_are_as_they_are(tmp_path, corpus, unit, settings):
    one = Settings(corpus, tmp_path, unit=unit, **settings)
    assert "--tokenizer and --bpe: expected words" in refusal(prepare, one, tmp_path / "bin")
