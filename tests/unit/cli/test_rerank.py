"""``rerank`` as the command line runs it, in this process; what it refuses."""

import re
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import toy_trees

from fairseq_doc.cli import rerank
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.parsing.bracketing import Parameters, bracketing_f1
from fairseq_doc.parsing.nbest import nbest_lines, parse_lists, read_nbest
from fairseq_doc.parsing.reranking import read_tree_lists, scored_lists
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import parse_tree
from fairseq_doc.scoring import rescoring
from fairseq_doc.scoring.nbest_lists import best_lines
from fairseq_doc.scoring.rescoring import Judge, Rescorer, Weights, choose, totals

from ..evaluation.conftest import peaked_model
from ..preparation.conftest import dictionary_of, lines_of
from .conftest import refused_without_a_trace, result_of

TREES, LISTS = toy_trees.sample_lists(6, seed=3)
DISTINCT = sum(len(row) - 1 for row in LISTS)  # the last of each list differs in a tag alone
LINE = "rerank data nbest --path a.pt --no-progress-bar"
KNOWN = WordSymbols({word.lower() for word in (*toy_trees.NOUNS, *toy_trees.VERBS, "the", ".")})
PARSED = [parse_tree(text, "") for text in toy_trees.sample_trees(30)]
DICTIONARY = dictionary_of(*(symbol for tree in PARSED for symbol in symbols_of(tree, KNOWN)))


@pytest.fixture
def folder(folder):
    """The working folder, with gold trees, candidates and two "checkpoints"."""
    toy_trees.write_trees(folder / "gold", TREES)
    (folder / "nbest").write_text(toy_trees.nbest_text(LISTS))
    for name in ("a.pt", "b.pt"):
        (folder / name).write_text(f"weights of {name}")
    return folder


@pytest.fixture
def models(monkeypatch):
    """Models in place of the checkpoints, and what loads and what calls them."""
    both = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    load = Mock(side_effect=lambda args: of_paths(both, args.path))
    score = Mock(wraps=rescoring.sequence_log_probs)
    monkeypatch.setattr(rerank, "ensemble_of", load)
    monkeypatch.setattr(rescoring, "sequence_log_probs", score)
    return SimpleNamespace(both=both, load=load, score=score)


def of_paths(models, path):
    chosen = [models["ab".index(name[0])] for name in path.split(":")]
    return Ensemble(chosen, SimpleNamespace(dictionary=DICTIONARY))


def expected_of(models, path="a.pt", base="e"):
    """(lists, ln P, weight -> chosen, choice -> F1) by the functions below the command."""
    gold, metric = [parse_tree(text, "") for text in TREES], bracketing_f1(Parameters())
    parsed = parse_lists("nbest", read_nbest("nbest"))
    read = read_tree_lists("nbest", parsed, DICTIONARY, rerank.BASES[base], metric, gold)
    scored = Rescorer(of_paths(models.both, path), read.lists, read.encoded).score()
    log_probs = list(map(totals, scored))

    def choice(weight):
        return choose(read.lists, log_probs, Weights(weight, 1.0))

    return read.lists, log_probs, choice, Judge(metric, read.statistics)


@pytest.mark.parametrize("path", ["a.pt", "a.pt:b.pt"])
def test_tuning_finds_the_weight_and_gives_all_figures(folder, models, path):
    line = f"rerank data nbest --path {path} --no-progress-bar --score-base 10 --tune gold"
    result, remarks = result_of(f"{line} --weights 0:9:0.5")
    _, _, choice, judge = expected_of(models, path, "10")
    tuning = {str(n / 2): judge(choice(n / 2)) for n in range(19)}
    best = max(tuning, key=tuning.get)  # the first
    expected = {"weight": float(best), "f1": tuning[best], "lm_f1": judge(choice(0))}
    expected |= {"parser_f1": judge([0] * 6), "oracle_f1": 100}
    expected |= {"sentences": 6, "candidates": DISTINCT + 6, "errors": 0, "unknown": 0}
    expected |= {"distinct": DISTINCT, "scored": DISTINCT, "seconds": result["seconds"]}
    assert result.pop("tuning") == pytest.approx(tuning) and result == pytest.approx(expected)
    assert result["seconds"] > 0 and len(set(tuning.values())) > 1 and remarks == ""


