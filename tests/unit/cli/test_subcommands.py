"""Every command's line; what the commands for a model give, with models of two layers in place of
checkpoints."""

import csv
import json
import math
import shlex
from collections import Counter

import numpy as np
import pytest
import torch
from conftest import assert_refused

from fairseq_doc.analysis.components import (
    by_frequency,
    mixture_weights,
    summarise,
    text_components,
)
from fairseq_doc.analysis.learning_curves import LearningCurve, reference_lines
from fairseq_doc.analysis.rank import log_prob_rank
from fairseq_doc.cli import components, eval_lm, generate, score
from fairseq_doc.cli.arguments import unknown_words
from fairseq_doc.cli.main import SUBCOMMANDS, main, make_parser, module_of, outcome, settings_of
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.preparation.byte_text import binarise_bytes, make_dictionary
from fairseq_doc.preparation.text_form import text_of

from ..conftest import random_tokens, small_dictionary, small_model, write_split
from ..evaluation.conftest import ensemble, peaked_model
from ..preparation.conftest import contents, refusal_leaving


@pytest.fixture
def models(folder, monkeypatch):
    """Two models over a text in the working folder; the number of paths in --path says how many of
    them are used."""
    write_split(folder, "test", random_tokens(4, 25).tolist())
    small_dictionary().save("./dict.txt")
    both = [peaked_model(seed=0), peaked_model(seed=1)]

    def of(settings, dropout_scale=1.0):
        count, window = len(settings.path.split(":")), getattr(settings, "eval_window", None) or 12
        return ensemble(*both[:count], folder=settings.data, eval_window=window)

    for command in map(module_of, SUBCOMMANDS):
        if hasattr(command, "ensemble_of"):
            monkeypatch.setattr(command, "ensemble_of", of)
    return both


def result_of(words):
    """The result of a command line, as JSON and as text."""
    args = make_parser().parse_args(shlex.split(words))
    result, text = outcome(args.command, settings_of(args))
    return json.loads(json.dumps(result)), text


def run(command, options=""):
    """The same of a command on the first model, or on those of a later --path."""
    return result_of(f"{command} . --path a.pt --no-progress-bar {options}")


# Command lines


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_command_has_a_help_and_examples_that_its_parser_takes(name, capsys):
    command = module_of(name)
    for example in command.EXAMPLE.splitlines():
        before, words = example.split("fairseq-doc ")
        assert before.strip() == "" or shlex.split(before)[0] == "echo"
        args = make_parser().parse_args(shlex.split(words))
        assert args.command is command and not args.json
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert command.EXAMPLE in printed and "--json" in printed
    (parsers,) = (a.choices for a in make_parser()._actions if hasattr(a, "choices") and a.choices)
    assert SUBCOMMANDS[name] and all(action.help for action in parsers[name]._actions)


@pytest.mark.parametrize(
    "words, problem",
    [
        ("", "required: COMMAND"),
        ("eval-lm", "required: data, --path"),
        ("prepare-lm music raw", "argument CORPUS: invalid choice: 'music'"),
    ],
)
def test_a_line_that_cannot_be_read_ends_with_argparses_status(words, problem, capsys):
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(words))
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


# eval-lm


@pytest.mark.parametrize("path, n_models", [("a.pt", 1), ("a.pt:b.pt", 2)])
def test_eval_lm(models, path, n_models):
    result, _ = run("eval-lm", f"--path {path} --batch-size 3")
    expected = evaluate(ensemble(*models[:n_models], folder="."), "test", 3)
    assert result.pop("seconds") >= result.pop("seconds_before") >= 0
    assert [result.pop(name) for name in ("perplexity", "nll", "bits")] == pytest.approx(
        [expected.perplexity, expected.nll, expected.bits], rel=1e-12
    )
    assert result == {
        "tokens": 96, "left_out": 3, "models": n_models, "split": "test", "columns": 3,  # 3 (33 - 1) of 100
        "temperature": 1.0, "searched": {}, "given_up": {}, "at_ends": {}, "samples": 0,
        "cache": None, "dynamic": None, "searched_tokens": 0,
    }  # fmt: skip


