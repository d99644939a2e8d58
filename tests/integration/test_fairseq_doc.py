"""``fairseq-doc`` as it is typed: every subcommand on a trained model."""

import contextlib
import io
import json
import math
import re
import subprocess
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from conftest import BIN, PACKAGE, ROOT, environment, evaluated, evaluation, fail, run

from fairseq_doc.cli.main import main

SUBCOMMANDS = ["eval-lm", "score", "generate", "rank", "weights", "curves", "attention"]


@pytest.fixture(scope="module")
def checkpoints(trained):
    return [trained.folder / name for name in ("checkpoint1.pt", "checkpoint3.pt")]


def doc(command, data, path, options="", stdin=b"", status=0):
    """Run a subcommand on a model, in this process; what it printed, and what it told on standard
    error."""
    return typed([command, data, "--path", path, "--cpu", *options.split()], stdin, status)


def typed(words, stdin=b"", status=0):
    printed, told = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in "12")
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(told),
        mock.patch("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin))),
    ):
        assert main([str(word) for word in words]) == status
    return tuple(stream.buffer.getvalue().decode() for stream in (printed, told))


def by_json(*args, **kwargs):
    return json.loads(doc(*args, **kwargs)[0])


def pair(checkpoints):
    return ":".join(map(str, checkpoints))


