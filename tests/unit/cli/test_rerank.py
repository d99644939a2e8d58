"""``rerank`` as the command line runs it, in this process; what it refuses."""

import gzip
import re

import pytest
import torch
import toy_trees
from conftest import doc

from fairseq_doc.cli import rerank
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.parsing.bracketing import Parameters
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.reranking import (
    best_trees,
    corpus_f1,
    read_sentences,
    score_candidates,
    scored_lists,
    tune,
)
from fairseq_doc.preparation.trees import parse_tree

from ..evaluation.conftest import ensemble, peaked_model
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


def expected_of(models, path="a.pt", base="e", parameters=None):
    """(sentences, ln P) by the functions below the command."""
    trees = [parse_tree(text, "") for text in TREES]
    sentences = read_sentences("nbest", DICTIONARY, rerank.BASES[base], trees, parameters)
    return sentences, score_candidates(of_paths(models.both, path), sentences)


@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_tuning_finds_the_weight_and_gives_all_figures(folder, models, path):
    line = f"rerank data nbest --path {path} --no-progress-bar --score-base 10 --tune gold"
    result, remarks = result_of(f"{line} --weights 0:9:0.5")
    sentences, lm_scores = expected_of(models, path, "10")
    weights = [n / 2 for n in range(19)]
    expected = tune(sentences, lm_scores, weights)
    assert expected.pop("excluded") == [] and expected["oracle_f1"] == 100
    tuning = {str(weight): f1 for weight, f1 in expected.pop("tuning").items()}
    expected |= {"sentences": 6, "candidates": DISTINCT + 6, "errors": 0, "unknown": 0}
    expected |= {"distinct": DISTINCT, "scored": DISTINCT, "seconds": result["seconds"]}
    assert result.pop("tuning") == pytest.approx(tuning) and result == pytest.approx(expected)
    assert result["seconds"] > 0 and len(set(tuning.values())) > 1 and remarks == ""


@pytest.mark.parametrize("base", rerank.BASES)
@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_the_best_trees_and_the_whole_lists_are_written(folder, models, base, path):
    options = f"--weight 0.8 --score-base {base} --output best --output-nbest whole"
    result, _ = result_of(f"rerank data nbest --path {path} --no-progress-bar {options}")
    assert (result["weight"], result["output"], result["output_nbest"]) == (0.8, "best", "whole")
    assert not {"f1", "parser_f1", "lm_f1", "oracle_f1", "tuning"} & result.keys()
    sentences, lm_scores = expected_of(models, path, base)
    assert lines_of(folder / "best") == best_trees(sentences, lm_scores, 0.8)
    assert lines_of(folder / "whole") == list(scored_lists(sentences, lm_scores, 0.8))
    assert not list(folder.glob("*.part"))


def test_tuning_writes_the_outputs_at_the_weight_found(folder, models):
    for name in ("best", "whole"):
        (folder / name).write_text("old")
    options = "--tune gold --weights 1:40:13 --output best --output-nbest whole --overwrite"
    result, _ = result_of(f"{LINE} {options}")
    weight = result["weight"]
    sentences, lm_scores = expected_of(models)
    expected = tune(sentences, lm_scores, [1.0, 14.0, 27.0, 40.0])
    assert (weight, result["lm_f1"]) == (expected["weight"], pytest.approx(expected["lm_f1"]))
    assert result["lm_f1"] != result["tuning"]["1.0"]  # though 0 is no weight of the grid
    best = lines_of(folder / "best")
    assert best == best_trees(sentences, lm_scores, weight)
    assert result["f1"] == pytest.approx(result_of("evalb gold best")[0]["f1"])
    assert [row[0].text for row in read_nbest("whole")] == best


def test_brackets_are_compared_as_a_prm_file_says(folder, models):
    (folder / "own.prm").write_text("LABELED 1\nDELETE_LABEL TOP\nDELETE_LABEL NP\n")
    with_prm, _ = result_of(f"{LINE} --tune gold --prm own.prm")
    assert list(with_prm["tuning"]) == [str(round(n * 0.05, 2)) for n in range(101)]
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


def test_the_text_says_the_counts_and_with_gold_trees_the_figures(folder, models):
    printed, remarks = doc(*f"{LINE} --output best".split())
    counts = f"6 sentences, {DISTINCT + 6} candidates, {DISTINCT} distinct without tags, 0 of their"
    end = rf".*; {DISTINCT} scored in \d+\.\d s\nwrote best\n"
    assert re.fullmatch(counts + end, printed) and remarks == ""
    result = {
        "sentences": 2416, "candidates": 1208000, "distinct": 1000000, "weight": 0.25, "unknown": 7,
        "seconds": 100.04, "scored": 2000, "f1": 93.456, "parser_f1": 89.7,
        "lm_f1": 92.0, "oracle_f1": 97.328, "tuning": {"0.0": 92.0, "0.25": 93.456, "0.5": 93.0},
    }  # fmt: skip
    text = rerank.as_text(result)
    for fact in ("1,208,000", "89.70", "92.00", "97.33", "weight 0.25 F1 93.46", "3 weights"):
        assert fact in text
    advice = "none of these weights is better than the parser alone: keep the parser's order"
    assert advice not in text and "it is the last of them" not in text
    assert rerank.as_text(result | {"f1": 89.7}).splitlines()[-1] == advice
    assert "it is the last of them" in rerank.as_text(result | {"weight": 0.5})


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
    assert lines_of(folder / "whole") == list(scored_lists(sentences, lm_scores, 3.0))


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


