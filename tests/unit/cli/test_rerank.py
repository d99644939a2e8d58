"""``rerank`` as the command line runs it, in this process."""

import gzip
import math
import os
import re
import threading

import pytest
import toy_trees
from conftest import doc

from fairseq_doc.cli import rerank
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.parsing.bracketing import Parameters
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.reranking import (
    best_candidates,
    best_trees,
    corpus_f1,
    oracle,
    read_sentences,
    score_candidates,
    scored_lists,
    tune,
)
from fairseq_doc.preparation.trees import parse_tree

from .conftest import (
    DICTIONARY,
    DISTINCT,
    LINE,
    LISTS,
    TREES,
    lines_of,
    of_paths,
    refused_without_a_trace,
    result_of,
)

BASES = {"e": math.e, "2": 2, "10": 10}


def expected_of(models, path="a.pt", base="e", parameters=None):
    """(sentences, ln P) by the functions below the command."""
    trees = [parse_tree(text, "") for text in TREES]
    sentences = read_sentences("nbest", DICTIONARY, BASES[base], trees, parameters)
    return sentences, score_candidates(of_paths(models.both, path), "nbest", sentences)


@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_tuning_finds_the_weight_and_gives_all_figures(folder, models, path):
    line = f"rerank data nbest --path {path} --no-progress-bar --score-base 10 --tune gold"
    result, remarks = result_of(f"{line} --weights 0:9:0.5")
    sentences, lm_scores = expected_of(models, path, "10")
    weights = [n / 2 for n in range(19)]
    weight, f1 = tune(sentences, lm_scores, weights)
    assert {key: result[key] for key in ("sentences", "candidates", "distinct", "weight")} == {
        "sentences": 6, "candidates": DISTINCT + 6, "distinct": DISTINCT, "weight": weight,
    }  # fmt: skip
    assert list(result["tuning"]) == [str(w) for w in weights]
    assert list(result["tuning"].values()) == pytest.approx(f1)
    assert result["f1"] == max(result["tuning"].values())
    assert result["lm_f1"] == result["tuning"]["0.0"]
    assert result["parser_f1"] == pytest.approx(corpus_f1(sentences, [0] * 6))
    assert result["oracle_f1"] == pytest.approx(corpus_f1(sentences, oracle(sentences))) == 100
    assert result["seconds"] > 0 and result["scored"] == result["distinct"]
    assert len(set(f1)) > 1 and remarks == ""


def test_the_parsers_own_choice_is_the_first_of_each_list(folder, models):
    """Whatever the scores say."""
    (folder / "nbest").write_text(toy_trees.nbest_text([row[::-1] for row in LISTS]))
    result, _ = result_of(f"{LINE} --tune gold --weights 0:0:1")
    assert result["parser_f1"] == pytest.approx(result_of("evalb gold nbest")[0]["f1"])


@pytest.mark.parametrize("base", ["e", "2", "10"])
@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_the_best_trees_and_the_whole_lists_are_written(folder, models, base, path):
    options = f"--weight 0.8 --score-base {base} --output best --output-nbest whole"
    result, _ = result_of(f"rerank data nbest --path {path} --no-progress-bar {options}")
    assert (result["weight"], result["output"], result["output_nbest"]) == (0.8, "best", "whole")
    assert not {"f1", "parser_f1", "lm_f1", "oracle_f1", "tuning"} & set(
        result
    )  # without gold trees
    sentences, lm_scores = expected_of(models, path, base)
    assert lines_of(folder / "best") == list(best_trees("nbest", sentences, lm_scores, 0.8))
    assert lines_of(folder / "whole") == list(scored_lists("nbest", sentences, lm_scores, 0.8))
    assert not list(folder.glob("*.part"))


def test_tuning_writes_the_outputs_at_the_weight_found(folder, models):
    options = "--tune gold --weights 1:40:13 --output best --output-nbest whole"
    result, _ = result_of(f"{LINE} {options}")
    weight = result["weight"]
    sentences, lm_scores = expected_of(models)
    alone = best_candidates(sentences, lm_scores, 0.0)
    assert result["lm_f1"] == pytest.approx(corpus_f1(sentences, alone))
    assert result["lm_f1"] != result["tuning"]["1.0"]  # though 0 is no weight of the grid
    assert weight == tune(sentences, lm_scores, [1.0, 14.0, 27.0, 40.0])[0]
    best = lines_of(folder / "best")
    assert best == list(best_trees("nbest", sentences, lm_scores, weight))
    assert result["f1"] == pytest.approx(result_of("evalb gold best")[0]["f1"])
    assert [row[0].text for row in read_nbest("whole")] == best