def failing(arguments, capsys, monkeypatch, stdin=b""):
    """What ``fairseq-doc`` tells, in one line, in this process."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
    assert main([str(word) for word in arguments]) == 1
    printed, told = capsys.readouterr()
    (line,) = told.splitlines()
    assert printed == "" and line.startswith(f"fairseq-doc {arguments[0]}: error: ")
    return line


def test_the_list_of_subcommands():
    listed = run("fairseq-doc --help")
    assert all(command in listed for command in SUBCOMMANDS)
    assert "invalid choice" in fail("fairseq-doc nothing")


def test_the_command_reads_standard_input_and_exits_with_its_status(corpus, checkpoints):
    words = [BIN / "fairseq-doc", "score", corpus.data, "--path", checkpoints[0], "--cpu"]
    for text, status in ((b"w1\nw2\n", 0), (b"w1\n\nw2\n", 1)):
        process = subprocess.run(
            words, input=text, capture_output=True, cwd=ROOT, env=environment(), timeout=120
        )
        assert process.returncode == status
        if status == 0:
            assert process.stdout.decode() == doc(*words[1:3], checkpoints[0], stdin=text)[0]
    assert process.stdout == b"" and len(process.stderr.splitlines()) == 1
    assert process.stderr.startswith(b"fairseq-doc score: error: line 2 is empty")


def test_eval_lm_is_fairseqs_for_one_model_and_the_average_for_two(corpus, checkpoints):
    for columns in (1, 4):
        options = f"--gen-subset test --batch-size {columns}"
        perplexity, bits, tokens = evaluated(run(evaluation(corpus.data, checkpoints[0], options)))
        ours = by_json("eval-lm", corpus.data, checkpoints[0], f"{options} --json")
        assert ours["tokens"] == tokens
        assert round(ours["perplexity"], 2) == pytest.approx(perplexity, abs=0.011)
        assert ours["bits"] == pytest.approx(bits, abs=2e-4)
        assert math.exp(ours["nll"] / tokens) == pytest.approx(ours["perplexity"])

    twice = by_json("eval-lm", corpus.data, pair([checkpoints[0]] * 2), "--json")
    assert twice["models"] == 2
    assert twice["nll"] == pytest.approx(
        by_json("eval-lm", corpus.data, checkpoints[0], "--json")["nll"], rel=1e-6
    )


def test_an_ensemble_averages_probabilities_in_eval_lm_and_score(corpus, checkpoints):
    text = (corpus.text / "test.txt").read_bytes()
    words = "--state carried --output-word-probs --json"
    singles = [by_json("score", corpus.data, path, words, text) for path in checkpoints]
    both = by_json("score", corpus.data, pair(checkpoints), words, text)

    def log_probs(result):
        return [p for sentence in result["sentences"] for p in sentence["word_log_probs"]]

    by_hand = [
        math.log((math.exp(a) + math.exp(b)) / 2)
        for a, b in zip(*map(log_probs, singles), strict=True)
    ]
    assert log_probs(both) == pytest.approx(by_hand, abs=1e-6)
    evaluator = by_json("eval-lm", corpus.data, pair(checkpoints), "--json")
    assert both["tokens"] == evaluator["tokens"]
    assert both["log_prob"] == pytest.approx(-evaluator["nll"], rel=1e-6)


def test_score_from_a_file_from_standard_input_and_from_python(corpus, checkpoints, tmp_path):
    from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel

    lines = ["w1 w2 w3", "w1", "w3 strange w2 w1 w1", "w1 w2 w3"]
    text = "\n".join(lines).encode()
    (tmp_path / "text").write_bytes(text + b"\n")
    printed, told = doc("score", corpus.data, checkpoints[0], stdin=text)
    from_file, _ = doc("score", corpus.data, checkpoints[0], f"--input {tmp_path}/text")
    assert printed == from_file
    assert "strange" in told
    totals = [float(line.split("\t")[0]) for line in printed.splitlines()]
    assert (
        totals[0] == totals[3] > totals[2]
        and [line.split("\t")[1] for line in printed.splitlines()] == lines
    )

    per_word, _ = doc("score", corpus.data, checkpoints[0], "--output-word-probs", text)
    first = per_word.splitlines()[0]
    assert re.sub(r" \[-[\d.]+\]", "", first.split("\t")[1]) == "w1 w2 w3 </s>"
    assert sum(map(float, re.findall(r"\[(-[\d.]+)\]", first))) == pytest.approx(
        totals[0], abs=1e-3
    )

    folder = str(checkpoints[0].parent)
    lm = LSTMDocLanguageModel.from_pretrained(folder, "checkpoint1.pt", str(corpus.data))
    assert [s.log_prob for s in lm.score(lines)] == pytest.approx(totals, abs=1e-4)
    assert (
        lm.perplexity("test").tokens
        == evaluated(run(evaluation(corpus.data, checkpoints[0], "--gen-subset test")))[2]
    )


def test_generate_repeats_itself_by_seed(corpus, checkpoints):
    options = "--length 30 --seed 5 --sampling-topk 3 --temperature 0.8 --samples 2"
    first, _ = doc("generate", corpus.data, pair(checkpoints), f"--prompt w1 {options}")
    again, _ = doc("generate", corpus.data, pair(checkpoints), f"--prompt w1 {options}")
    other, _ = doc("generate", corpus.data, pair(checkpoints), f"--prompt w1 {options} --seed 6")
    assert first == again != other
    # What is drawn depends on the processor's rounding: the end of the line may come at once.
    assert first.split()[0] == "w1" and set(first.split()) <= {"w1", "w2", "w3", "w4"}
    result = by_json("generate", corpus.data, checkpoints[0], f"--json {options}")
    assert [len(sample) for sample in result["samples"]] == [30, 30]


def test_rank_and_weights(corpus, checkpoints, tmp_path):
    rank = by_json("rank", corpus.data, checkpoints[1], "--json --gen-subset valid")
    vocabulary = len((corpus.data / "dict.txt").read_text().splitlines()) + 4
    assert rank["vocabulary"] == rank["rank"] == vocabulary
    assert (
        rank["tokens"]
        == by_json("eval-lm", corpus.data, checkpoints[1], "--json --gen-subset valid")["tokens"]
    )

    picture = tmp_path / "weights.png"
    weights = by_json("weights", corpus.data, checkpoints[1], f"--json --picture {picture}")
    assert [c["layer"] for c in weights["components"]] == [1, 2, 3, 3]
    assert sum(c["weight"] for c in weights["components"]) == pytest.approx(1)
    assert sum(weights["layers"].values()) == pytest.approx(1)
    assert weights["coefficient_of_variation"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    table, _ = doc("weights", corpus.data, checkpoints[1])
    assert f"{weights['coefficient_of_variation']:.4f}" in table

    _, told = doc("weights", "no data", "no.pt", f"--picture {picture}", status=1)
    assert "exists" in told  # before any work


def test_curves_of_a_real_log(trained, tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(trained.output)
    monkeypatch.chdir(tmp_path)
    words = ["curves", "curves.png", "one=a.log", "two=a.log", "--json"]
    result = json.loads(typed(words)[0])["runs"]["two"]
    logged = re.findall(r"\| valid \| epoch (\d+) .*?\| ppl ([\d.]+)", trained.output)
    assert result["perplexity"] == {str(int(epoch)): float(ppl) for epoch, ppl in logged}
    switch = re.search(r"averaging starts after epoch (\d+)", trained.output)
    assert result["averaging_after"] == int(switch.group(1))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

    assert "exists" in typed(words, status=1)[1]
    typed([*words, "--overwrite"])
    (tmp_path / "empty.log").write_text("nothing here\n")
    _, told = typed(["curves", "other.png", "x=empty.log"], status=1)
    assert "no validation line" in told and not (tmp_path / "other.png").exists()


@pytest.mark.parametrize(
    "text, options, words",
    [
        (b"w1\n\nw2\n", "", "line 2 is empty"),
        (b"", "", "expected at least one sentence"),
        (b"w1 " * 100_000, "", "has 100,000 words"),
        (b"w1\nw\xff2\n", "", "line 2 is not UTF-8"),
        (b"w1\n", "--input /nowhere/text", "cannot read /nowhere/text"),
    ],
)
def test_text_that_cannot_be_scored(text, options, words, corpus, checkpoints, capsys, monkeypatch):
    arguments = ["score", corpus.data, "--path", checkpoints[0], "--cpu", *options.split()]
    assert words in failing(arguments, capsys, monkeypatch, text)


def test_empty_and_long_lines_where_asked_for(corpus, checkpoints):
    text = b"w1 " * 50_000 + b"\n\n"
    options = "--empty-lines --max-words 60000 --json"
    result = by_json("score", corpus.data, checkpoints[0], options, text)
    assert [s["tokens"] for s in result["sentences"]] == [50_001, 1]


@pytest.fixture(scope="module")
def strangers(corpus, checkpoints, tmp_path_factory):
    """A language model over other words, and a checkpoint of a translation model."""
    folder = tmp_path_factory.mktemp("strangers")
    state = torch.load(checkpoints[0])
    state["model"]["decoder.dictionary_checksum"] += 1
    torch.save(state, folder / "other_words.pt")
    text = "\n".join((corpus.text / "valid.txt").read_text().splitlines()[:40]) + "\n"
    for split in ("train", "valid"):
        for language in "xy":
            (folder / f"{split}.{language}").write_text(text)
    run(
        f"fairseq-preprocess --source-lang x --target-lang y --trainpref {folder}/train "
        f"--validpref {folder}/valid --destdir {folder}/bin"
    )
    run(
        f"fairseq-train {folder}/bin --user-dir {PACKAGE} --task translation --arch lstm "
        "--encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 8 "
        "--decoder-out-embed-dim 8 --decoder-attention 0 --optimizer sgd --lr 0.1 --max-update 1 "
        f"--batch-size 4 --cpu --save-dir {folder} --num-workers 0"
    )
    return folder


@pytest.mark.parametrize(
    "path, options, words",
    [
        ("{first}:{strangers}/other_words.pt", "", "other_words.pt: the checkpoint is of another"),
        ("{strangers}/checkpoint_last.pt", "", "got one of --task translation"),
        ("{first}:nothing.pt", "", "no checkpoint at nothing.pt"),
        ("{first}", "--gen-subset nothing", "no binarised split 'nothing'"),
        ("{first}", "--batch-size 999999", "999999 columns over the"),
    ],
)
def test_models_and_splits_that_cannot_be_evaluated(
    path, options, words, corpus, checkpoints, strangers, capsys, monkeypatch
):
    path = path.format(first=checkpoints[0], strangers=strangers)
    arguments = ["eval-lm", corpus.data, "--path", path, "--cpu", *options.split()]
    assert words in failing(arguments, capsys, monkeypatch)


@pytest.mark.parametrize("command", ["rank", "weights"])
def test_a_description_of_one_model_takes_no_ensemble(
    command, corpus, checkpoints, capsys, monkeypatch
):
    arguments = [command, corpus.data, "--path", pair(checkpoints), "--cpu"]
    assert "expected one checkpoint" in failing(arguments, capsys, monkeypatch)
