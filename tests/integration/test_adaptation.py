"""Caches, dynamic evaluation and surprisals through the real commands, on a trained toy model."""

import shutil

import pytest
from conftest import refused, result_of

from fairseq_doc.adaptation.dynamic import grid


@pytest.fixture(scope="module")
def model(trained, tmp_path_factory):
    """A copy of the model in a folder of its own, for gradient statistics beside it."""
    path = tmp_path_factory.mktemp("adapted") / "model.pt"
    shutil.copy(trained.folder / "checkpoint_best.pt", path)
    return path


@pytest.fixture(scope="module")
def lm(corpus, model):
    """Run a command on the model; the JSON object."""

    def call(command, options="", runs=result_of, **settings):
        words = [command, corpus.data, "--path", model, "--cpu", *options.split()]
        return runs(*words, **settings)

    return call


DYNAMIC = "--dynamic --dynamic-segment 20 --dynamic-columns 10 --dynamic-batches 30"


def test_a_cache_of_searched_settings_is_at_least_as_good_as_none(lm):
    options = "--gen-subset valid --cache-window 50"
    static = lm("eval-lm", "--gen-subset valid")
    searched = lm("eval-lm", f"{options} --cache-search")
    assert len(searched["searched"]) > 50
    assert searched["perplexity"] == pytest.approx(min(searched["searched"].values()))
    # lambda 0.01 changes almost nothing
    assert searched["perplexity"] < static["perplexity"] * 1.005
    cache = searched["cache"]
    given = f"{options} --cache-theta {cache['theta']} --cache-lambda {cache['lambda']}"
    assert lm("eval-lm", given)["nll"] == pytest.approx(searched["nll"], rel=1e-9)
    by_window = lm("eval-lm", f"{given} --eval-window 7")
    assert by_window["nll"] == pytest.approx(searched["nll"], rel=1e-5)
    assert static["cache"] is None and static["dynamic"] is None
    ends = {0.01: "smallest", 0.4: "largest"}
    assert searched["at_ends"].get("lambda") == ends.get(cache["lambda"])
    assert static["at_ends"] == {}


def test_dynamic_evaluation_and_its_search(lm, model):
    static = lm("eval-lm", "--gen-subset valid")
    search = f"--gen-subset valid {DYNAMIC} --dynamic-search --dynamic-search-tokens 200"
    searched = lm("eval-lm", search)
    statistics = model.with_name("model.pt.10x20.npz")
    written = statistics.read_bytes()
    assert len(searched["searched"]) + len(searched["given_up"]) == len(grid(20))
    chosen = searched["dynamic"]
    assert min(searched["searched"], key=searched["searched"].get) == (
        f"rate {chosen['rate']:g}, decay {chosen['decay']:g}"
    )
    assert searched["tokens"] == static["tokens"]
    # The toy language is the same everywhere: small steps change next to nothing, and can gain nothing.
    careful = lm("eval-lm", f"--gen-subset valid {DYNAMIC} --dynamic-rate 1e-7")
    assert careful["perplexity"] == pytest.approx(static["perplexity"], rel=0.01)
    assert careful["nll"] != static["nll"]
    given = f"{DYNAMIC} --dynamic-rate {chosen['rate']} --dynamic-decay {chosen['decay']}"
    again = lm("eval-lm", f"--gen-subset valid {given}")
    assert again["nll"] == pytest.approx(searched["nll"], rel=1e-9)
    assert statistics.read_bytes() == written
    bias = lm("eval-lm", f"--gen-subset valid {given} --dynamic-adapt output-weights")
    assert bias["nll"] != pytest.approx(again["nll"], rel=1e-6)


def test_scores_of_a_text_are_those_of_the_split(corpus, lm):
    """With learning and a cache too: ``score`` reads in the same segments as ``eval-lm``."""
    text = (corpus.text / "test.txt").read_bytes()
    learning = f"{DYNAMIC} --dynamic-rate 1e-5"
    for more in (learning, "--cache-window 50", f"{DYNAMIC} --cache-window 9"):
        split = lm("eval-lm", more)
        scored = lm("score", f"--state carried {more}", stdin=text)
        assert scored["tokens"] == split["tokens"]
        assert scored["log_prob"] == pytest.approx(-split["nll"], rel=1e-6)
    assert split["nll"] != pytest.approx(lm("eval-lm")["nll"], rel=1e-6)


def test_pairs_with_which_the_model_diverges(lm, model):
    """They are passed over; where no pair is left, or one is given, an error says so."""
    few = "--dynamic --dynamic-segment 20 --dynamic-columns 20 --dynamic-batches 1"
    search = f"{few} --dynamic-search --dynamic-search-tokens 60 --no-progress-bar"
    given = f"{few} --dynamic-rate 1e30 --dynamic-epsilon 1e-9"
    assert "Try a smaller --dynamic-rate" in lm("eval-lm", given, runs=refused)
    error = lm("eval-lm", f"{search} --dynamic-epsilon 1e-45", runs=refused)
    assert "gave finite scores" in error and "--dynamic-epsilon" in error
    model.with_name("model.pt.20x20.npz").unlink()


SEARCHES = "--cache-window 5 --cache-search --temperature search"


@pytest.mark.parametrize(
    "command, options, problem",
    [
        ("eval-lm", "--gen-subset tset --dynamic", "no binarised split 'tset'"),
        ("eval-lm", "--dynamic --matmul-precision bfloat16", "--matmul-precision"),
        ("eval-lm", SEARCHES, "expected one search at a time"),
        ("score", "--dynamic --empty-lines", "expected --state carried; got fresh"),
        ("score", "--state carried --dynamic", "expected a text of at least 2 tokens"),
    ],
)
def test_settings_that_cannot_be(lm, model, command, options, problem):
    files = set(model.parent.iterdir())
    assert problem in lm(command, options, runs=refused, stdin=b"\n")
    assert set(model.parent.iterdir()) == files
