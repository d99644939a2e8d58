"""``rerank`` and ``evalb`` as the command line runs them, in this process."""

import fcntl
import gzip
import itertools
import json
import math
import re
from types import SimpleNamespace

import pytest
import torch
import toy_trees
from fairseq.data import Dictionary

from fairseq_doc.cli import rerank
from fairseq_doc.cli.main import main
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.parsing import reranking
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
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import parse_tree

from ..evaluation.conftest import peaked_model

pytestmark = pytest.mark.usefixtures("logging_of_its_own")

TREES, LISTS = toy_trees.sample_lists(6, seed=3)


def dictionary_of_trees():
    known = {word.lower() for word in (*toy_trees.NOUNS, *toy_trees.VERBS, "the", ".")}
    dictionary = Dictionary()
    for text in toy_trees.sample_trees(30):
        for symbol in symbols_of(parse_tree(text, ""), WordSymbols(known)):
            dictionary.add_symbol(symbol)
    return dictionary


DICTIONARY = dictionary_of_trees()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Gold trees, candidates and two "checkpoints", and the folder to work in."""
    toy_trees.write_trees(tmp_path / "gold", TREES)
    (tmp_path / "nbest").write_text(toy_trees.nbest_text(LISTS))
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_text(f"weights of {name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def models(monkeypatch):
    """Stand-ins for the checkpoints, and how often they were loaded and asked."""
    both = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    found = SimpleNamespace(both=both, loaded=0, asked=0)

    def of(args):
        found.loaded += 1
        return of_paths(both, args.path)

    original = reranking.score_prefix_tree

    def noting(*args):
        found.asked += 1
        return original(*args)

    monkeypatch.setattr(rerank, "ensemble_of", of)
    monkeypatch.setattr(reranking, "score_prefix_tree", noting)
    return found


def of_paths(models, path):
    chosen = [models["ab".index(name[0])] for name in path.split(":")]
    return Ensemble(chosen, SimpleNamespace(dictionary=DICTIONARY))


def done(words, capsys):
    """(the JSON object, standard error) of a command line, one list or split at blanks."""
    words = words.split()
    silent = ["--no-progress-bar"] if words[0] == "rerank" else []
    assert main([*words, *silent, "--json"]) == 0
    printed, told = capsys.readouterr()
    assert len(printed.splitlines()) == 1
    return json.loads(printed), told


def text_of(words, capsys):
    """The lines that a command line prints without --json."""
    words = words.split()
    silent = ["--no-progress-bar"] if words[0] == "rerank" else []
    assert main([*words, *silent]) == 0
    return capsys.readouterr().out.splitlines()


def contents(folder):
    return {str(p): p.is_file() and p.read_bytes() for p in sorted(folder.rglob("*"))}


def refused(words, capsys, folder):
    """The one line of a refusal, which changes no file and prints no result."""
    words, before = words.split(), contents(folder)
    silent = ["--no-progress-bar"] if words[0] == "rerank" else []
    assert main([*words, *silent]) == 1
    printed, told = capsys.readouterr()
    assert printed == "" and told.count("\n") == 1
    assert told.startswith(f"fairseq-doc {words[0]}: error: ")
    assert contents(folder) == before
    return told


def expected_of(models, path="a.pt", base="e", gold=True, parameters=None, nbest="nbest"):
    """(sentences, ln P) by the functions below the command."""
    trees = [parse_tree(text, "") for text in TREES] if gold else None
    bases = {"e": math.e, "2": 2, "10": 10}
    it = of_paths(models.both, path)
    sentences = read_sentences(nbest, DICTIONARY, bases[base], trees, parameters or Parameters())
    return sentences, score_candidates(it, nbest, sentences)


# rerank


LINE = "rerank data nbest --path a.pt"


@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_tuning_finds_the_weight_and_tells_all_figures(folder, models, path, capsys):
    line = f"rerank data nbest --path {path} --score-base 10 --tune gold --weights 0:9:0.5"
    result, told = done(line, capsys)
    sentences, lm = expected_of(models, path, "10")
    weights = [n / 2 for n in range(19)]
    weight, f1 = tune(sentences, lm, weights)
    assert {key: result[key] for key in ("sentences", "candidates", "distinct", "weight")} == {
        "sentences": 6,
        "candidates": sum(map(len, LISTS)),
        "distinct": sum(len(row) - 1 for row in LISTS),
        "weight": weight,
    }
    assert list(result["tuning"]) == [str(w) for w in weights]
    assert list(result["tuning"].values()) == pytest.approx(f1)
    assert result["f1"] == max(result["tuning"].values())
    assert result["lm_f1"] == result["tuning"]["0.0"]
    assert result["parser_f1"] == pytest.approx(corpus_f1(sentences, [0] * 6))
    assert result["oracle_f1"] == pytest.approx(corpus_f1(sentences, oracle(sentences))) == 100
    assert result["seconds"] > 0 and result["scored"] == result["distinct"]
    assert len(set(f1)) > 1 and told == ""


def test_the_parsers_own_choice_is_the_first_of_each_list(folder, models, capsys):
    """Whatever the scores say."""
    (folder / "other").write_text(toy_trees.nbest_text([row[::-1] for row in LISTS]))
    result, _ = done("rerank data other --path a.pt --tune gold --weights 0:0:1", capsys)
    evaluated, _ = done("evalb gold other", capsys)
    assert result["parser_f1"] == pytest.approx(evaluated["f1"])
    assert result["parser_f1"] < done("evalb gold nbest", capsys)[0]["f1"]


def test_without_gold_trees_no_f1_is_told(folder, models, capsys):
    result, _ = done(f"{LINE} --output best", capsys)
    assert not {"f1", "parser_f1", "lm_f1", "oracle_f1", "tuning"} & set(result)
    assert result["weight"] == 0.0


@pytest.mark.parametrize("base", ["e", "2", "10"])
@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_the_best_trees_and_the_whole_lists_are_written(folder, models, base, path, capsys):
    options = f"--weight 0.8 --score-base {base} --output best --output-nbest whole"
    result, _ = done(f"rerank data nbest --path {path} {options}", capsys)
    assert result["weight"] == 0.8
    sentences, lm = expected_of(models, path, base)
    assert (folder / "best").read_text().splitlines() == list(
        best_trees("nbest", sentences, lm, 0.8)
    )
    written = (folder / "whole").read_text().splitlines()
    expected = list(scored_lists("nbest", sentences, lm, 0.8))
    assert written == expected
    assert not list(folder.glob("*.part"))


def test_tuning_writes_the_outputs_at_the_weight_found(folder, models, capsys):
    line = f"{LINE} --tune gold --weights 1:40:13 --output best --output-nbest whole"
    result, _ = done(line, capsys)
    weight = result["weight"]
    sentences, lm = expected_of(models)
    alone = best_candidates(sentences, lm, 0.0)
    assert result["lm_f1"] == pytest.approx(corpus_f1(sentences, alone))
    assert result["lm_f1"] != result["tuning"]["1.0"]  # though it is no weight of the grid
    assert weight == tune(sentences, lm, [1.0, 14.0, 27.0, 40.0])[0]
    assert (folder / "best").read_text().splitlines() == list(
        best_trees("nbest", sentences, lm, weight)
    )
    result, _ = done("evalb gold best", capsys)
    best = best_candidates(sentences, lm, weight)
    assert result["f1"] == pytest.approx(corpus_f1(sentences, best))
    assert [row[0].text for row in read_nbest("whole")] == (folder / "best").read_text().split(
        "\n"
    )[:-1]


@pytest.mark.parametrize(
    "grid, weights",
    [
        ("0:0.3:0.1", ["0.0", "0.1", "0.2", "0.3"]),
        ("0:1:0.3", ["0.0", "0.3", "0.6", "0.9"]),
        ("0.5:0.5:1", ["0.5"]),
        ("2:3:7", ["2.0"]),
        ("1e-1:3e-1:5e-2", ["0.1", "0.15", "0.2", "0.25", "0.3"]),
    ],
)
def test_the_weights_tried_are_those_written(folder, models, grid, weights, capsys):
    result, _ = done(f"{LINE} --tune gold --weights {grid}", capsys)
    assert list(result["tuning"]) == weights


def test_without_a_grid_101_weights_from_0_to_5_are_tried(folder, models, capsys):
    weights = list(done(f"{LINE} --tune gold", capsys)[0]["tuning"])
    assert weights == [str(round(n * 0.05, 2)) for n in range(101)]


def test_the_way_brackets_are_compared_can_be_told(folder, models, capsys):
    (folder / "own.prm").write_text("LABELED 1\nDELETE_LABEL TOP\nDELETE_LABEL NP\n")
    with_prm, _ = done(f"{LINE} --tune gold --prm own.prm", capsys)
    parameters = Parameters(delete_label=("TOP", "NP"), delete_label_for_length=())
    sentences, lm = expected_of(models, parameters=parameters)
    assert with_prm["parser_f1"] == pytest.approx(corpus_f1(sentences, [0] * 6))
    assert with_prm["parser_f1"] != done(f"{LINE} --tune gold", capsys)[0]["parser_f1"]


def test_a_root_that_counts_is_told_and_can_be_left_out(folder, models, capsys):
    as_top, told = done(f"{LINE} --tune gold", capsys)
    assert told == ""
    for name in ("gold", "nbest"):
        path = folder / name
        path.write_text(path.read_text().replace("(TOP", "(ROOT"))
    counted, told = done(f"{LINE} --tune gold", capsys)
    assert "'ROOT' counts as a bracket" in told and told.count("\n") == 1
    assert counted["parser_f1"] > as_top["parser_f1"]
    stripped, told = done(f"{LINE} --tune gold --strip-root", capsys)
    assert told == "" and stripped["tuning"] == as_top["tuning"]


def test_brackets_outside_the_dictionary_are_counted(folder, models, capsys):
    assert done(f"{LINE} --output best", capsys)[0]["unknown"] == 0
    lists = [[(score, text.replace("(VP", "(VX")) for score, text in row] for row in LISTS]
    (folder / "other").write_text(toy_trees.nbest_text(lists))
    result, _ = done("rerank data other --path a.pt --output best --overwrite", capsys)
    assert result["unknown"] == 2 * result["distinct"]  # (VX and )VX


def test_a_compressed_list_gives_the_same(folder, models, capsys):
    (folder / "nbest.gz").write_bytes(gzip.compress((folder / "nbest").read_bytes()))
    done(f"{LINE} --output best", capsys)
    done("rerank data nbest.gz --path a.pt --output again", capsys)
    assert (folder / "again").read_bytes() == (folder / "best").read_bytes()


def test_how_many_are_scored_at_once_changes_nothing_but_the_calls(folder, models, capsys):
    results = []
    for number, option in enumerate(("--max-candidates 1", "--max-candidates 9999", "")):
        models.asked = 0
        done(f"{LINE} --output best{number} {option}", capsys)
        results.append((folder / f"best{number}").read_text())
        assert models.asked == (6 if number == 0 else 1)
    assert len(set(results)) == 1


def test_the_text_tells_the_counts_and_with_gold_trees_the_figures(folder, models, capsys):
    distinct = sum(len(row) - 1 for row in LISTS)
    (line,) = text_of(f"{LINE} --output best", capsys)
    assert re.fullmatch(
        rf"6 sentences, {distinct + 6} candidates, {distinct} distinct without tags, 0 of their symbols "
        rf"outside the dictionary; {distinct} scored in \d+\.\d s",
        line,
    )
    result = {
        "sentences": 2416, "candidates": 1208000, "distinct": 1000000, "weight": 0.25, "unknown": 7,
        "seconds": 100.04, "scored": 2000, "f1": 93.456, "parser_f1": 89.7,
        "lm_f1": 92.0, "oracle_f1": 97.328, "tuning": {"0.0": 92.0, "0.25": 93.456, "0.5": 93.0},
    }  # fmt: skip
    assert rerank.as_text(result).splitlines() == [
        "2,416 sentences, 1,208,000 candidates, 1,000,000 distinct without tags, 7 of their symbols "
        "outside the dictionary; 2,000 scored in 100.0 s",
        "parser alone F1 89.70, language model alone 92.00, best possible 97.33",
        "weight 0.25 F1 93.46, the best of 3 weights from 0 to 0.5",
    ]


def test_a_best_weight_at_the_grids_end_is_told(folder, models, capsys):
    def last(options):
        return text_of(f"{LINE} --tune gold {options}", capsys)[-1]

    assert "it is the last of them: give --weights more" in last("--weights 40:40:1")
    assert last("--weights 0:0:1").endswith("the best of 1 weights from 0 to 0")
    assert last("--weights 40:400:360").endswith("the best of 2 weights from 40 to 400")


def test_progress_is_on_standard_error(folder, models, capsys):
    assert (
        main([*LINE.split(), "--output", "best", "--max-candidates", "1", "--log-interval", "2"])
        == 0
    )
    printed, told = capsys.readouterr()
    assert len(printed.splitlines()) == 1
    assert "rerank" in told
    assert main([*LINE.split(), "--output", "again", "--no-progress-bar"]) == 0
    assert capsys.readouterr().err == ""


# rerank: kept scores


def test_kept_scores_serve_other_weights_and_other_outputs(folder, models, capsys):
    first, _ = done(f"{LINE} --tune gold --weights 0:40:10 --scores kept --output best", capsys)
    kept, asked = (folder / "kept").read_bytes(), models.asked
    again, _ = done(f"{LINE} --tune gold --weights 0:40:10 --scores kept --output again", capsys)
    assert again | {"seconds": 0, "scored": 0} == first | {"seconds": 0, "scored": 0}
    assert (first["scored"], again["scored"]) == (first["distinct"], 0)
    assert (folder / "again").read_bytes() == (folder / "best").read_bytes()
    line = f"{LINE} --scores kept --score-base 2 --weight 3 --output-nbest whole"
    done(line, capsys)
    assert models.asked == asked
    assert (folder / "kept").read_bytes() == kept
    sentences, lm = expected_of(models, base="2")
    assert (folder / "whole").read_text().splitlines() == list(
        scored_lists("nbest", sentences, lm, 3.0)
    )


def test_scores_alone_are_enough_to_do(folder, models, capsys):
    done(f"{LINE} --scores kept", capsys)
    assert len((folder / "kept").read_text().splitlines()) == 7


def test_an_interrupted_run_goes_on_and_has_written_no_output(folder, models, monkeypatch, capsys):
    options = "--scores kept --max-candidates 1"
    done(f"{LINE} {options} --output whole", capsys)
    kept = (folder / "kept").read_bytes()
    (folder / "kept").unlink()
    original, calls = reranking.score_prefix_tree, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(reranking, "score_prefix_tree", interrupted)
    words = f"{LINE} {options} --output best --no-progress-bar".split()
    assert main(words) == 130
    assert not (folder / "best").exists() and not list(folder.glob("*.part"))
    assert capsys.readouterr() == ("", "")
    assert main([*words, "--json"]) == 0
    assert len(calls) == 3 + 4
    told = json.loads(capsys.readouterr().out)
    assert told["distinct"] - told["scored"] == sum(len(row) - 1 for row in LISTS[:2])
    assert (folder / "kept").read_bytes() == kept
    assert (folder / "best").read_bytes() == (folder / "whole").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        "--path b.pt",
        "--path a.pt:b.pt",
        "another list",
        "another model under the name",
    ],
)
def test_kept_scores_of_something_else_are_refused(folder, models, change, capsys):
    done(f"{LINE} --scores kept", capsys)
    if change == "another list":
        (folder / "nbest").write_text(toy_trees.nbest_text(LISTS[:5]))
    elif change == "another model under the name":
        (folder / "a.pt").write_text("other weights")
    options = change if change.startswith("--") else ""
    told = refused(f"{LINE} --scores kept --output best {options}", capsys, folder)
    assert "error: kept: expected scores of these models on this list" in told


# rerank: what cannot be done


@pytest.mark.parametrize(
    "options, problem",
    [
        ("", "expected --tune, --output, --output-nbest or --scores; got none"),
        ("--weight -0.1 --output best", "--weight must be at least 0; got -0.1"),
        ("--weight nan --output best", "--weight must be at least 0; got nan"),
        ("--weight inf --output best", "--weight must be at least 0; got inf"),
        ("--weight 0.5 --tune gold", "expected --weight or --tune"),
        ("--tune gold --weights 0:2", "--weights: expected FROM:TO:STEP with"),
        ("--tune gold --weights 0:2:0.1:3", "--weights: expected FROM:TO:STEP with"),
        ("--tune gold --weights 0:2:0", "got '0:2:0'"),
        ("--tune gold --weights 0:2:-1", "got '0:2:-1'"),
        ("--tune gold --weights=-1:2:1", "got '-1:2:1'"),
        ("--tune gold --weights 2:1:0.5", "got '2:1:0.5'"),
        ("--tune gold --weights 0:inf:1", "got '0:inf:1'"),
        ("--tune gold --weights 0:nan:1", "got '0:nan:1'"),
        ("--tune gold --weights 0:a:1", "got '0:a:1'"),
        ("--tune nbest", "expected other files for every input and output; got one twice"),
        ("--output best --output-nbest best", "got one twice"),
        ("--output best --output-nbest ./best", "got one twice"),
        ("--output nbest --overwrite", "got one twice"),
        ("--tune gold --output gold --overwrite", "got one twice"),
        ("--tune gold --scores gold", "got one twice"),
        ("--output kept --scores kept", "got one twice"),
        ("--output link --overwrite", "got one twice"),
        ("--output none/best", "none/best: expected a file in a folder that exists"),
        ("--output-nbest none/best", "none/best: expected a file in a folder that exists"),
        ("--scores none/kept", "none/kept: expected a file in a folder that exists"),
        ("--output old", "old exists; remove it, name another file, or give --overwrite"),
        ("--output best --output-nbest old", "old exists; remove it"),
    ],
)
def test_what_is_asked_for_and_cannot_be_is_refused_before_any_work(
    folder, models, options, problem, capsys
):
    (folder / "old").write_text("precious")
    (folder / "link").symlink_to("nbest")
    assert problem in refused(f"{LINE} {options}", capsys, folder)
    assert models.loaded == models.asked == 0


@pytest.mark.parametrize(
    "options", ["--weight x", "--score-base 3", "--max-candidates 0", "--log-interval 0", "more"]
)
def test_what_is_no_option_ends_with_argparses_status(folder, models, options, capsys):
    with pytest.raises(SystemExit) as caught:
        main(f"{LINE} --output best {options}".split())
    assert caught.value.code == 2 and models.loaded == 0


def test_existing_outputs_are_replaced_where_asked(folder, models, capsys):
    for name in ("best", "whole"):
        (folder / name).write_text("old")
    done(f"{LINE} --output best --output-nbest whole --overwrite", capsys)
    assert len((folder / "best").read_text().splitlines()) == 6
    assert (folder / "whole").read_text().startswith(f"{len(LISTS[0]) - 1} 0\n")


def spoil(folder, name):
    """Make one kind of bad input."""
    gold, nbest = folder / "gold", folder / "nbest"
    lines = nbest.read_text().splitlines(keepends=True)
    if name == "no list":
        nbest.unlink()
    elif name == "empty list":
        nbest.write_text("")
    elif name == "trees":
        nbest.write_text(gold.read_text())
    elif name == "shorter":
        nbest.write_text("".join(lines[:-1]))
    elif name == "order":
        nbest.write_text("".join(lines).replace(" 5\n", " 6\n"))
    elif name == "score":
        nbest.write_text("".join([*lines[:-1], "much\t" + lines[-1].split("\t")[1]]))
    elif name == "unbalanced":
        nbest.write_text("".join([*lines[:-1], lines[-1].rstrip()[:-1] + "\n"]))
    elif name == "words":
        nbest.write_text("".join([*lines[:-1], re.sub(r"\(NN \w+", "(NN cow", lines[-1])]))
    elif name == "failed":
        nbest.write_text("1 0\n-1.0\t(())\n")
    elif name == "latin-1":
        nbest.write_bytes(nbest.read_bytes() + b"1 6\n-1\t(S (NN gr\xf6\xdfe))\n")
    elif name == "gzip":
        nbest.write_bytes(gzip.compress(nbest.read_bytes())[:-20])
    elif name == "no gold":
        gold.unlink()
    elif name == "empty gold":
        gold.write_text("\n")
    elif name == "fewer gold":
        toy_trees.write_trees(gold, TREES[:5])
    elif name == "more gold":
        toy_trees.write_trees(gold, [*TREES, TREES[0]])
    elif name == "other gold":
        toy_trees.write_trees(gold, [*TREES[:4], TREES[5], TREES[4]])
    elif name == "broken gold":
        gold.write_text(gold.read_text() + "(TOP (S (NN dog)\n")
    elif name == "prm":
        (folder / "own.prm").write_text("LABELED 1\nDELETE_LABELS X\n")
    return len(lines)


@pytest.mark.parametrize(
    "name, problem",
    [
        ("no list", "cannot read nbest: No such file"),
        ("empty list", "nbest: expected n-best lists of trees; got an empty file"),
        ("trees", "nbest: line 1: expected 'N INDEX'"),
        ("shorter", "nbest: line {n_5}: expected {of_last} candidates of sentence 5"),
        (
            "order",
            "expected sentence 5, as sentences are numbered one after another from 0 or 1; got 6",
        ),
        ("score", "nbest: line {n}: expected a score, a number; got 'much'"),
        ("unbalanced", "nbest: line {n}: the tree is not closed"),
        (
            "words",
            "nbest: line {n}: a tree over other words than the first candidate of list 6",
        ),
        ("failed", "nbest: line 2: "),
        ("latin-1", "nbest: line {n2} is not UTF-8"),
        ("gzip", "nbest is damaged: "),
        ("no gold", "cannot read gold: No such file"),
        ("empty gold", "gold: expected trees in brackets; got an empty file"),
        ("fewer gold", "nbest: expected a list for each of 5 gold trees; got 6"),
        ("more gold", "nbest: expected a list for each of 7 gold trees; got 6"),
        ("other gold", "a tree over other words than gold tree 5: at word"),
        ("broken gold", "gold: line 7: the tree that begins here is not closed"),
        ("prm", "own.prm: line 2: expected one of"),
        ("no prm", "cannot read own.prm: No such file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(folder, models, name, problem, capsys):
    (folder / "old").write_text("precious")
    n = spoil(folder, name)
    places = {"n": n, "n2": n + 2, "n_5": n - len(LISTS[5]), "of_last": len(LISTS[5])}
    options = "--tune gold --output old --overwrite --output-nbest whole --scores kept"
    options += " --prm own.prm" if "prm" in name else ""
    told = refused(f"{LINE} {options}", capsys, folder)
    assert problem.format(**places) in told
    assert models.asked == 0


def test_a_missing_checkpoint_is_named(folder, capsys):
    told = refused("rerank data nbest --path none.pt --output best", capsys, folder)
    assert "no checkpoint at none.pt" in told


def test_a_model_of_ordinary_text_is_refused(folder, monkeypatch, capsys):
    model = Ensemble(
        [peaked_model()], SimpleNamespace(dictionary=peaked_model().decoder.dictionary)
    )
    monkeypatch.setattr(rerank, "ensemble_of", lambda args: model)
    told = refused(f"{LINE} --output best", capsys, folder)
    assert "expected a model of trees' symbols, such as (NP" in told


def test_a_model_without_finite_scores_writes_no_output(folder, models, capsys):
    models.both[0].decoder.output.bias.data[:] = torch.nan
    assert "not finite" in refused(f"{LINE} --output best --output-nbest whole", capsys, folder)


# evalb


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
def trees(tmp_path, monkeypatch):
    toy_trees.write_trees(tmp_path / "gold", GOLD)
    toy_trees.write_trees(tmp_path / "test", TEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_evalb_tells_every_figure(trees, capsys):
    result, told = done("evalb gold test", capsys)
    assert told == ""
    assert set(result) == {*FIGURES, "oracle_f1", "cutoff_len", "all", "short"}
    share = 100 * 6 / 8
    assert [result[name] for name in FIGURES] == [3, 0, share, share, share]
    assert result["oracle_f1"] is None and result["cutoff_len"] == 40
    assert (
        result["all"]
        == result["short"]
        == {
            "sentences": 3,
            "errors": 0,
            "skipped": 0,
            "recall": share,
            "precision": share,
            "f1": share,
            "complete_match": pytest.approx(100 / 3),
            "average_crossing": 0.0,
            "no_crossing": 100.0,
            "two_or_less_crossing": 100.0,
            "tagging_accuracy": pytest.approx(100 * 7 / 8),
        }
    )


def test_evalb_prints_a_line_a_figure(trees, capsys):
    lines = text_of("evalb gold test", capsys)
    assert lines[0] == "-- all" and lines[12] == "-- at most 40 words" and len(lines) == 24
    assert lines[1:12] == lines[13:]
    assert [line.rsplit(None, 1) for line in lines[1:12]] == [
        ["sentences", "3"],
        ["errors", "0"],
        ["skipped", "0"],
        ["recall", "75.00"],
        ["precision", "75.00"],
        ["f1", "75.00"],
        ["complete match", "33.33"],
        ["average crossing", "0.00"],
        ["no crossing", "100.00"],
        ["two or less crossing", "100.00"],
        ["tagging accuracy", "87.50"],
    ]


def test_evalb_tells_of_each_sentence_where_asked(trees, capsys):
    result, _ = done("evalb gold test --per-sentence", capsys)
    assert result["per_sentence"][0] == {
        "status": "valid", "length": 6, "matched": 3, "gold": 4, "test": 4, "crossing": 0,
        "words": 5, "correct_tags": 4, "recall": 75.0, "precision": 75.0,
    }  # fmt: skip
    assert [row["matched"] for row in result["per_sentence"]] == [3, 3, 0]
    head, *rows = text_of("evalb gold test --per-sentence", capsys)[:4]
    assert [row.split() for row in rows] == [
        "1 6 valid 75.00 75.00 3 4 4 0 5 4".split(),
        "2 2 valid 100.00 100.00 3 3 3 0 2 2".split(),
        "3 2 valid 0.00 0.00 0 1 1 0 1 1".split(),
    ]
    assert len(head.split()) == 11


def test_evalb_of_lists_describes_the_first_candidates_and_the_best(trees, capsys):
    lists = [[(-1, TEST[0]), (-2, GOLD[0])], [(-1, TEST[1])], [(0, TEST[2]), (-1, TEST[2])]]
    (trees / "nbest").write_text(toy_trees.nbest_text(lists))
    (trees / "nbest.gz").write_bytes(gzip.compress((trees / "nbest").read_bytes()))
    of_trees, _ = done("evalb gold test --per-sentence", capsys)
    for name in ("nbest", "nbest.gz"):
        result, _ = done(f"evalb gold {name} --per-sentence", capsys)
        assert result.pop("oracle_f1") == pytest.approx(100 * 2 * 7 / 16)
        assert result == {key: of_trees[key] for key in result}
    assert text_of("evalb gold nbest", capsys)[-2:] == [
        "-- best candidate of each list",
        f"{'f1':21} 87.50",
    ]


def test_evalb_takes_lists_with_failures_of_the_parser(trees, capsys):
    lists = [[(0, "(())"), (-1, GOLD[0])], [(-1, TEST[1]), (-2, "(())")], [(0, TEST[2])]]
    (trees / "nbest").write_text(toy_trees.nbest_text(lists))
    result, told = done("evalb gold nbest", capsys)
    assert "1 of 3 sentences are in no total, since their parse is empty: sentence 1" in told
    assert result["all"]["skipped"] == 1 and result["f1"] == 75
    assert result["oracle_f1"] == pytest.approx(100 * 2 * 7 / 16)


def test_evalb_leaves_sentences_out_loudly(trees, capsys):
    clean, _ = done("evalb gold test", capsys)
    toy_trees.write_trees(trees / "gold", [GOLD[1], *GOLD, GOLD[0], GOLD[0]])
    toy_trees.write_trees(trees / "test", ["(())", *TEST, TEST[1], "(S (NN x))"])
    result, told = done("evalb gold test", capsys)
    assert told == (
        "fairseq-doc evalb: WARNING: 2 of 6 sentences are in no total, since their words differ: "
        "sentence 5, 6\n"
        "fairseq-doc evalb: WARNING: 1 of 6 sentences are in no total, since their parse is empty: "
        "sentence 1\n"
    )
    assert (result["sentences"], result["errors"], result["all"]["skipped"]) == (6, 2, 1)
    for name in ("f1", "precision", "recall"):
        assert result[name] == clean[name]
    statuses = done("evalb gold test --per-sentence", capsys)[0]["per_sentence"]
    assert [row["status"] for row in statuses] == ["skipped", *["valid"] * 3, "error", "error"]


def test_evalb_names_the_first_ten_sentences_with_an_error(trees, capsys):
    for count, end in ((10, "9, 10\n"), (12, "9, 10, ...\n")):
        toy_trees.write_trees(trees / "gold", [GOLD[0]] * count)
        toy_trees.write_trees(trees / "test", [GOLD[1]] * count)
        result, told = done("evalb gold test", capsys)
        assert told.startswith(f"fairseq-doc evalb: WARNING: {count} of {count} sentences")
        assert told.endswith(end) and told.count("\n") == 1
        assert [result[name] for name in FIGURES] == [count, count, 0, 0, 0]


@pytest.mark.parametrize("root", ["S1", "ROOT", ""])
def test_evalb_tells_of_a_root_that_counts_and_leaves_it_out_where_asked(trees, root, capsys):
    plain, _ = done("evalb gold test", capsys)
    for name, rows in (("gold", GOLD), ("test", TEST)):
        toy_trees.write_trees(trees / name, [text.replace("(TOP", f"({root}") for text in rows])
    result, told = done("evalb gold test", capsys)
    assert told == (
        f"fairseq-doc evalb: the root {root!r} counts as a bracket, as EVALB has it; --strip-root "
        "leaves it out\n"
    )
    assert result["f1"] == pytest.approx(100 * 9 / 11)
    stripped, told = done("evalb gold test --strip-root", capsys)
    assert told == "" and stripped == plain


def test_evalb_reads_a_prm_file(trees, capsys):
    (trees / "own.prm").write_text("LABELED 0\nCUTOFF_LEN 3\nDELETE_LABEL TOP\nDEBUG 1\n")
    result, told = done("evalb gold test --prm own.prm", capsys)
    assert told == ""
    assert result["cutoff_len"] == 3
    assert result["short"]["sentences"] == 2 and result["all"]["sentences"] == 3
    assert result["short"]["f1"] == 100  # without labels
    assert "-- at most 3 words" in text_of("evalb gold test --prm own.prm", capsys)


def break_input(folder, name):
    gold, test = folder / "gold", folder / "test"
    if name == "fewer":
        toy_trees.write_trees(test, TEST[:2])
    elif name == "more":
        toy_trees.write_trees(test, [*TEST, *TEST])
    elif name == "no gold":
        gold.unlink()
    elif name == "no test":
        test.unlink()
    elif name == "empty gold":
        gold.write_text("")
    elif name == "empty test":
        test.write_text("\n\n")
    elif name == "failed gold":
        toy_trees.write_trees(gold, [GOLD[0], "(())", GOLD[2]])
    elif name == "open":
        test.write_text(test.read_text().rstrip()[:-1])
    elif name == "closed":
        test.write_text(test.read_text() + ")\n")
    elif name == "bare":
        toy_trees.write_trees(test, [TEST[0], "(TOP (NN man) left)", TEST[2]])
    elif name == "short list":
        test.write_text(toy_trees.nbest_text([[(-1, TEST[0])]]).replace("1 0", "2 0"))
    elif name == "broken list":
        rows = [[(-1, TEST[0])], [(-1, TEST[1]), (-2, "(S")], [(-1, TEST[2])]]
        test.write_text(toy_trees.nbest_text(rows))
    elif name == "prm":
        (folder / "own.prm").write_text("CUTOFF_LEN many\n")


@pytest.mark.parametrize(
    "name, problem",
    [
        ("fewer", "expected a parse for each of 3 trees in gold; got 2 in test"),
        ("more", "expected a parse for each of 3 trees in gold; got 6 in test"),
        ("no gold", "cannot read gold: No such file"),
        ("no test", "cannot read test: No such file"),
        ("empty gold", "gold: expected trees in brackets; got an empty file"),
        ("empty test", "test: expected trees in brackets; got an empty file"),
        ("failed gold", "gold: line 2: "),
        ("open", "test: line 3: the tree that begins here is not closed: expected 1 more"),
        ("closed", "test: line 4: expected a tree in brackets; got ')' outside one"),
        ("bare", "test: line 2: expected every word with its tag, (TAG word); got 'left' alone"),
        ("short list", "test: line 1: expected 2 candidates of sentence 0"),
        ("broken list", "test: line 5: the tree is not closed"),
        ("prm", "own.prm: line 1: expected a number after CUTOFF_LEN; got 'many'"),
        ("no prm", "cannot read own.prm: No such file"),
    ],
)
def test_evalb_refuses_what_it_cannot_read_in_one_line(trees, name, problem, capsys):
    break_input(trees, name)
    options = "--prm own.prm" if "prm" in name else ""
    assert problem in refused(f"evalb gold test {options}", capsys, trees)


def test_evalb_takes_no_other_arguments(trees):
    for line in ("evalb gold", "evalb gold test more", "evalb gold test --path a.pt"):
        with pytest.raises(SystemExit) as caught:
            main(line.split())
        assert caught.value.code == 2


def as_samples(text):
    """An RNNG's line: brackets and words alone, the nouns in their unknown form."""
    bare = re.sub(
        r"\((?:DT|NNP?|VBD|VBN|IN|\.) ([^\s()]+)\)", r"\1", text.removeprefix("(TOP ")[:-1]
    )
    return re.sub(r"Name\d+", "UNK", bare)