def test_the_text_of_a_search_says_what_was_given_up_and_what_may_be_better():
    result = {
        "split": "valid", "perplexity": 10.0, "bits": 3.3, "nll": 23.0, "tokens": 10, "left_out": 0,
        "models": 1, "seconds": 1.0, "samples": 0, "temperature": 1.0, "dynamic": None,
        "cache": {"window": 5, "similarity": "dot", "theta": 4.0, "lambda": 0.2}, "given_up": {"theta 1, lambda 0.2": 3},
        "searched": {"theta 4, lambda 0.2": 10.0}, "at_ends": {"theta": "largest"},
        "searched_tokens": 3000,
    }  # fmt: skip
    lines = eval_lm.as_text(result).splitlines()
    assert lines[1].startswith("perplexity on 3,000 tokens of valid, ")
    assert "the best of 2 (1 fell behind and were given up): theta 4, lambda 0.2: 10.00" in lines[1]
    assert "the best theta is the largest one tried; values beyond it may be better" in lines
    dynamic = {"cache": None, "dynamic": {"rate": 0.1}}
    far = "the weights diverged: try a smaller --dynamic-rate"
    assert far in eval_lm.as_text(result | dynamic | {"perplexity": math.inf}).splitlines()
    assert far not in eval_lm.as_text(result | dynamic)


# score


@pytest.fixture
def write(folder):
    """A function that writes the text that the commands read; the option that names it, and more."""

    def make(text, options=""):
        (folder / "text").write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"--input text {options}"

    return make


def cells(text):
    """The rows of a table, split at tabs."""
    return [row.split("\t") for row in text.split("\n")]


@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_score(models, write, state, capsys):
    options = write("w1  w2\nw3 strange <unk>\nw4\n", f"--path a.pt:b.pt --state {state}")
    result, text = run("score", options)
    sentences = [["w1", "w2"], ["w3", "strange", "<unk>"], ["w4"]]
    expected = score_text(ensemble(*models), sentences, state)
    total = sum(one.log_prob for one in expected)
    assert result["log_prob"] == pytest.approx(total, rel=1e-12)
    assert result["tokens"] == sum(one.tokens for one in expected) == (9 if state == "fresh" else 8)
    assert result["unknown"] == {"strange": 1}
    for found, words, one in zip(result["sentences"], sentences, expected, strict=True):
        assert found.pop("log_prob") == pytest.approx(one.log_prob, rel=1e-12)
        assert found == {"text": " ".join(words), "tokens": one.tokens, "unknown": one.unknown}
    totals, unknown = capsys.readouterr().err.splitlines()
    assert f"3 sentences, {result['tokens']} tokens" in totals and unknown.endswith(": strange")
    rows = zip(expected, sentences, strict=True)
    assert cells(text) == [[f"{one.log_prob:.4f}", " ".join(words)] for one, words in rows]

    by_word, text = run("score", f"{options} --output-word-probs --max-tokens 2")
    for sentence, other in zip(by_word["sentences"], expected, strict=True):
        assert sentence["words"] == other.words
        assert sentence["word_log_probs"] == pytest.approx(other.word_log_probs, abs=1e-9)
    one, two = other.word_log_probs
    assert text.splitlines()[2] == f"{other.log_prob:.4f}\tw4 [{one:.4f}] </s> [{two:.4f}]"


def test_unknown_words_are_counted_and_the_ten_most_frequent_named(models, write, capsys):
    names = [f"x{i}" for i in range(12)]
    result, _ = run("score", write("\n".join(f"{name} " * (i + 1) for i, name in enumerate(names))))
    assert result["unknown"] == {name: i + 1 for i, name in enumerate(names)}
    remark = capsys.readouterr().err.splitlines()[1]
    assert "78, of 12 types: " + ", ".join(names[:1:-1]) + ", ..." in remark
    assert unknown_words(Counter("abcdefghij"), "word").endswith(": a, b, c, d, e, f, g, h, i, j")