@pytest.mark.parametrize("base", rerank.BASES)
def test_the_best_trees_and_the_whole_lists_are_written(folder, models, base):
    options = f"--weight 0.8 --score-base {base} --output best --output-nbest whole"
    result, _ = result_of(f"{LINE} {options}")
    assert (result["weight"], result["output"], result["output_nbest"]) == (0.8, "best", "whole")
    assert not {"f1", "parser_f1", "lm_f1", "oracle_f1", "tuning"} & result.keys()
    lists, log_probs, choice, _ = expected_of(models, base=base)
    assert lines_of(folder / "best") == list(best_lines(lists, choice(0.8)))
    assert lines_of(folder / "whole") == list(nbest_lines(scored_lists(lists, log_probs, 0.8)))


def test_tuning_writes_the_outputs_at_the_weight_found(folder, models):
    options = "--tune gold --weights 1:40:13 --output best --output-nbest whole"
    result, _ = result_of(f"{LINE} {options}")
    lists, _, choice, judge = expected_of(models)
    assert result["lm_f1"] == pytest.approx(judge(choice(0)))
    assert result["lm_f1"] != result["tuning"]["1.0"]  # though 0 is no weight of the grid
    best = lines_of(folder / "best")
    assert best == list(best_lines(lists, choice(result["weight"])))
    assert result["f1"] == pytest.approx(result_of("evalb gold best")[0]["f1"])
    assert [row[0].text for row in read_nbest("whole")] == best


def test_a_root_that_counts_is_reported_and_excluded_where_asked(folder, models):
    as_top, _ = result_of(f"{LINE} --tune gold")
    assert list(as_top["tuning"]) == [str(round(n * 0.05, 2)) for n in range(101)]
    for name in ("nbest", "gold"):
        path = folder / name
        path.write_text(path.read_text().replace("(TOP", "(ROOT"))
        counted, remarks = result_of(f"{LINE} --tune gold")
        assert "'ROOT' counts as a bracket" in remarks and remarks.count("\n") == 1
    assert counted["parser_f1"] > as_top["parser_f1"]
    stripped, remarks = result_of(f"{LINE} --tune gold --strip-root")
    assert remarks == "" and stripped["tuning"] == as_top["tuning"]


def test_traces_in_the_gold_trees_do_not_matter(folder, models):
    without, _ = result_of(f"{LINE} --tune gold")
    text = (folder / "gold").read_text()
    (folder / "gold").write_text(text.replace(" (. .)", " (NP (-NONE- *)) (. .)"))
    assert result_of(f"{LINE} --tune gold")[0]["tuning"] == without["tuning"]


def test_the_text_says_what_the_weights_gain():
    result = {
        "sentences": 2416, "candidates": 1208000, "distinct": 1000000, "weight": 0.25, "unknown": 7,
        "seconds": 100.04, "scored": 2000, "f1": 93.456, "parser_f1": 89.7,
        "lm_f1": 92.0, "oracle_f1": 97.328, "tuning": {"0.0": 92.0, "0.25": 93.456, "0.5": 93.0},
    }  # fmt: skip
    text, larger, advice = rerank.as_text(result), "try larger --weights", "keep the parser's order"
    for fact in ("1,208,000", "89.70", "92.00", "97.33", "weight 0.25 F1 93.46", "3 weights"):
        assert fact in text
    assert advice not in text and larger not in text
    assert advice in rerank.as_text(result | {"f1": 89.7})
    assert larger in rerank.as_text(result | {"weight": 0.5})


# Words and tags of other trees, and sentences that EVALB excludes

FIGURES = ("f1", "parser_f1", "lm_f1", "oracle_f1", "weight")


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
    assert "every word with its tag" in refused_without_a_trace(samples, folder)
    tagged, _ = result_of(f"{LINE} --tune gold --output best")
    untagged, remarks = result_of(f"{samples} --sentences gold --output samples.best")
    figures = (*FIGURES, "distinct")
    assert [untagged[name] for name in figures] == pytest.approx([tagged[name] for name in figures])
    assert untagged["errors"] == 0 and "some words have no tag" in remarks
    best = [parse_tree(line, "") for line in lines_of(folder / "samples.best")]
    gold = [parse_tree(text, "") for text in TREES]
    assert [(t.words, t.tags) for t in best] == [(t.words, t.tags) for t in gold]
    evaluated, _ = result_of("evalb gold samples --sentences gold")
    assert (evaluated["f1"], evaluated["errors"]) == (pytest.approx(tagged["parser_f1"]), 0)


