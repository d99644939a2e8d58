import json

import pytest
from conftest import refusal
from generated_text import block, blocks, write
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, moses
from fairseq_doc.scoring.hypotheses import (
    ReadOptions,
    Undoing,
    looks_tokenized,
    read_references,
    read_system,
    without_blanks,
)

RAW = {
    "en": ["Tom's dog, a well-known one, sleeps.", 'He said: "No & no".', "It costs $3,500 (new)."],
    "de": ["Der Hund, ein U-Bahn-Hund, schläft.", "Er sagte: „Nein“.", "Es kostet 3,50 (neu)."],
    "fr": [
        "L'eau est-elle froide ?",
        "Oui ! Un chien, un chat ; c'est tout.",
        "Il dort : « oui ».",
    ],
}
TOKENS = {language: list(map(moses(language).encode, lines)) for language, lines in RAW.items()}
MARK = "holds a mark of BPE"


def generated(folder, texts, targets=None):
    return write(folder / "out.txt", blocks(texts, targets))


@pytest.mark.parametrize("language", RAW)
def test_raw_text_passes_and_tokenised_text_is_refused(tmp_path, language):
    assert read_references(write(tmp_path / "raw", RAW[language])) == RAW[language]
    path = write(tmp_path / "tokens", TOKENS[language])
    assert "line 1, the first of 3, looks tokenised" in refusal(read_references, path)
    assert read_references(path, ReadOptions(tokenized_reference=True)) == TOKENS[language]


@pytest.mark.parametrize(
    "lines, stray",
    [
        (["A dog sleeps."] * 9 + ["no punctuation at all"], 2),
        (["\u6211\u4eec\uff0c\u4ed6\u4eec\u3002"] * 100, 1),  # Chinese, without such marks
    ],
)
def test_a_few_stray_blanks_are_not_tokenisation(lines, stray):
    assert not looks_tokenized(lines + ["A cat , too ."] * stray)
    assert looks_tokenized(lines + ["A cat , too ."] * (stray + 1))


@pytest.mark.parametrize(
    "lines, problem",
    [
        ([], "got an empty file"),
        (["a", " ", "b"], "line 2 is empty"),
        (["a", "un@@ do"], f"line 2, the first of 1, {MARK}"),
        (["a", "\u2581un do"], f"line 2, the first of 1, {MARK}"),
        (["a", "<unk>"], "line 2, the first of 1, holds <unk>"),
    ],
)
def test_unusable_references_are_refused(tmp_path, lines, problem):
    assert problem in refusal(read_references, write(tmp_path / "r", lines))


def segmented(line, bpe):
    """The line cut into units of two characters."""
    if bpe == "none":
        return line
    if bpe == "sentencepiece":
        line = "\u2581" + line.replace(" ", "\u2581")
        return " ".join(line[i : i + 2] for i in range(0, len(line), 2))
    words = line.split(" ")
    units = [[word[i : i + 2] for i in range(0, len(word), 2)] for word in words]
    return " ".join("@@ ".join(parts) for parts in units)


@pytest.mark.parametrize("bpe", BPE_KINDS)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("language", RAW)
def test_what_was_done_is_found_and_undone(tmp_path, bpe, tokenizer, language):
    lines = TOKENS[language] if tokenizer == "moses" else RAW[language]
    lines = [segmented(line, bpe) for line in lines]
    path = generated(tmp_path, lines, lines)
    system = read_system(path, RAW[language], ReadOptions(lang=language))
    assert system.undoing == Undoing(bpe, tokenizer, language)
    assert system.agreeing == 3 and system.unknown == 0
    assert system.hypotheses == Undoing(bpe, tokenizer, language)(lines)
    if language != "fr":  # Moses' rules of French write one blank less inside « »
        assert system.hypotheses == RAW[language]
    given_options = ReadOptions(bpe=bpe, tokenizer=tokenizer, lang=language)
    assert read_system(path, RAW[language], given_options) == system