def test_empty_lines_where_asked_for(models, write):
    options = write("w1\n\n")
    for more, first in (("--empty-lines", 2), ("--state carried", 1)):
        result, text = run("score", f"{options} {more}")
        assert [s["tokens"] for s in result["sentences"]] == [first, 1]
        assert text.splitlines()[1].endswith("\t")
    assert_refused("text: line 2 is empty", run, "score", options)


@pytest.mark.parametrize("options, words", [("", ["w1,", "w2"]), ("--units", ["w1", ",", "w2"])])
def test_score_joins_tokens_to_the_words_as_written(models, folder, write, options, words):
    settings = {"tokenizer": "moses", "lang": "en", "bpe": "none", "made by": {}}
    (folder / "settings.json").write_text(json.dumps(settings))
    result, text = run("score", write("w1, w2\nw3\n", f"--tsv {options}"))
    names, *rows = cells(text)
    assert names == ["line", "position", "word", "surprisal", "entropy", "unknown", "tokens"]
    assert [row[2] for row in rows] == [*words, "</s>", "w3", "</s>"]
    assert [row[1] for row in rows] == [*map(str, range(1, len(words) + 2)), "1", "2"]
    assert [int(row[5]) for row in rows] == [*(int("," in word) for word in words), 0, 0, 0]
    scored = score_text(ensemble(models[0]), [["w1", ",", "w2"], ["w3"]])
    bits = sum(float(row[3]) for row in rows)
    assert bits == pytest.approx(-sum(one.log_prob for one in scored) / math.log(2), abs=1e-5)
    assert result["tokens"] == sum(one.tokens for one in scored)
    carried = cells(run("score", f"--input text --tsv --state carried {options}")[1])[1]
    assert carried[3:5] == ["NA", "NA"]


def test_score_sums_spans_without_their_marks(models, write):
    rows = cells(run("score", write("w1 w2 | | w3 w4\nw5\n", "--tsv --spans '|'"))[1])[1:]
    words = cells(run("score", write("w1 w2 w3 w4\nw5\n", "--tsv"))[1])[1:]
    assert [row[2] for row in rows] == ["w1 w2", "", "w3 w4", "</s>", "w5", "</s>"]
    assert [row[6] for row in rows] == ["2", "0", "2", "1", "1", "1"] and rows[1][3] == "NA"
    for span, own in ((rows[0], words[:2]), (rows[2], words[2:4])):
        assert float(span[3]) == pytest.approx(sum(float(w[3]) for w in own), abs=1e-5)
    assert [row[3:] for row in rows[3:]] == [row[3:] for row in words[4:]]


@pytest.mark.parametrize(
    "options, problem",
    [
        ("--units", "--units needs --tsv"),
        ("--spans '|'", "--spans needs --tsv"),
        ("--tsv --units --spans '|'", "--units cannot be combined with --spans"),
        ("--tsv --spans w2", "line 2 is empty"),
    ],
)
def test_tables_that_are_refused_before_a_model_is_loaded(
    models, write, monkeypatch, options, problem
):
    monkeypatch.setattr(score, "ensemble_of", None)
    assert_refused(problem, run, "score", write("w1 w2\nw2\n", options))


# generate


def test_generate(models, capsys):
    options = "--length 7 --samples 2 --temperature 0.5 --sampling-topk 3 --seed 4"
    options += " --sampling-topp 0.95 --allow-unknown"
    result, text = run("generate", f'--path a.pt:b.pt --prompt " w1  w2" {options}')
    expected = sample_text(ensemble(*models), ["w1", "w2"], 7, 2, 0.5, 3, 4, 0.95, True)
    texts = [text_of(["w1", "w2", *sample], "word") for sample in expected]
    assert result == {"prompt": ["w1", "w2"], "samples": expected, "end": "</s>", "texts": texts}
    assert text == "\n\n".join(texts) and text.split()[:2] == ["w1", "w2"]
    assert generate.as_text({"texts": ["a\n\nb\n\n", "c"]}) == "a\n\nb\n\nc"
    assert capsys.readouterr() == ("", "")
    result, _ = run("generate", '--prompt "w1 x y <unk>" --length 1')
    assert result["prompt"] == ["w1", "x", "y", "<unk>"]
    (remark,) = capsys.readouterr().err.splitlines()
    assert remark.endswith(": x, y")


