"""Trees in, reranked trees and their F1 out: the commands of a parser's reranking, one after another."""

from types import SimpleNamespace

import pytest
import toy_trees
from conftest import doc, generate, result_of, run_here, training, translation_training

# What learns in so few updates.
QUICK = "--optimizer adam --clip-norm 1 --no-epoch-checkpoints"
QUICK_LM = f"""{QUICK} --adam-betas (0.9,0.98) --lr-scheduler fixed --lr 0.02 --weight-decay 0
    --ar-alpha 0 --tar-beta 0 --embed-dropout 0 --input-dropout 0 --hidden-dropout 0
    --output-dropout 0 --component-dropout 0 --weight-dropout 0 --batch-size 32 --max-epoch 4"""
QUICK_PARSER = f"""{QUICK} -s words -t symbols --lr 0.01 --dropout 0 --hidden-size 48
    --doc-components 0,0,0,1 --doc-lambda 0 --batch-size 12 --max-epoch 1 --disable-validation"""


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """Trees, candidates, and data made of them with pairs."""
    folder = tmp_path_factory.mktemp("treebank")
    toy_trees.write_corpus(folder / "trees")
    doc("prepare-parsing", folder / "trees", folder / "data", "--pairs")
    return SimpleNamespace(trees=folder / "trees", data=folder / "data")


@pytest.fixture(scope="module")
def language_model(treebank, tmp_path_factory):
    """A checkpoint of a language model of the trees' symbols."""
    folder = tmp_path_factory.mktemp("symbols")
    run_here(training(treebank.data, folder, QUICK_LM))
    return folder / "checkpoint_last.pt"


def rerank(treebank, nbest, model, *options):
    """The JSON object of ``rerank``."""
    words = ("rerank", treebank.data, nbest, "--path", model, "--cpu", "--no-progress-bar")
    return result_of(*words, *options)


def test_a_language_model_puts_trees_in_a_better_order(treebank, language_model, tmp_path):
    """Where the parser is right less than nine times in ten, and each score alone is worse."""
    trees = treebank.trees
    options = ("--tune", trees / "dev.mrg", "--max-candidates", 40)
    tuned = rerank(treebank, trees / "dev.nbest", language_model, *options)
    assert tuned["parser_f1"] < 90 and tuned["f1"] > 95 and tuned["oracle_f1"] == 100
    assert tuned["lm_f1"] < tuned["f1"] and tuned["weight"] > 0 and tuned["unknown"] == 0
    assert tuned["f1"] == max(tuned["tuning"].values())

    best, lists = tmp_path / "test.best", tmp_path / "test.lists"
    options = ("--weight", tuned["weight"], "--output", best, "--output-nbest", lists)
    rerank(treebank, trees / "test.nbest.gz", language_model, *options)
    before = result_of("evalb", trees / "test.mrg", trees / "test.nbest.gz")
    after = result_of("evalb", trees / "test.mrg", best)
    assert before["f1"] < 90 and before["oracle_f1"] == 100 and before["errors"] == 0
    assert after["f1"] > 95 and after["sentences"] == 60 and after["errors"] == 0
    assert after["all"]["complete_match"] > before["all"]["complete_match"] + 15
    assert len(lists.read_text().splitlines()) > 120


def test_what_an_encoder_decoder_writes_is_collected_and_reranked(
    treebank, language_model, tmp_path
):
    """However good it is: what so few updates learn differs between processors."""
    pairs, trees = treebank.data / "pairs", treebank.data / "trees" / "test.mrg"
    run_here(translation_training(pairs, tmp_path, QUICK_PARSER))
    options = "-s words -t symbols --beam 4 --nbest 4 --max-len-a 2 --max-len-b 9"
    output = generate(pairs, tmp_path / "checkpoint_last.pt", options)
    (tmp_path / "generated").write_text(output)
    nbest, best = tmp_path / "test.nbest", tmp_path / "best"
    words = ("collect-parses", tmp_path / "generated", "--sentences", trees, "--output", nbest)
    collected = result_of(*words)
    assert (collected["sentences"], collected["outputs"]) == (60, 240)
    usable = collected["well_formed"] + collected["repaired"]
    assert usable + collected["dropped"] == 240
    assert usable > 0 or collected["flat_trees"] == 60
    result = rerank(treebank, nbest, language_model, "--tune", trees, "--output", best)
    assert result["candidates"] == usable + collected["flat_trees"]
    assert result["sentences"] <= result["distinct"] <= result["candidates"]
    assert result["parser_f1"] <= result["oracle_f1"] and result["f1"] <= result["oracle_f1"]
    evaluated = result_of("evalb", trees, best)
    assert evaluated["f1"] == pytest.approx(result["f1"]) and evaluated["errors"] == 0
    assert evaluated["all"]["tagging_accuracy"] == 100