def test_lists_without_tags_take_those_of_the_sentences(folder, models, capsys):
    rows = [(n, s, as_samples(t)) for n, rows in enumerate(LISTS) for s, t in rows]
    (folder / "samples").write_text("".join(f"{n} ||| {s} ||| {t}\n" for n, s, t in rows))
    assert "expected every word with its tag" in refused(
        "rerank data samples --path a.pt --tune gold", capsys, folder
    )
    tagged, _ = done("rerank data nbest --path a.pt --tune gold --output best", capsys)
    words = "rerank data samples --path a.pt --tune gold --sentences gold --output samples.best"
    untagged, told = done(words, capsys)
    figures = ("f1", "parser_f1", "lm_f1", "oracle_f1", "weight", "distinct")
    assert [untagged[name] for name in figures] == pytest.approx([tagged[name] for name in figures])
    assert untagged["errors"] == 0 and "WARNING" not in told
    best = [parse_tree(line, "") for line in (folder / "samples.best").read_text().splitlines()]
    gold = [parse_tree(text, "") for text in TREES]
    assert [(t.words, t.tags) for t in best] == [(t.words, t.tags) for t in gold]
    evaluated, _ = done("evalb gold samples --sentences gold", capsys)
    assert (evaluated["f1"], evaluated["errors"]) == (pytest.approx(tagged["parser_f1"]), 0)
    told = refused("evalb gold samples --sentences one", capsys, folder)
    assert "cannot read one" in told