# pairs


def test_pairs_counts_a_file_once_and_says_which_are_ties(models, folder):
    (folder / "x.tsv").write_text("w1 w2\tw1 w2\nw1\tw2\n")
    result, text = run("pairs", "x.tsv")
    assert result["all"]["pairs"] == 2 and result["ties"] == 1
    assert text.splitlines()[-1].startswith("1 ties")


# Bytes

BYTES = "aé\naaé\n" * 5
RAW = {"lines": 10, "words": 10, "characters": 35, "bytes": 45, "tokens": 45}


@pytest.fixture
def model_of_bytes(folder, monkeypatch):
    """A model over the bytes of a text, ``a\\xc3\\xa9`` and the line feed, in place of checkpoints."""
    dictionary = make_dictionary(np.bincount(list("aaé".encode()), minlength=256))
    dictionary.save("./dict.txt")
    (folder / "whole").write_text(BYTES)
    binarise_bytes(np.fromfile(folder / "whole", np.uint8), folder / "test", dictionary)
    model = small_model(len(dictionary), dictionary=dictionary).eval()
    whole = ensemble(model, folder=".", dictionary=dictionary)
    for command in (components, eval_lm, score, generate):
        monkeypatch.setattr(command, "ensemble_of", lambda *_: whole)
    return whole


def test_a_text_as_written_has_figures_whatever_its_tokens_are(model_of_bytes, folder, capsys):
    """eval-lm does not score the first byte; score reads the same text."""
    nats = -evaluate(model_of_bytes, "test").nll / 44 * 45 / math.log(0.5) * math.log(2)
    _, text = run("eval-lm")
    assert "as written" not in text and "raw_counts.json" in capsys.readouterr().err
    (folder / "raw_counts.json").write_text(json.dumps({"test": RAW}))
    carried = "--state carried --input whole"
    for name, options in (("eval-lm", ""), ("score", carried), ("components", carried)):
        result, text = run(name, options)
        assert result["raw_counts"] == RAW
        assert result["bits_per_byte"] == pytest.approx(nats / 45 / math.log(2), rel=1e-9)
        assert result["bits_per_character"] == pytest.approx(nats / 35 / math.log(2), rel=1e-9)
        assert result["word_perplexity"] == pytest.approx(math.exp(nats / 20), rel=1e-9)
        assert f"{result['bits_per_character']:.4f} bits per char" in text + capsys.readouterr().err


def test_words_with_an_end_mark_a_line_have_the_perplexity_a_token(models, folder):
    counts = {"lines": 4, "words": 96, "characters": 300, "bytes": 300, "tokens": 100}
    (folder / "raw_counts.json").write_text(json.dumps({"test": counts}))
    result, _ = run("eval-lm", "--batch-size 3")
    assert result["word_perplexity"] == result["perplexity"]


def test_any_bytes_are_scored_and_joined_to_words(model_of_bytes, write, capsys):
    result, _ = run("score", write(b"\x61\xff \r\n"))
    (sentence,) = result["sentences"]
    assert (sentence["text"], sentence["tokens"]) == ("a\ufffd \r", 5)
    assert result["unknown"] == {"<0xFF>": 1, "<0x20>": 1, "<0x0D>": 1}
    assert "bytes outside the dictionary" in capsys.readouterr().err
    assert_refused("line 1 has 4 bytes", run, "score", "--input text --max-words 3")
    options = write("é  aa\n".encode() + b"\xff\r\n")
    rows, units = (
        cells(run("score", f"{options} --tsv {more}")[1])[1:] for more in ("", "--units")
    )
    expected = [("é", "4"), ("aa", "2"), ("</s>", "1"), ("\ufffd", "2"), ("</s>", "1")]
    assert [(row[2], row[6]) for row in rows] == expected
    assert [row[2] for row in units[:4]] == ["<0xC3>", "<0xA9>", "<0x20>", "<0x20>"]
    bits = sum(float(row[3]) for row in units[:4])
    assert float(rows[0][3]) == pytest.approx(bits, abs=1e-5)


