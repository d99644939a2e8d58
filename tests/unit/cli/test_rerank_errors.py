"""What ``rerank`` refuses, in one line and without a trace."""

import gzip
import re
from types import SimpleNamespace

import pytest
import torch
import toy_trees

from fairseq_doc.cli import rerank
from fairseq_doc.evaluation.ensemble import Ensemble

from ..evaluation.conftest import peaked_model
from .conftest import LINE, LISTS, TREES, lines_of, refused_without_a_trace

GRID_ERROR = "--weights: expected FROM:TO:STEP"


@pytest.mark.parametrize(
    "options, problem",
    [
        ("", "expected --tune, --output, --output-nbest or --scores; got none"),
        ("--weight -0.1 --output best", "--weight must be at least 0; got -0.1"),
        ("--weight nan --output best", "--weight must be at least 0; got nan"),
        ("--weight inf --output best", "--weight must be at least 0; got inf"),
        ("--weight 0.5 --tune gold", "expected --weight or --tune"),
        ("--tune gold --weights 0:2", GRID_ERROR),
        ("--tune gold --weights 0:2:0.1:3", GRID_ERROR),
        ("--tune gold --weights 0:2:0", "got '0:2:0'"),
        ("--tune gold --weights 0:2:-1", "got '0:2:-1'"),
        ("--tune gold --weights=-1:2:1", "got '-1:2:1'"),
        ("--tune gold --weights 2:1:0.5", "got '2:1:0.5'"),
        ("--tune gold --weights 0:inf:1", "got '0:inf:1'"),
        ("--tune gold --weights 0:nan:1", "got '0:nan:1'"),
        ("--tune gold --weights 0:a:1", "got '0:a:1'"),
        ("--tune gold --weights 0:9:0.0001", "expected at most 10,000 weights"),
        ("--tune nbest", "got one twice"),
        ("--output best --output-nbest ./best", "got one twice"),
        ("--output nbest --overwrite", "got one twice"),
        ("--tune gold --output gold --overwrite", "got one twice"),
        ("--tune gold --scores gold", "got one twice"),
        ("--output kept --scores kept", "got one twice"),
        ("--output link --overwrite", "got one twice"),
        ("--output none/best", "none/best: expected a file in a folder that exists"),
        ("--output-nbest none/best", "none/best: expected a file in a folder that exists"),
        ("--scores none/kept", "none/kept: expected a file in a folder that exists"),
        ("--output old", "old exists"),
        ("--output best --output-nbest old", "old exists"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_any_work(folder, models, options, problem):
    (folder / "old").write_text("precious")
    (folder / "link").symlink_to("nbest")
    assert problem in refused_without_a_trace(f"{LINE} {options}", folder)
    assert models.loaded == models.called == 0


def spoil(folder, name):
    """Make one kind of bad input."""
    gold, nbest = folder / "gold", folder / "nbest"
    *lines, last = nbest.read_text().splitlines(keepends=True)
    if name.startswith("no "):
        (folder / name.removeprefix("no ")).unlink(missing_ok=True)
    elif name == "shorter":
        nbest.write_text("".join(lines))
    elif name == "unbalanced":
        nbest.write_text("".join([*lines, last.rstrip()[:-1] + "\n"]))
    elif name == "words":
        nbest.write_text("".join([*lines, re.sub(r"\(NN \w+", "(NN cow", last)]))
    elif name == "gzip":
        nbest.write_bytes(gzip.compress(nbest.read_bytes())[:-20])
    elif name == "more gold":
        toy_trees.write_trees(gold, [*TREES, TREES[0]])
    elif name == "other gold":
        toy_trees.write_trees(gold, [*TREES[:4], TREES[5], TREES[4]])
    elif name == "open gold":
        gold.write_text(gold.read_text() + "(TOP (S (NN dog)\n")
    elif name == "own.prm":
        (folder / "own.prm").write_text("LABELED 1\nDELETE_LABELS X\n")


@pytest.mark.parametrize(
    "name, problem",
    [
        ("no nbest", "cannot read nbest"),
        ("shorter", f"expected {len(LISTS[5])} candidates of sentence 5"),
        ("unbalanced", "nbest: line {last}: the tree is not closed"),
        ("words", "nbest: line {last}: a tree over other words than the first candidate of list 6"),
        ("gzip", "nbest is damaged: "),
        ("no gold", "cannot read gold"),
        ("more gold", "nbest: expected a list for each of 7 gold trees; got 6"),
        ("other gold", "a tree over other words than gold tree 5: at word"),
        ("open gold", "gold: line 7: the tree that begins here is not closed"),
        ("own.prm", "own.prm: line 2: expected one of"),
        ("no own.prm", "cannot read own.prm"),
    ],
)
def test_unusable_input_is_refused_and_nothing_is_left(folder, models, name, problem):
    (folder / "old").write_text("precious")
    last = len(lines_of(folder / "nbest"))
    spoil(folder, name)
    options = "--tune gold --output old --overwrite --output-nbest whole --scores kept"
    if "prm" in name:
        options += " --prm own.prm"
    assert problem.format(last=last) in refused_without_a_trace(f"{LINE} {options}", folder)
    assert models.called == 0


def test_unusable_models_are_refused(folder, models, monkeypatch):
    models.both[0].decoder.output.bias.data[:] = torch.nan
    line = f"{LINE} --output best --output-nbest whole"
    assert "not finite" in refused_without_a_trace(line, folder)
    words = Ensemble(
        [peaked_model()], SimpleNamespace(dictionary=peaked_model().decoder.dictionary)
    )
    monkeypatch.setattr(rerank, "ensemble_of", lambda args: words)
    assert "expected a model of trees' symbols" in refused_without_a_trace(line, folder)


def test_a_missing_checkpoint_is_named_and_a_list_is_a_plain_file(folder):
    message = refused_without_a_trace("rerank data nbest --path none.pt --output best", folder)
    assert "no checkpoint at none.pt" in message
    message = refused_without_a_trace("rerank data - --path a.pt --scores kept", folder)
    assert "-: expected a file, since it is read more" in message