def test_tuning_tells_of_sentences_that_evalb_leaves_out(folder, models, capsys):
    spoilt = toy_trees.nbest_text(LISTS[:1]).replace("(. .)", "(NN .)")  # a word that counts now
    rest = toy_trees.nbest_text(LISTS).split(f"{len(LISTS[1])} 1\n", 1)[1]
    (folder / "nbest").write_text(f"{spoilt}{len(LISTS[1])} 1\n{rest}")
    result, told = done("rerank data nbest --path a.pt --tune gold", capsys)
    assert result["errors"] == 1
    assert "rerank: WARNING: 1 of 6 sentences are in no total" in told
    (folder / "nbest").write_text(toy_trees.nbest_text(LISTS).replace("(. .)", "(NN .)"))
    asked = models.asked
    told = refused("rerank data nbest --path a.pt --tune gold", capsys, folder)
    assert "EVALB leaves every candidate out of its totals" in told and models.asked == asked


def test_kept_scores_are_only_added_to(folder, models, monkeypatch, capsys):
    states = []
    original = reranking.KeptScores.append

    def noting(kept, scores):
        states.append((folder / "kept").read_bytes())
        original(kept, scores)

    monkeypatch.setattr(reranking.KeptScores, "append", noting)
    done("rerank data nbest --path a.pt --scores kept --max-candidates 3", capsys)
    states.append((folder / "kept").read_bytes())
    assert models.asked == len(states) - 1 > 2
    assert all(b.startswith(a) and len(b) > len(a) for a, b in itertools.pairwise(states))


def test_scores_that_another_run_writes_are_left_to_it(folder, models, capsys):
    done("rerank data nbest --path a.pt --scores kept", capsys)
    with open(folder / "kept") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        told = refused("rerank data nbest --path a.pt --scores kept", capsys, folder)
    assert "kept: another run is at work on these scores" in told


@pytest.mark.parametrize("line", ["[1.0, ", '{"a": 1}', '["x"]', "[NaN]"])
def test_a_damaged_line_of_kept_scores_is_named(folder, models, line, capsys):
    done("rerank data nbest --path a.pt --scores kept", capsys)
    lines = (folder / "kept").read_text().splitlines()
    lines[2] = line
    (folder / "kept").write_text("\n".join([*lines, ""]))
    told = refused("rerank data nbest --path a.pt --scores kept", capsys, folder)
    assert "kept: line 3 is damaged" in told


@pytest.mark.parametrize("command", ["evalb gold -", "rerank data - --path a.pt --scores kept"])
def test_a_list_is_a_plain_file(folder, models, command, capsys):
    assert "-: expected a plain file" in refused(command, capsys, folder)