@pytest.mark.parametrize(
    "grid, weights",
    [
        ("0:0.3:0.1", ["0.0", "0.1", "0.2", "0.3"]),
        ("0:1:0.3", ["0.0", "0.3", "0.6", "0.9"]),
        ("0.5:0.5:1", ["0.5"]),
        ("1e-1:3e-1:5e-2", ["0.1", "0.15", "0.2", "0.25", "0.3"]),
        (rerank.GRID, [str(round(n * 0.05, 2)) for n in range(101)]),
    ],
)
def test_the_weights_tried_are_those_written(folder, models, grid, weights):
    options = "" if grid == rerank.GRID else f"--weights {grid}"
    assert list(result_of(f"{LINE} --tune gold {options}")[0]["tuning"]) == weights


def test_brackets_are_compared_as_a_prm_file_says(folder, models):
    (folder / "own.prm").write_text("LABELED 1\nDELETE_LABEL TOP\nDELETE_LABEL NP\n")
    with_prm, _ = result_of(f"{LINE} --tune gold --prm own.prm")
    parameters = Parameters(delete_label=("TOP", "NP"), delete_label_for_length=())
    sentences, _ = expected_of(models, parameters=parameters)
    assert with_prm["parser_f1"] == pytest.approx(corpus_f1(sentences, [0] * 6))
    assert with_prm["parser_f1"] != result_of(f"{LINE} --tune gold")[0]["parser_f1"]


def test_a_root_that_counts_is_reported_and_can_be_excluded(folder, models):
    as_top, remarks = result_of(f"{LINE} --tune gold")
    assert remarks == ""
    for name in ("gold", "nbest"):
        path = folder / name
        path.write_text(path.read_text().replace("(TOP", "(ROOT"))
    counted, remarks = result_of(f"{LINE} --tune gold")
    assert "'ROOT' counts as a bracket" in remarks and remarks.count("\n") == 1
    assert counted["parser_f1"] > as_top["parser_f1"]
    stripped, remarks = result_of(f"{LINE} --tune gold --strip-root")
    assert remarks == "" and stripped["tuning"] == as_top["tuning"]


def test_brackets_outside_the_dictionary_are_counted(folder, models):
    assert result_of(f"{LINE} --output best")[0]["unknown"] == 0
    lists = [[(score, text.replace("(VP", "(VX")) for score, text in row] for row in LISTS]
    (folder / "nbest").write_text(toy_trees.nbest_text(lists))
    result, _ = result_of(f"{LINE} --output best --overwrite")
    assert result["unknown"] == 2 * result["distinct"]  # (VX and )VX


def test_a_compressed_list_and_other_chunks_give_the_same(folder, models):
    packed = gzip.compress((folder / "nbest").read_bytes())
    calls = []
    for number, option in enumerate(("", "--max-candidates 1", "--max-candidates 9999")):
        models.called = 0
        result_of(f"{LINE} --output best{number} {option}")
        calls.append(models.called)
        (folder / "nbest").write_bytes(packed)
    assert calls == [1, 6, 1]
    assert len({(folder / f"best{number}").read_text() for number in range(3)}) == 1


