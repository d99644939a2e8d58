"""Caches, dynamic evaluation and surprisals through the real commands, on a trained toy model."""

import math
import shutil

import pytest
from conftest import doc, refused, result_of

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

    def call(command, options="", path=model, **settings):
        words = [command, corpus.data, "--path", path, "--cpu", *options.split()]
        return result_of(*words, **settings)

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


def test_surprisals_as_a_table(corpus, lm, model):
    text = b"w1 w2\nw3 strange w1\n"

    def table(options=""):
        words = ["score", corpus.data, "--path", model, "--cpu", "--tsv", *options.split()]
        return [row.split("\t") for row in doc(*words, stdin=text)[0].splitlines()[1:]]

    fresh, carried = table(), table("--state carried")
    assert [row[2] for row in fresh] == ["w1", "w2", "</s>", "w3", "strange", "w1", "</s>"]
    assert carried[0][3:5] == ["NA", "NA"]
    for rows, state in ((fresh, "fresh"), (carried[1:], "carried")):
        scored = lm("score", f"--state {state}", stdin=text)
        bits = sum(float(row[3]) for row in rows)
        assert bits * math.log(2) == pytest.approx(-scored["log_prob"], abs=1e-4)
        most = math.log2(len((corpus.data / "dict.txt").read_text().splitlines()) + 4)
        assert all(0 < float(row[4]) < most for row in rows)
    for more in ("--cache-window 3 --cache-lambda 0.5", f"{DYNAMIC} --dynamic-rate 0.1"):
        adapted = table(f"--state carried {more}")
        changed = [a[3] != b[3] for a, b in zip(adapted, carried, strict=True)]
        # Segments of 20 words: the first, and here the only one, is scored by the trained weights.
        assert any(changed) == more.startswith("--cache")


def test_surprisals_of_spans_are_sums(corpus, model):
    """Where the data folder's text was tokenised, ``w2,`` has two tokens; a mark is not read."""
    folder = model.parent / "tokenised"
    doc("prepare-lm", "text", corpus.text, folder, "--tokenizer", "moses")

    def table(text, *options):
        words = ["score", folder, "--path", model, "--cpu", "--tsv", *options]
        rows = [row.split("\t") for row in doc(*words, stdin=text)[0].splitlines()[1:]]
        return [(row[2], row[6]) for row in rows], [float(row[3]) for row in rows]

    names, bits = table(b"w1 w2, | w3\n", "--spans", "|")
    assert names == [("w1 w2,", "3"), ("w3", "1"), ("</s>", "1")]
    names, by_word = table(b"w1 w2, w3\n")
    assert names == [("w1", "1"), ("w2,", "2"), ("w3", "1"), ("</s>", "1")]
    assert bits == pytest.approx([sum(by_word[:2]), *by_word[2:]], abs=1e-5)
    names, by_token = table(b"w1 w2, w3\n", "--units")
    assert [word for word, _ in names] == ["w1", "w2", ",", "w3", "</s>"]
    assert sum(by_token) == pytest.approx(sum(bits), abs=1e-5)


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


def test_pairs_with_which_the_model_diverges(corpus, lm, model):
    """They are passed over; where no pair is left, or one is given, an error says so."""
    few = "--dynamic --dynamic-segment 20 --dynamic-columns 20 --dynamic-batches 1"
    search = f"{few} --dynamic-search --dynamic-search-tokens 60 --no-progress-bar"
    command = ["eval-lm", corpus.data, "--path", model, "--cpu"]
    error = refused(*command, *few.split(), "--dynamic-rate", "1e30", "--dynamic-epsilon", "1e-9")
    assert "Try a smaller --dynamic-rate" in error
    error = refused(*command, *search.split(), "--dynamic-epsilon", "1e-45")
    assert "gave finite scores" in error and "--dynamic-epsilon" in error
    model.with_name("model.pt.20x20.npz").unlink()


@pytest.mark.parametrize(
    "options, problem",
    [
        ("--cache-lambda 0.1", "--cache-lambda needs --cache-window"),
        ("--cache-search", "--cache-search needs --cache-window"),
        (
            "--cache-window 5 --cache-search --cache-theta 1",
            "--cache-search cannot be combined with --cache-theta",
        ),
        ("--cache-window 999999", "is more than a column of split 'test' holds"),
        ("--cache-window 999999 --dynamic", "is more than a column of split 'test' holds"),
        ("--gen-subset tset --dynamic", "no binarised split 'tset'"),
        ("--gen-subset tset --cache-window 5 --cache-search", "no binarised split 'tset'"),
        ("--dynamic --dynamic-columns 99999", "--dynamic-columns 99999: expected at most"),
        ("--dynamic-rate 1", "--dynamic-rate needs --dynamic"),
        ("--dynamic --eval-window 5", "--eval-window 5"),
        ("--dynamic --matmul-precision bfloat16", "--dynamic computes in float32"),
        ("--dynamic-search", "--dynamic-search needs --dynamic"),
        ("--dynamic-search-tokens 5", "--dynamic-search-tokens needs --dynamic-search"),
        ("--cache-window 5 --cache-search --temperature search", "expected one search at a time"),
    ],
)
def test_settings_that_cannot_be(options, problem, corpus, model):
    files = set(model.parent.iterdir())
    error = refused("eval-lm", corpus.data, "--path", model, "--cpu", *options.split())
    assert problem in error
    assert set(model.parent.iterdir()) == files


def test_scores_that_cannot_be(corpus, model):
    score = ["score", corpus.data, "--path", model, "--cpu"]
    for options, problem in (
        ("--cache-window 5", "expected --state carried; got fresh"),
        ("--dynamic", "expected --state carried; got fresh"),
        ("--tsv --output-word-probs", "--tsv cannot be combined with --output-word-probs"),
        ("--tsv --json", "--tsv cannot be combined with --json"),
        ("--tsv --spans |", "--spans: expected | between spans"),
        ("--units", "--units needs --tsv"),
    ):
        assert problem in refused(*score, *options.split(), stdin=b"w1\n")
    files = set(model.parent.iterdir())
    error = refused(*score, "--state", "carried", "--dynamic", stdin=b"\n")
    assert "expected a text of at least 2 tokens" in error
    assert set(model.parent.iterdir()) == files
    twice = ["eval-lm", corpus.data, "--path", f"{model}:{model}", "--cpu", "--dynamic"]
    assert "expected different models" in refused(*twice)


def test_statistics_of_another_model_or_segment(corpus, lm, model, trained):
    lm("eval-lm", DYNAMIC)  # writes them, unless a test before has
    statistics = model.with_name("model.pt.10x20.npz")
    words = ["eval-lm", corpus.data, "--cpu", "--dynamic-statistics", statistics]
    other = [*words, "--path", trained.folder / "checkpoint1.pt", *DYNAMIC.split()]
    error = refused(*other)
    assert "other weights" in error and "remove it" in error
    segment = [*words, "--path", model, *DYNAMIC.replace("segment 20", "segment 5").split()]
    error = refused(*segment)
    assert "--dynamic-segment" in error and "give these settings" in error
