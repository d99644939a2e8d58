"""What the tests of ``rerank`` share: gold trees, lists of candidates, and models of their symbols."""

import json
from types import SimpleNamespace

import pytest
import toy_trees
from conftest import doc, refused

from fairseq_doc.cli import rerank
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import parse_tree
from fairseq_doc.scoring import rescoring

from ..evaluation.conftest import peaked_model
from ..preparation.conftest import contents, dictionary_of

TREES, LISTS = toy_trees.sample_lists(6, seed=3)
DISTINCT = sum(len(row) - 1 for row in LISTS)  # the last of each list differs in a tag alone
LINE = "rerank data nbest --path a.pt --no-progress-bar"


KNOWN = WordSymbols({word.lower() for word in (*toy_trees.NOUNS, *toy_trees.VERBS, "the", ".")})
PARSED = [parse_tree(text, "") for text in toy_trees.sample_trees(30)]
DICTIONARY = dictionary_of(*(symbol for tree in PARSED for symbol in symbols_of(tree, KNOWN)))


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
    """Models in place of the checkpoints, and how often they were loaded and called."""
    both = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    found = SimpleNamespace(both=both, loaded=0, called=0)

    def ensemble_of(args):
        found.loaded += 1
        return of_paths(both, args.path)

    original = rescoring.sequence_log_probs

    def counting(*args):
        found.called += 1
        return original(*args)

    monkeypatch.setattr(rerank, "ensemble_of", ensemble_of)
    monkeypatch.setattr(rescoring, "sequence_log_probs", counting)
    return found


def of_paths(models, path):
    chosen = [models["ab".index(name[0])] for name in path.split(":")]
    return Ensemble(chosen, SimpleNamespace(dictionary=DICTIONARY))


def result_of(line):
    """(the JSON object, standard error) of a command line."""
    printed, remarks = doc(*line.split(), "--json")
    return json.loads(printed), remarks


def refused_without_a_trace(line, folder):
    """The error of a command line that must fail and change no file."""
    before = contents(folder)
    message = refused(*line.split())
    assert contents(folder) == before
    return message