def test_the_text_says_the_counts_and_with_gold_trees_the_figures(folder, models):
    printed, remarks = doc(*f"{LINE} --output best".split())
    facts = [
        "6 sentences",
        f"{DISTINCT + 6} candidates",
        f"{DISTINCT} distinct",
        "0 of their symbols",
    ]
    counts, written = printed.splitlines()
    assert all(fact in counts for fact in facts) and written == "wrote best"
    assert re.search(rf"{DISTINCT} scored in \d+\.\d s", counts) and remarks == ""
    result = {
        "sentences": 2416, "candidates": 1208000, "distinct": 1000000, "weight": 0.25, "unknown": 7,
        "seconds": 100.04, "scored": 2000, "f1": 93.456, "parser_f1": 89.7,
        "lm_f1": 92.0, "oracle_f1": 97.328, "tuning": {"0.0": 92.0, "0.25": 93.456, "0.5": 93.0},
    }  # fmt: skip
    text = rerank.as_text(result)
    for fact in (
        "2,416",
        "1,208,000",
        "89.70",
        "92.00",
        "97.33",
        "weight 0.25 F1 93.46",
        "3 weights",
    ):
        assert fact in text
    assert "none of these" not in text
    for f1 in (89.7, 89.69):  # not above the parser's
        assert rerank.as_text(result | {"f1": f1}).splitlines()[-1] == (
            "none of these weights is better than the parser alone: keep the parser's order"
        )


def test_a_best_weight_at_the_grids_end_is_reported(folder, models):
    def last(grid):
        return doc(*f"{LINE} --tune gold --weights {grid}".split())[0].splitlines()[2]

    assert "it is the last of them" in last("40:40:1")
    assert "last" not in last("0:0:1") and "last" not in last("40:400:360")


def test_progress_is_on_standard_error(folder, models):
    words = "rerank data nbest --path a.pt --output best --max-candidates 1 --log-interval 2"
    printed, remarks = doc(*words.split())
    assert printed.count("\n") == 2 and "rerank" in remarks


def test_existing_outputs_are_replaced_where_asked(folder, models):
    for name in ("best", "whole"):
        (folder / name).write_text("old")
    result_of(f"{LINE} --output best --output-nbest whole --overwrite")
    assert len(lines_of(folder / "best")) == 6
    assert (folder / "whole").read_text().startswith(f"{len(LISTS[0]) - 1} 0\n")


def test_an_output_that_is_no_plain_file_is_written_and_not_replaced(folder, models):
    result_of(f"{LINE} --output plain")
    expected = (folder / "plain").read_text()
    (folder / "target").write_text("old")
    (folder / "link").symlink_to("target")
    result_of(f"{LINE} --output link --overwrite")
    assert (folder / "link").is_symlink() and (folder / "target").read_text() == expected

    os.mkfifo(folder / "fifo")
    found = []
    reader = threading.Thread(target=lambda: found.append((folder / "fifo").read_text()))
    reader.start()
    result_of(f"{LINE} --output fifo --overwrite")
    reader.join()
    assert found == [expected] and (folder / "fifo").is_fifo()


def test_an_input_with_the_name_of_the_output_and_part_is_read_and_kept(folder, models):
    content = (folder / "nbest").read_bytes()
    (folder / "nbest").rename(folder / "best.part")
    result_of(LINE.replace("nbest", "best.part") + " --output best --overwrite")
    assert (folder / "best.part").read_bytes() == content and lines_of(folder / "best")


# Kept scores: the file itself is tested in tests/unit/parsing/test_kept_scores.py


def test_kept_scores_serve_other_weights_and_other_outputs(folder, models):
    tuning = f"{LINE} --tune gold --weights 0:40:10 --scores kept"
    first, _ = result_of(f"{tuning} --output best")
    kept, called = (folder / "kept").read_bytes(), models.called
    again, _ = result_of(f"{tuning} --output again")
    assert (first.pop("output"), again.pop("output")) == ("best", "again")
    assert again | {"seconds": 0, "scored": 0} == first | {"seconds": 0, "scored": 0}
    assert (first["scored"], again["scored"]) == (first["distinct"], 0)
    assert (folder / "again").read_bytes() == (folder / "best").read_bytes()
    result_of(f"{LINE} --scores kept --score-base 2 --weight 3 --output-nbest whole")
    assert models.called == called
    assert (folder / "kept").read_bytes() == kept
    sentences, lm_scores = expected_of(models, base="2")
    assert lines_of(folder / "whole") == list(scored_lists("nbest", sentences, lm_scores, 3.0))


