"""Options from dataclasses: the parser, groups, and what does not belong together."""

import argparse
import re
from dataclasses import dataclass

import pytest
from conftest import ROOT, refusal

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import (
    _OPTIONS,
    REQUIRED,
    add_options,
    files_read,
    group,
    option,
    parse_grid,
    read_options,
    refuse_options,
    with_flags,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    window: int = option("its window", REQUIRED, metavar="N")
    share: float = option("its share", 0.1, name="lambda", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Flagged:
    rate: float | None = option("its rate (default: by the text)")


@dataclass(frozen=True, kw_only=True)
class Options:
    data: str = option("where", REQUIRED, positional=True)
    path: str = option("what", REQUIRED)
    count: int = option("how many", 30_000, least=1)
    kind: str = option("which", "a", choices=["a", "b"])
    fast: bool = option("or not", False)
    search: bool = option("look", False, needs="in-window", without=("in-lambda",))
    inner: Inner | None = group("in", switch="window")
    flagged: Flagged | None = group("learn", switch="learn", help="whether to learn")
    other: int = 3


def parser():
    made = argparse.ArgumentParser()
    add_options(made, Options)
    return made


def read(words):
    return read_options(Options, vars(parser().parse_args(words.split())))


def test_what_is_not_given_has_its_default():
    found = read("d --path p")
    assert found == Options(data="d", path="p")
    assert (found.inner, found.flagged, found.count, found.other) == (None, None, 30_000, 3)


def test_what_is_given():
    found = read("d --path p --count 2 --kind b --fast --in-window 0 --in-lambda 0.2 --learn")
    groups = {"inner": Inner(window=0, share=0.2), "flagged": Flagged(rate=None)}
    assert found == Options(data="d", path="p", count=2, kind="b", fast=True, **groups)
    assert read("d --path p --learn --learn-rate 0.5").flagged == Flagged(rate=0.5)


def test_the_help_has_every_option_with_its_default():
    helped = parser().format_help()
    for text in ("(default: 30,000)", "(default: 0.1)", "(default: by the text)", "--in-window N"):
        assert text in helped
    assert "(default: False)" not in helped and "--other" not in helped


@pytest.mark.parametrize(
    "words, problem",
    [
        ("--in-lambda 0.2", "--in-lambda needs --in-window"),
        ("--learn-rate 0.2", "--learn-rate needs --learn"),
        ("--search", "--search needs --in-window"),
        ("--count 0", "--count must be at least 1; got 0"),
        ("--in-window 1 --in-lambda 1", "--in-lambda must be in [0, 1); got 1.0"),
        ("--search --in-window 3 --in-lambda 0.5", "--search cannot be combined with --in-lambda"),
    ],
)
def test_options_that_do_not_belong_together(words, problem):
    assert refusal(read, f"d --path p {words}") == problem


@pytest.mark.parametrize(
    "text, values",
    [
        ("0:0.3:0.1", [0, 0.1, 0.2, 0.3]),
        ("0:1:0.3", [0, 0.3, 0.6, 0.9]),
        ("0:5:0.05", [round(n * 0.05, 2) for n in range(101)]),
    ],
)
def test_the_values_of_a_grid_are_those_written(text, values):
    assert parse_grid("--weights", text) == values


@pytest.mark.parametrize(
    "text", "0:2 0:2:0.1:3 0:2:0 0:2:-1 -1:2:1 2:1:0.5 0:inf:1 0:nan:1 0:a:1".split()
)
def test_a_grid_that_cannot_be_read(text):
    assert refusal(parse_grid, "--weights", text, 0).startswith("--weights: expected FROM:TO:STEP")


def test_the_files_that_are_read():
    @dataclass(frozen=True, kw_only=True)
    class Files:
        path: str = option("models", "b:c", reads=True)
        texts: list[str] | None = option("texts", reads=True)
        output: str = option("what is written", "x")

    assert sorted(files_read(Files())) == ["b", "b:c", "c"]
    assert files_read(Files(path="a", texts=["d", "e"])) == ["a", "d", "e"]


def test_an_option_that_is_refused_says_what_to_do_instead():
    parser = argparse.ArgumentParser()
    refuse_options(parser, {"max-tokens": "give --bptt"})
    assert vars(parser.parse_args([])) == {} and "max-tokens" not in parser.format_help()
    for words in (["--max-tokens"], ["--max-tokens", "9"]):
        message = refusal(parser.parse_args, words)
        assert "--max-tokens" in message and "give --bptt" in message


@pytest.mark.parametrize(
    "message, parameters, shown",
    [
        ("max_tokens must be 1", ["max_tokens"], "--max-tokens must be 1"),
        ("cache.share must be 1; got 2", ["cache.share"], "--cache-lambda must be 1; got 2"),
        ("give top_k or top_p", ["top_p", "top_k"], "give --sampling-topk or --sampling-topp"),
        ("runs/rate/a.pt: rate must be 1", ["rate"], "runs/rate/a.pt: --rate must be 1"),
        (
            "expected batch_size_valid",
            ["batch_size", "batch_size_valid"],
            "expected --batch-size-valid",
        ),
        ("no state", [], "no state"),
    ],
)
def test_a_command_line_shows_parameters_as_its_options(message, parameters, shown):
    error = FairseqDocError(message, *parameters)
    assert str(error) == message and with_flags(error) == shown


def test_parameters_of_other_names_are_options_of_a_command():
    text = (ROOT / "docs" / "options.md").read_text()
    options = set(re.findall(r"`--([a-z-]+)", text))
    assert {"cache-lambda", "matmul-precision"} <= set(_OPTIONS.values()) <= options
