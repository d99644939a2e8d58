"""N-best lists of recognisers and translators, read."""

import json
import math

import numpy as np
import pytest
from conftest import refusal
from generated_text import block, write

from fairseq_doc.preparation.data_folder import MADE_BY
from fairseq_doc.preparation.text_form import TextForm
from fairseq_doc.scoring.nbest_lists import (
    NBestList,
    best_lines,
    encode,
    read_kaldi,
    read_translations,
    score_lines,
)

from ..conftest import small_dictionary

LIST = ["a-b-1 the cat", "a-b-2 the  cap", "a-b-3", "u2-1 w"]


def read_lists(folder, lines=LIST, numbers=None, references=None, read=read_kaldi, **settings):
    """What these files hold."""
    files = {"first_pass": numbers, "reference": references}
    files = {name: write(folder / name, own) for name, own in files.items() if own is not None}
    files = {name: str(path) for name, path in files.items()}
    return read(str(write(folder / "nbest", lines)), **files, **settings)


def test_kaldis_lists(tmp_path):
    (first, second), none = read_lists(tmp_path)
    assert none is None and (first.name, second.name) == ("a-b", "u2")
    assert first.keys == ["a-b-1", "a-b-2", "a-b-3"]
    assert first.texts == ["the cat", "the  cap", ""] and first.words.tolist() == [2, 2, 0]
    assert first.first_pass.tolist() == [0, 0, 0]
    numbers = ["u2-1 -4", "a-b-1 1.5", "a-b-2 -2e1", "a-b-3 0"]
    references = ["u2 w w", "a-b"]  # in any order
    for costs, sign in ((False, 1), (True, -1)):
        lists, found = read_lists(tmp_path, numbers=numbers, references=references, costs=costs)
        numbered = [[1.5 * sign, -20 * sign, 0], [-4 * sign]]
        assert [one.first_pass.tolist() for one in lists] == numbered
        assert found == ["", "w w"]
    assert list(best_lines(lists, [2, 0], named=True)) == ["a-b", "u2 w"]


@pytest.mark.parametrize(
    "files, problem",
    [
        ({"lines": []}, "got an empty"),
        ({"lines": ["u-1 a", "", "u-2 b"]}, "nbest: line 2: expected an n-best list"),
        ({"lines": ["u-1 a", "u-1 b"]}, "got 'u-1 b' a second time"),
        *(({"lines": [line]}, "nbest: line 1: expected an n-best list") for line in ("the cat", "u-x a", "-1 a")),
        ({"lines": ["u-1 a", "v-1 a", "u-2 b"]}, "got 'u-2'"),
        ({"lines": block(0, "a b")}, "give --format fairseq-generate"),
        *(({"numbers": [line]}, "first_pass: line 1: expected a number") for line in ("u2-1 1 2", "u2-1 nan", "u2-1 1.2.3", "u2-1")),
        ({"numbers": ["u2-1 1"]}, "first_pass: expected the same candidates; 3 are in one file alone, such as 'a-b-1'"),
        ({"numbers": [f"{line.split()[0]} 1" for line in [*LIST, "u3-1 x"]]}, "the same candidates; 1 are"),
        ({"references": ["a-b w", "u2 w", "u3 w"]}, "the same utterances; 1 are in one file alone, such as 'u3'"),
        ({"references": ["a-b", "u2"]}, "expected references with words"),
    ],
)  # fmt: skip
def test_unusable_lists_of_kaldi(tmp_path, files, problem):
    assert problem.format(tmp_path) in refusal(read_lists, tmp_path, **files)


HYPOTHESES = [("ein@@ e Katze .", "-1 -2 -0.5 -0.5 -1"), ("ein@@ e Kat@@ ze , .", "-9 0 0 0 0 0 0")]
SENTENCES = [
    *block(1, "ein Hund .", target="ein Hund ."),
    *block(0, *HYPOTHESES, target="ein@@ e Kat@@ ze ."),
]
RAW = ["Eine Katze.", "ein Hund."]


def read_undone(folder, lines, bpe="subword_nmt", tokenizer="moses", **settings):
    """As :func:`read_lists`, with a data folder of prepare-mt."""
    made = {MADE_BY: {}, "bpe": bpe, "tokenizer": tokenizer, "target": "de"}
    (folder / "settings.json").write_text(json.dumps(made))
    return read_lists(folder, lines, read=read_translations, data=folder, **settings)