@pytest.mark.parametrize("change", ["--path b.pt", "--path a.pt:b.pt", "nbest", "a.pt", "bfloat16"])
def test_kept_scores_of_something_else_are_refused(folder, models, monkeypatch, change):
    result_of(f"{LINE} --scores kept")
    assert len(lines_of(folder / "kept")) == 7
    if change == "nbest":
        (folder / "nbest").write_text(toy_trees.nbest_text(LISTS[:5]))
    elif change == "a.pt":
        (folder / "a.pt").write_text("other weights")
    elif change == "bfloat16":
        monkeypatch.setattr(Ensemble, "matmul_precisions", [change])
    options = change if change.startswith("--") else ""
    message = refused_without_a_trace(f"{LINE} --scores kept --output best {options}", folder)
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


@pytest.mark.parametrize(
    "options, problem",
    [
        ("", "expected --tune, --output, --output-nbest or --scores; got none"),
        *((f"--weight {w} --output best", f"--weight must be at least 0; got {w}") for w in (-0.1, "nan", "inf")),
        ("--weight 0.5 --tune gold", "expected --weight or --tune"),
        ("--tune gold --weights=-1:2:1", "--weights: expected FROM:TO:STEP with 0 <= FROM"),
        ("--tune gold --weights 0:9:0.0001", "expected at most 10,000 values"),
        ("--tune nbest", "got one twice"),
        ("--output best --output-nbest ./best", "got one twice"),
        ("--output nbest --overwrite", "got one twice"),
        ("--tune gold --scores gold", "got one twice"),
        ("--output kept --scores kept", "got one twice"),
        ("--output link --overwrite", "got one twice"),
        ("--output none/best", "none/best: expected a file in a folder that exists"),
        ("--output-nbest none/best", "none/best: expected a file in a folder that exists"),
        ("--scores none/kept", "none/kept: expected a file in a folder that exists"),
        ("--output best --output-nbest old", "old exists"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_before_any_work(folder, models, options, problem):
    (folder / "old").write_text("precious")
    (folder / "link").symlink_to("nbest")
    assert problem in refused_without_a_trace(f"{LINE} {options}", folder)
    assert models.loaded == models.called == 0


@pytest.mark.parametrize(
    "name, change, problem",
    [
        ("nbest", None, "cannot read nbest"),
        ("nbest", lambda text: text.rstrip()[:-1], "nbest: line {last}: the tree is not closed"),
        ("nbest", lambda text: gzip.compress(text.encode())[:-20], "nbest is damaged: "),
        ("gold", None, "cannot read gold"),
        ("gold", lambda text: "\n".join([*TREES[:4], *TREES[:3:-1]]), "other words than gold tree 5: at word"),
        ("own.prm", lambda text: "LABELED 1\nDELETE_LABELS X\n", "own.prm: line 2: expected one of"),
        ("own.prm", None, "cannot read own.prm"),
    ],
)  # fmt: skip
def test_unusable_input_is_refused_and_nothing_is_left(folder, models, name, change, problem):
    (folder / "old").write_text("precious")
    (folder / "own.prm").write_text("LABELED 1\n")
    last = len(lines_of(folder / "nbest"))
    if change is None:
        (folder / name).unlink()
    else:
        changed = change((folder / name).read_text())
        (folder / name).write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    options = "--tune gold --prm own.prm --overwrite --output-nbest whole --scores kept"
    line = f"{LINE} {options} --output old"
    assert problem.format(last=last) in refused_without_a_trace(line, folder)
    assert models.called == 0


def test_unusable_models_are_refused(folder, models, monkeypatch):
    models.both[0].decoder.output.bias.data[:] = torch.nan
    line = f"{LINE} --output best --output-nbest whole"
    assert "not finite" in refused_without_a_trace(line, folder)
    monkeypatch.setattr(rerank, "ensemble_of", lambda args: ensemble(peaked_model()))
    assert "expected a model of trees' symbols" in refused_without_a_trace(line, folder)


def test_a_missing_checkpoint_is_named_and_a_list_is_a_plain_file(folder):
    message = refused_without_a_trace("rerank data nbest --path none.pt --output best", folder)
    assert "cannot read none.pt: No such file" in message
    message = refused_without_a_trace("rerank data - --path a.pt --scores kept", folder)
    assert "-: expected a file, since it is read more" in message
