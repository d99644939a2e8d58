"""``evalb`` as the command line runs it, in this process."""

import gzip
import os

import pytest
import toy_trees
from conftest import doc, refused

from fairseq_doc.cli.evalb import as_text

from .conftest import result_of

GOLD = [
    "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .)))",
    "(TOP (S (NP (NN man)) (VP (VBD left))))",
    "(TOP (NP (NN end) (. .)))",
]
# One bracket of five elsewhere and a tag wrong; all right; a label wrong.
TEST = [
    "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (DT a) (NP (JJ cat))) (. .)))",
    GOLD[1],
    "(TOP (S (NN end) (. .)))",
]
FIGURES = ("sentences", "errors", "f1", "precision", "recall")


@pytest.fixture
def trees(folder):
    toy_trees.write_trees(folder / "gold", GOLD)
    toy_trees.write_trees(folder / "test", TEST)
    return folder


def text_of(line):
    """The lines that a command line prints."""
    return doc(*line.split())[0].splitlines()


def test_every_figure(trees):
    result, remarks = result_of("evalb gold test --per-sentence")
    assert remarks == ""
    assert set(result) == {*FIGURES, "oracle_f1", "cutoff_len", "all", "short", "per_sentence"}
    share = 100 * 6 / 8
    assert [result[name] for name in FIGURES] == [3, 0, share, share, share]
    assert result["oracle_f1"] is None and result["cutoff_len"] == 40
    assert result["all"] == result["short"]
    assert result["all"] == {
        "sentences": 3, "errors": 0, "skipped": 0, "recall": share, "precision": share, "f1": share,
        "complete_match": pytest.approx(100 / 3), "average_crossing": 0.0, "no_crossing": 100.0,
        "two_or_less_crossing": 100.0, "tagging_accuracy": pytest.approx(100 * 7 / 8),
    }  # fmt: skip
    assert result["per_sentence"][0] == {
        "status": "valid", "length": 6, "matched": 3, "gold": 4, "test": 4, "crossing": 0,
        "words": 5, "correct_tags": 4, "recall": 75.0, "precision": 75.0,
    }  # fmt: skip
    head, *rows = text_of("evalb gold test --per-sentence")[:4]
    assert [row.split() for row in rows] == [
        "1 6 valid 75.00 75.00 3 4 4 0 5 4".split(),
        "2 2 valid 100.00 100.00 3 3 3 0 2 2".split(),
        "3 2 valid 0.00 0.00 0 1 1 0 1 1".split(),
    ]
    assert len(head.split()) == 11


def test_lists_are_described_by_the_first_candidates_and_the_best(trees):
    lists = [[(-1, TEST[0]), (-2, GOLD[0])], [(-1, TEST[1])], [(0, TEST[2]), (-1, TEST[2])]]
    (trees / "nbest").write_bytes(gzip.compress(toy_trees.nbest_text(lists).encode()))
    of_trees, _ = result_of("evalb gold test --per-sentence")
    result, _ = result_of("evalb gold nbest --per-sentence")
    assert result.pop("oracle_f1") == pytest.approx(100 * 2 * 7 / 16)
    assert result == {key: of_trees[key] for key in result}
    assert text_of("evalb gold nbest")[-1].split() == ["f1", "87.50"]


def test_the_best_candidate_has_no_needless_bracket(trees):
    """Of a sentence without brackets every candidate has an F1 of 0."""
    (trees / "gold").write_text(f"(S1 (UH Yes))\n{GOLD[0]}\n")
    lists = [[(-1, "(S1 (INTJ (UH Yes)))"), (-2, "(S1 (UH Yes))")], [(-1, GOLD[0])]]
    (trees / "nbest").write_bytes(gzip.compress(toy_trees.nbest_text(lists).encode()))
    assert result_of("evalb gold nbest")[0]["oracle_f1"] == 100


def test_sentences_are_excluded_with_a_warning(trees):
    clean, _ = result_of("evalb gold test")
    toy_trees.write_trees(trees / "gold", [GOLD[1], *GOLD, *[GOLD[0]] * 11])
    toy_trees.write_trees(trees / "test", ["(())", *TEST, TEST[1], *["(S (NN x))"] * 10])
    result, remarks = result_of("evalb gold test --per-sentence")
    differ, empty = remarks.splitlines()
    assert "WARNING: 11 of 15 sentences" in differ and differ.endswith(", 13, 14, ...")
    assert "WARNING: 1 of 15 sentences" in empty and empty.endswith("sentence 1")
    assert (result["sentences"], result["errors"], result["all"]["skipped"]) == (15, 11, 1)
    figures = ("f1", "precision", "recall")
    assert [result[name] for name in figures] == [clean[name] for name in figures]
    statuses = [row["status"] for row in result["per_sentence"]]
    assert statuses == ["skipped", *["valid"] * 3, *["error"] * 11]


@pytest.mark.parametrize("root", ["S1", "ROOT", ""])
def test_a_root_that_counts_is_reported_and_excluded_where_asked(trees, root):
    plain, _ = result_of("evalb gold test")
    for name, rows in (("gold", GOLD), ("test", TEST)):
        toy_trees.write_trees(trees / name, [text.replace("(TOP", f"({root}") for text in rows])
    result, remarks = result_of("evalb gold test")
    assert f"the root {root!r} counts as a bracket" in remarks and remarks.count("\n") == 1
    assert result["f1"] == pytest.approx(100 * 9 / 11)
    stripped, remarks = result_of("evalb gold test --strip-root")
    assert remarks == "" and stripped == plain


def test_a_prm_file_is_read_once(trees):
    """It may be a pipe, which is empty the second time."""
    reader, writer = os.pipe()
    os.write(writer, b"LABELED 0\nCUTOFF_LEN 3\nDELETE_LABEL TOP\nDEBUG 1\n")
    os.close(writer)
    result, remarks = result_of(f"evalb gold test --prm /dev/fd/{reader}")
    os.close(reader)
    assert remarks == "" and result["cutoff_len"] == 3
    assert result["short"]["sentences"] == 2 and result["all"]["sentences"] == 3
    assert result["short"]["f1"] == 100  # without labels
    assert "-- at most 3 words" in as_text(result)


def test_another_number_of_trees_is_refused(trees):
    toy_trees.write_trees(trees / "test", TEST[:2])
    assert "test: expected 3 sentences, as in gold; got 2" in refused("evalb", "gold", "test")


def test_a_pipe_is_refused_since_the_trees_are_read_again():
    assert "-: expected a file, since it is read more" in refused("evalb", "gold", "-")