def test_a_model_of_bytes_describes_and_continues_plain_text(model_of_bytes, write, capsys):
    result, text = run("components", write("é\n".encode()))
    (sentence,) = result["sentences"]
    names = [token["word"] for token in sentence["tokens"]]
    assert (sentence["text"], names) == ("é", ["<0xC3>", "<0xA9>", "</s>"])
    bits = -result["log_prob"] / 3 / math.log(2)
    assert result["bits_per_byte"] == pytest.approx(bits) and f"{bits:.4f} bits per byte" in text
    result, text = run("generate", "--prompt 'aé\na b' --length 30 --samples 2")
    assert result["prompt"] == ["<0x61>", "<0xC3>", "<0xA9>", "</s>", "<0x61>", "<0x20>", "<0x62>"]
    assert all(part.startswith("aé\na b") for part in result["texts"])
    assert all(set(part) <= set("aé\n\ufffd b") for part in result["texts"])
    assert capsys.readouterr().err.endswith(": <0x20>, <0x62>\n")


# rank and weights


def test_rank_is_taken_in_double_precision(models):
    models[0].to(torch.float32)
    result, text = run("rank")
    values = log_prob_rank(ensemble(models[0], folder="."), "test").singular_values
    assert (result["rank"], result["tokens"], result["vocabulary"]) == (20, 99, 20)
    assert result["tolerance"] == 99 * 2**-52
    assert result["largest_singular_value"] == pytest.approx(values[0], rel=1e-9)
    assert result["smallest_counted"] == pytest.approx(values[-1], abs=1e-11 * values[0])
    assert result["largest_not_counted"] is None and "not counted none" in text
    between = float((values[4] * values[5]) ** 0.5 / values[0])
    result, _ = run("rank", f"--tolerance {between!r}")
    found = [result[name] for name in ("rank", "smallest_counted", "largest_not_counted")]
    assert found == pytest.approx([5, values[4], values[5]], rel=1e-6)
    assert_refused("computed in float64", run, "rank", "--matmul-precision float32")


def test_weights(models, folder):
    (folder / "weights.png").write_text("precious")
    result, text = run("weights", "--picture weights.png --overwrite")
    found = mixture_weights(ensemble(models[0], folder="."), "test")
    assert [c["layer"] for c in result["components"]] == [0, 2, 2]
    assert [c["weight"] for c in result["components"]] == pytest.approx(found.weights)
    assert result["layers"] == pytest.approx({str(n): w for n, w in found.by_layer.items()})
    assert result["coefficient_of_variation"] == pytest.approx(found.coefficient_of_variation)
    assert result["tokens"] == 99
    assert result["picture"] == "weights.png" and text.endswith("\nwrote weights.png")
    assert (folder / "weights.png").read_bytes().startswith(b"\x89PNG")
    table = [row.split() for row in text.splitlines()[1:6]]
    assert [" ".join(row[:2]) for row in table] == ["1 0", "2 2", "3 2", "all 0", "all 2"]
    assert table[1][2] == f"{found.weights[1]:.4f}"
    result, text = run("weights")
    assert "picture" not in result and "wrote" not in text


# components

LINES = [["w1", "w2", "w1"], ["w3", "strange"], ["w1"]]


@pytest.fixture
def lines(models, write):
    """A text of three lines, and models."""
    return write("".join(f"{' '.join(words)}\n" for words in LINES))