def test_an_interrupted_run_continues_and_has_written_no_output(folder, models):
    line = f"{LINE} --scores kept --max-candidates 1"
    result_of(f"{line} --output whole")
    kept = (folder / "kept").read_bytes()
    (folder / "kept").unlink()
    models.called, models.interrupt_at = 0, 3
    assert doc(*f"{line} --output best".split(), status=130) == ("", "")
    assert not (folder / "best").exists() and not list(folder.glob("*.part"))
    result, _ = result_of(f"{line} --output best")
    assert models.called == 3 + 4
    assert result["distinct"] - result["scored"] == sum(len(row) - 1 for row in LISTS[:2])
    assert (folder / "kept").read_bytes() == kept
    assert (folder / "best").read_bytes() == (folder / "whole").read_bytes()


@pytest.mark.parametrize("change", ["--path b.pt", "--path a.pt:b.pt", "nbest", "a.pt"])
def test_kept_scores_of_something_else_are_refused(folder, models, change):
    """Of other models, or of files that changed."""
    result_of(f"{LINE} --scores kept")
    assert len(lines_of(folder / "kept")) == 7
    if change == "nbest":
        (folder / "nbest").write_text(toy_trees.nbest_text(LISTS[:5]))
    elif change == "a.pt":
        (folder / "a.pt").write_text("other weights")
    options = change if change.startswith("--") else ""
    message = refused_without_a_trace(f"{LINE} --scores kept --output best {options}", folder)
    assert "kept: expected scores of these models on this list" in message


def test_kept_scores_of_another_precision_are_refused(folder, models, monkeypatch):
    result_of(f"{LINE} --scores kept")
    monkeypatch.setattr(Ensemble, "matmul_precisions", ["bfloat16"])
    message = refused_without_a_trace(f"{LINE} --scores kept --output best", folder)
    assert "kept: expected scores of these models on this list" in message


# Words and tags of other trees, and sentences that EVALB excludes


def as_samples(text):
    """An RNNG's line: brackets and words alone, the nouns in their unknown form."""
    bare = re.sub(
        r"\((?:DT|NNP?|VBD|VBN|IN|\.) ([^\s()]+)\)", r"\1", text.removeprefix("(TOP ")[:-1]
    )
    return re.sub(r"Name\d+", "UNK", bare)


def test_lists_without_tags_take_those_of_the_sentences(folder, models):
    rows = [(n, s, as_samples(t)) for n, rows in enumerate(LISTS) for s, t in rows]
    (folder / "samples").write_text("".join(f"{n} ||| {s} ||| {t}\n" for n, s, t in rows))
    samples = "rerank data samples --path a.pt --no-progress-bar --tune gold"
    message = refused_without_a_trace(samples, folder)
    assert "expected every word with its tag" in message
    tagged, _ = result_of(f"{LINE} --tune gold --output best")
    untagged, remarks = result_of(f"{samples} --sentences gold --output samples.best")
    figures = ("f1", "parser_f1", "lm_f1", "oracle_f1", "weight", "distinct")
    assert [untagged[name] for name in figures] == pytest.approx([tagged[name] for name in figures])
    assert untagged["errors"] == 0 and remarks == ""
    best = [parse_tree(line, "") for line in lines_of(folder / "samples.best")]
    gold = [parse_tree(text, "") for text in TREES]
    assert [(t.words, t.tags) for t in best] == [(t.words, t.tags) for t in gold]
    evaluated, _ = result_of("evalb gold samples --sentences gold")
    assert (evaluated["f1"], evaluated["errors"]) == (pytest.approx(tagged["parser_f1"]), 0)


def test_sentences_that_evalb_excludes_are_counted_with_a_warning(folder, models):
    spoilt = toy_trees.nbest_text(LISTS[:1]).replace("(. .)", "(NN .)")  # a word that counts now
    rest = toy_trees.nbest_text(LISTS).split(f"{len(LISTS[1])} 1\n", 1)[1]
    (folder / "nbest").write_text(f"{spoilt}{len(LISTS[1])} 1\n{rest}")
    result, remarks = result_of(f"{LINE} --tune gold")
    assert result["errors"] == 1
    assert "WARNING: 1 of 6 sentences are excluded" in remarks and "sentence 1" in remarks
    (folder / "nbest").write_text(toy_trees.nbest_text(LISTS).replace("(. .)", "(NN .)"))
    called = models.called
    assert "excludes every candidate" in refused_without_a_trace(f"{LINE} --tune gold", folder)
    assert models.called == called