def test_lists_with_one_tag_for_all_words_take_those_of_the_sentences(folder, models):
    tagged, _ = result_of(f"{LINE} --tune gold")
    text = toy_trees.nbest_text(LISTS)
    (folder / "nbest").write_text(re.sub(r"\(\S+ ([^\s()]+)\)", r"(UNK \1)", text))
    models.score.reset_mock()
    message = refused_without_a_trace(f"{LINE} --tune gold", folder)
    assert "excludes every candidate" in message and not models.score.called
    replaced, remarks = result_of(f"{LINE} --tune gold --sentences gold")
    assert [replaced[name] for name in FIGURES] == [tagged[name] for name in FIGURES]
    evaluated, _ = result_of("evalb gold nbest --sentences gold")
    assert evaluated["f1"] == pytest.approx(tagged["parser_f1"]) and remarks == ""


@pytest.mark.parametrize("failed", ["1 0\n-5\t(())", "1 0\n-inf\t(())", "0 0"])
def test_a_failed_parse_stays_with_a_warning_and_evalb_agrees(folder, models, failed):
    text = toy_trees.nbest_text([[(-1, "(())"), *LISTS[1]], *LISTS[2:]])  # a failure beside trees
    rest = re.sub(r"^(\d+) (\d+)$", lambda m: f"{m[1]} {int(m[2]) + 1}", text, flags=re.MULTILINE)
    (folder / "nbest").write_text(f"{failed}\n{rest}")
    result, remarks = result_of(f"{LINE} --tune gold --output best --output-nbest whole")
    assert "1 of 6 sentences keep their failed parse, (()): sentence 1" in remarks
    assert "WARNING: 1 of 6 sentences are excluded" in remarks and result["errors"] == 1
    best = lines_of(folder / "best")
    assert best[0] == "(())" and "(())" not in best[1:]
    assert result["scored"] == result["distinct"] - 2
    assert result["f1"] == pytest.approx(result_of("evalb gold best")[0]["f1"])
    evaluated, _ = result_of("evalb gold nbest")
    assert result["parser_f1"] == pytest.approx(evaluated["f1"])
    assert result["oracle_f1"] == pytest.approx(evaluated["oracle_f1"])
    result_of("rerank data whole --path a.pt --no-progress-bar --output again")
    assert lines_of(folder / "again")[0] == "(())"


@pytest.mark.parametrize(
    "options, problem",
    [
        ("", "--tune, --output or --output-nbest"),
        *((f"--weight {w} --output best", f"--weight must be at least 0; got {w}") for w in (-0.1, "nan")),
        ("--weight 0.5 --tune gold", "--weight cannot be combined with --tune"),
        ("--output best --weights 0:1:0.5", "--weights needs --tune"),
        ("--tune gold --weights=-1:2:1", "--weights: expected FROM:TO:STEP with 0 <= FROM"),
        ("--tune nbest", "is used twice"),
        ("--output best --output-nbest old", "old exists"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_before_any_work(folder, models, options, problem):
    (folder / "old").write_text("precious")
    assert problem in refused_without_a_trace(f"{LINE} {options}", folder)
    assert not models.load.called


@pytest.mark.parametrize(
    "name, change, problem",
    [
        ("nbest", lambda text: text.rstrip()[:-1], "the tree is not closed"),
        ("gold", lambda text: "\n".join([*TREES[:4], *TREES[:3:-1]]), "gold tree 5 from word"),
        ("gold", lambda text: TREES[0], "nbest: expected 1 sentences, as in gold; got 6"),
        ("words", lambda text: text + TREES[0], "nbest: expected 7 sentences"),
    ],
)
def test_unusable_input_is_refused_and_nothing_is_left(folder, models, name, change, problem):
    (folder / "old").write_text("precious")
    (folder / "words").write_text((folder / "gold").read_text())
    (folder / name).write_text(change((folder / name).read_text()))
    line = f"{LINE} --tune gold --sentences words --overwrite --output-nbest whole --output old"
    assert problem in refused_without_a_trace(line, folder)
    assert not models.score.called