def test_components(models, lines):
    """The JSON object holds what the functions below the command give, layers after components."""
    result, _ = run("components", f"{lines} --top-words 3 --min-count 2")
    found = text_components(ensemble(models[0], folder="."), LINES, n_words=3)
    assert result["tokens"] == 9 and result["unknown"] == {"strange": 1}
    assert result["log_prob"] == pytest.approx(found.log_prob)
    assert [sentence["text"] for sentence in result["sentences"]] == list(map(" ".join, LINES))
    for sentence, expected in zip(result["sentences"], found.sentences, strict=True):
        tokens = sentence["tokens"]
        assert [token["word"] for token in tokens] == expected.words
        assert [token["position"] for token in tokens] == list(range(1, len(tokens) + 1))
        parts = [[*token["components"], *token["layers"]] for token in tokens]
        for key, values in zip(components.SHARES, expected.parts.tensors, strict=False):
            assert np.allclose([[part[key] for part in row] for row in parts], values, rtol=1e-12)
        names = [
            [[found.dictionary[i] for i in best] for best in row] for row in expected.parts.words
        ]
        assert [[part["words"] for part in row] for row in parts] == names
    labels = [(part["component"], part["layer"]) for part in tokens[0]["components"]]
    assert labels == [(1, 0), (2, 2), (3, 2)]
    assert [part["layer"] for part in tokens[0]["layers"]] == [0, 2]
    parts = [*result["components"], *result["layers"]]
    for part, expected in zip(parts, summarise(found, 2, 3), strict=True):
        assert expected.items() <= part.items()
    assert result["kinds"] == by_frequency(found)