def test_translations_are_undone_as_their_folder_says(tmp_path):
    lists, references = read_undone(tmp_path, SENTENCES, references=RAW)
    assert references == RAW
    assert [one.texts for one in lists] == [["eine Katze.", "eine Katze,."], ["ein Hund."]]
    assert [one.target for one in lists] == ["eine Katze.", "ein Hund."]
    assert lists[0].keys == ["0-1", "0-2"] and lists[0].words.tolist() == [2, 2]
    assert lists[0].first_pass.tolist() == pytest.approx([-5 * math.log(2), -9 * math.log(2)])
    assert list(best_lines(lists, [1, 0])) == ["eine Katze,.", "ein Hund."]


def test_bpe_is_undone_where_a_sentence_has_no_mark(tmp_path):
    """In sentencepiece's units, the first candidate begins within a word."""
    lines = [*block(0, "Hun d ."), *block(1, "\u2581ein \u2581H und .")]
    lists, _ = read_undone(tmp_path, lines, "sentencepiece", "none")
    assert [one.texts for one in lists] == [["Hund."], ["ein Hund."]]


def test_text_that_exists_only_tokenised_is_compared_so(tmp_path):
    """As in prepare-headline; its references may have <unk>."""
    line = "a <unk> , b ."
    lines = block(0, line, target=line)
    lists, references = read_undone(tmp_path, lines, "none", "none", references=[line])
    assert lists[0].texts == references == [line]


def test_without_a_folder_the_d_lines_are_read(tmp_path):
    detokenised = block(0, "a@@ b .", text="ab.", target="a@@ b .")
    for references in (None, ["ab."]):
        settings = {"references": references, "read": read_translations}
        lists, found = read_lists(tmp_path, detokenised, **settings)
        assert [one.texts for one in lists] == [["ab."]] and found == references


def test_text_that_is_not_plain_or_belongs_to_others_is_refused(tmp_path):
    for references, problem in (
        (RAW[:1], "expected 1 sentences"),
        (["Zwei.", "Drei."], "targets differ"),
    ):
        assert problem in refusal(read_undone, tmp_path, SENTENCES, references=references)
    plain = {"read": read_translations}
    assert "marks of BPE or look tokenised" in refusal(read_lists, tmp_path, SENTENCES, **plain)
    lines = [line for line in SENTENCES if not line.startswith("P-")]
    assert "expected the P- lines" in refusal(read_lists, tmp_path, lines, **plain)


def test_a_model_of_units_reads_them_as_they_are(tmp_path):
    lists, _ = read_lists(tmp_path, SENTENCES, read=read_translations, plain=False)
    assert lists[0].texts[0] == "ein@@ e Katze ."
    units = {"read": read_translations, "plain": False}
    assert "marks of BPE" in refusal(read_lists, tmp_path, SENTENCES, references=RAW, **units)


def test_candidates_are_encoded_and_unknown_words_counted():
    lists = [
        NBestList("u", ["w0 odd odd", "other"], np.zeros(2)),
        NBestList("v", [""], np.zeros(1)),
    ]
    dictionary = small_dictionary(7)
    encoded, unknown = encode(lists, TextForm(), dictionary, 3)
    known, odd, end = dictionary.index("w0"), dictionary.unk(), dictionary.eos()
    assert encoded == [[[known, odd, odd, end], [odd, end]], [[end]]]
    assert unknown == {"odd": 2, "other": 1}
    message = refusal(encode, lists, TextForm(), dictionary, 2)
    assert "a candidate of 'u': 3 words" in message and "--max-words" in message


def test_scores_as_kaldi_reads_them():
    lists = [NBestList("u", ["a", ""], np.zeros(2), ["u-1", "u-2"])]
    scored = [[np.array([-1.25, -0.5]), np.array([1e-9])]]
    assert list(score_lines(lists, scored)) == ["u-1 1.2500 0.5000", "u-2 0.0000"]
    assert list(score_lines(lists, scored, totals=True)) == ["u-1 1.7500", "u-2 0.0000"]