def test_without_targets_the_tokenizer_must_be_given(tmp_path):
    path = generated(tmp_path, TOKENS["de"])
    assert "--tokenizer moses or" in refusal(read_system, path, RAW["de"], ReadOptions(lang="de"))
    system = read_system(path, RAW["de"], ReadOptions(tokenizer="moses", lang="de"))
    assert system.hypotheses == RAW["de"]
    assert system.agreeing is None and system.targets == [None] * 3
    message = refusal(read_system, path, RAW["de"], ReadOptions(tokenizer="none"))
    assert "sentence 0, the first of 3, looks tokenised after undoing nothing" in message
    tokenized = ReadOptions(tokenizer="none", tokenized_reference=True)
    assert read_system(path, TOKENS["de"], tokenized).hypotheses == TOKENS["de"]


def test_marks_that_are_left_are_refused(tmp_path):
    path = generated(tmp_path, ["a", "\u2581un done", "c"])
    options = ReadOptions(bpe="subword_nmt", tokenizer="none")
    message = refusal(read_system, path, RAW["en"], options)
    assert f"sentence 1, the first of 1, {MARK}, @@ or \u2581 after undoing subword_nmt" in message


@pytest.mark.parametrize("mark", ["<unk>", "\u2047"])
def test_unknown_marks_are_refused_or_counted(tmp_path, mark):
    path = generated(tmp_path, ["a", f"un@@ {mark}", f"{mark} {mark}"])
    message = refusal(read_system, path, RAW["en"], ReadOptions(tokenizer="none"))
    assert "sentence 1, the first of 2, holds <unk>" in message
    allowing = ReadOptions(tokenizer="none", allow_unknown=True)
    system = read_system(path, RAW["en"], allowing)
    assert system.unknown == 2 and system.hypotheses[1] == f"un{mark}"


def test_the_references_of_another_split_are_refused(tmp_path):
    path = generated(tmp_path, RAW["de"], RAW["de"])
    others = [RAW["de"][0], "x", "y"]
    problem = "2 of 3 generated targets differ from the reference, the first in sentence 1"
    assert problem in refusal(read_system, path, others, ReadOptions(lang="de"))


def test_targets_agree_up_to_case_and_unknown_words(tmp_path):
    targets = [RAW["de"][0].upper(), "Er sagte <<unk>>", "anders"]
    system = read_system(generated(tmp_path, RAW["de"], targets), RAW["de"])
    assert system.agreeing == 2 and system.targets == [targets[0], None, "anders"]


@given(st.lists(st.sampled_from(['"No"', "Tom's", "a-b", "[x]", "a|b", "<b>", "x,", "end."])))
def test_without_blanks_raw_and_tokenised_text_are_the_same(words):
    line = " ".join(words)
    assert without_blanks(moses("en").encode(line)) == without_blanks(line)


@pytest.mark.parametrize("bpe", BPE_KINDS)
@pytest.mark.parametrize("joined", [False, True])
def test_the_data_folder_says_what_is_undone(tmp_path, bpe, joined):
    """No targets are needed, whether fairseq-generate joined the units, detokenised, or neither."""
    settings = {"bpe": bpe, "tokenizer": "moses", "target": "de", "made by": {}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    lines = []
    for number, (tokens, raw) in enumerate(zip(TOKENS["de"], RAW["de"], strict=True)):
        lines += block(number, tokens if joined else segmented(tokens, bpe), text=raw)
    path = write(tmp_path / "out.txt", lines)
    system = read_system(path, RAW["de"], ReadOptions(data=tmp_path))
    assert system.hypotheses == RAW["de"] and system.undoing == Undoing(bpe, "moses", "de")


@pytest.mark.parametrize("settings", [None, {"bpe": "none", "tokenizer": "moses", "lang": "de"}])
def test_a_folder_without_settings_of_parallel_text_is_refused(tmp_path, settings):
    if settings is not None:
        (tmp_path / "settings.json").write_text(json.dumps({"made by": {}, **settings}))
    path = generated(tmp_path, RAW["en"])
    message = refusal(read_system, path, RAW["en"], ReadOptions(data=tmp_path))
    assert str(tmp_path) in message and "prepare" in message