def test_the_files_of_components(lines, folder):
    for name in ("a.tsv", "a.png"):
        (folder / name).write_text("precious")
    result, text = run("components", f"{lines} --tsv a.tsv --picture a.png --line 2 --overwrite")
    with open("a.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert list(rows[0]) == list(components.COLUMNS) and len(rows) == 9 * 3
    part = result["sentences"][1]["tokens"][1]["components"][2]
    expected = {"line": 2, "position": 2, "word": "strange", "layer": 2, "component": 3}
    expected |= {key: f"{part[key]:.6g}" for key in ("weight", "posterior", "log_prob")}
    expected["words"] = " ".join(part["words"])
    assert rows[(4 + 1) * 3 + 2] == {key: str(value) for key, value in expected.items()}
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (result["tsv"], result["picture"]) == ("a.tsv", "a.png")
    assert text.splitlines()[-2:] == ["wrote a.png", "wrote a.tsv"]
    # A carried text has no components at its first word.
    result, _ = run("components", f"{lines} --state carried --tsv b.tsv")
    assert result["tokens"] == 8
    assert [token["position"] for token in result["sentences"][0]["tokens"]] == [2, 3, 4]
    assert (folder / "b.tsv").read_text().splitlines()[1].split("\t")[:3] == ["1", "2", "w2"]


def test_the_summary_alone_leaves_out_the_sentences(lines):
    whole, _ = run("components", lines)
    result, text = run("components", f"{lines} --summary")
    assert result == {name: value for name, value in whole.items() if name != "sentences"}
    assert "line 1" not in text and "at least 10 times: none" in text


def test_components_of_one_layer_are_shown_one_by_one(models, lines):
    models[0] = peaked_model(doc_components="0,0,3")
    result, text = run("components", f"{lines} --min-count 1")
    token = result["sentences"][2]["tokens"][0]
    assert [part["weight"] for part in token["layers"]] == [pytest.approx(1)]
    part = token["components"][1]
    rows = [line.split() for line in text.splitlines()]
    assert ["2", f"{part['weight']:.3f}", f"{part['posterior']:.3f}"] in [row[:3] for row in rows]
    assert ["layer", "weight"] not in [row[:2] for row in rows] and "end mark" not in text


@pytest.mark.parametrize(
    "options, message",
    [
        ("--tsv empty --input empty --overwrite", "empty is used twice"),
        ("--picture new.png --line 4", "line must be at most 3.*; got 4"),
        ("--picture new.png --line 3", "line must be .* at most 200 .*; got line 3 with 300"),
        ("--input empty", "empty: line 1 is empty"),
    ],
)
def test_components_that_cannot_be_shown(options, message, models, folder, write, monkeypatch):
    monkeypatch.setattr(components, "ensemble_of", None)
    (folder / "empty").write_text("\nw1\n")
    lines = write(f"w1 w2 w1\nw3\n{'w1 ' * 300}\n")
    before = contents(folder)
    assert_refused(message, run, "components", f"{lines} {options}")
    assert contents(folder) == before


# curves

VALID = (
    "2024-05-01 10:00:10 | INFO | valid | epoch 00{} | valid on 'valid' subset | ppl {} | wps 0\n"
)


@pytest.fixture
def logs(folder):
    (folder / "mos.log").write_text(VALID.format(1, 90.5) + VALID.format(2, 80.25))
    switch = "2024-05-01 10:00:10 | INFO | nt_asgd | averaging starts after epoch 1\n"
    validations = [VALID.format(*pair) for pair in ((1, 70), (2, 60), (3, 65))]
    (folder / "doc.log").write_text(switch.join(validations[:2]) + validations[2])
    return folder


def test_curves(logs):
    (logs / "lr=20.log").write_text((logs / "mos.log").read_text())
    result, _ = result_of("curves curves.png MoS=lr=20.log DOC=doc.log")
    mos = {"perplexity": {"1": 90.5, "2": 80.25}, "best": 80.25, "averaging_after": None}
    doc = {"perplexity": {"1": 70, "2": 60, "3": 65}, "best": 60, "averaging_after": 1}
    rest = {"seeds": 1, "stages_after": {}}
    runs = {"MoS": mos | rest, "DOC": doc | rest}
    assert result == {"picture": "curves.png", "runs": runs}
    assert list(result["runs"]) == ["MoS", "DOC"]
    assert (logs / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_reference_of_curves_and_runs_against_it(logs):
    made, text = result_of("curves --reference ref.json --made-by train.sh seed1=mos.log doc.log")
    assert text.splitlines()[-1] == "wrote ref.json" and list(made["runs"]) == ["seed1", "doc"]
    content = json.loads((logs / "ref.json").read_text())
    assert content["command"] == "train.sh" and content["torch"].startswith(torch.__version__)
    mean, text = result_of("curves both.png both=ref.json MoS=mos.log")
    assert text.startswith(
        "both: 2 epochs, best mean validation perplexity 70.125\nMoS: 2 epochs, best v"
    )
    assert mean["runs"]["both"]["perplexity"] == {"1": 80.25, "2": 70.125}
    (logs / "log.json").write_text((logs / "mos.log").read_text())
    assert result_of("curves log.png A=log.json")[0]["runs"]["A"] == mean["runs"]["MoS"]
    (logs / "bad.log").write_text(VALID.format(2, 70) + VALID.format(3, 200) + VALID.format(4, 1))
    found, text = result_of("curves --check ref.json doc.log bad.log")
    assert found["runs"]["doc.log"] == {"compared": 3, "epochs": 3, "departures": []}
    (outside,) = found["runs"]["bad.log"]["departures"]
    assert found["runs"]["bad.log"]["compared"] == 2 and outside["epoch"] == 3
    inside, line, departure = text.splitlines()
    assert inside == "doc.log: inside the band of the reference at all 3 epochs"
    assert (
        line
        == "bad.log: outside the band of the reference at 1 of 2 epochs compared, of the reference's 3:"
    )
    assert departure.startswith("  epoch 3: 200, expected ")


@pytest.mark.parametrize(
    "words, problem",
    [
        ("new.png doc.log", "expected NAME=FILE; got doc.log"),
        ("new.png A=doc.log A=mos.log", "different names; got A twice"),
        ("--reference list.json --made-by x doc.log", "list.json exists"),
        ("--reference r.txt --made-by x doc.log", "r.txt: expected a name ending in .json"),
        ("new.png A=apart.json", "with a common epoch; got none"),
        ("--check later.json doc.log", "epochs of the reference, 7 to 7; the run has 1 to 3"),
        ("--reference list.json --made-by x list.json --overwrite", "list.json is used twice"),
        ("--reference r.json --made-by x a=doc.log b=./doc.log", "doc.log is used twice"),
    ],
)
def test_curves_and_references_that_cannot_be_made_or_used(logs, words, problem):
    (logs / "list.json").write_text("[1]")
    first, later = (LearningCurve({epoch: 60.0}, None, {}) for epoch in (1, 7))
    for name, curves in (("later", {"a": later}), ("apart", {"a": first, "b": later})):
        (logs / f"{name}.json").write_text("\n".join(reference_lines(curves, "x", {})))
    assert problem in refusal_leaving(logs, result_of, f"curves {words}")
