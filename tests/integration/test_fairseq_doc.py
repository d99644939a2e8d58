"""``fairseq-doc`` as it is typed: the commands for a language model, on a trained one."""

import functools
import subprocess

import pytest
import torch
from conftest import BIN, PACKAGE, ROOT, doc, environment, fail_here, refused, result_of, run_here

# fairseq's own encoder-decoder
LSTM = """--task translation --arch lstm --encoder-embed-dim 8 --encoder-hidden-size 8
    --decoder-embed-dim 8 --decoder-hidden-size 8 --decoder-out-embed-dim 8 --decoder-attention 0
    --optimizer sgd --lr 0.1 --max-update 1 --batch-size 4 --cpu --num-workers 0"""


@pytest.fixture(scope="module")
def checkpoints(trained):
    return [trained.folder / name for name in ("checkpoint1.pt", "checkpoint3.pt")]


@pytest.fixture
def lm(corpus, checkpoints):
    """Run a command on one of the checkpoints, or on several; its two outputs."""

    def call(command, *numbers, options="", runs=doc, **settings):
        path = ":".join(str(checkpoints[number]) for number in numbers)
        return runs(command, corpus.data, "--path", path, "--cpu", *options.split(), **settings)

    return call


@pytest.fixture
def by_json(lm):
    """The same with --json; the object."""
    return functools.partial(lm, runs=result_of)


def test_the_process_reads_standard_input(corpus, checkpoints, lm):
    words = [BIN / "fairseq-doc", "score", corpus.data, "--path", checkpoints[0], "--cpu"]
    settings = {"cwd": ROOT, "env": environment(), "timeout": 120}
    process = subprocess.run(words, input=b"w1\nw2\n", capture_output=True, **settings)
    assert process.returncode == 0
    assert process.stdout.decode() == lm("score", 0, stdin=b"w1\nw2\n")[0]


def test_rank_weights_and_components_describe_what_eval_lm_reads(corpus, by_json):
    rank = by_json("rank", 1, options="--gen-subset valid")
    vocabulary = len((corpus.data / "dict.txt").read_text().splitlines()) + 4
    assert rank["vocabulary"] == rank["rank"] == vocabulary
    assert rank["tokens"] == by_json("eval-lm", 1, options="--gen-subset valid")["tokens"]

    # Over the test split the summary's weights are those of the command weights.
    options = f"--state carried --summary --input {corpus.text}/test.txt"
    summary, weights = by_json("components", 1, options=options), by_json("weights", 1)
    assert [component["layer"] for component in weights["components"]] == [1, 2, 3, 3]
    assert summary["tokens"] == weights["tokens"] and "sentences" not in summary
    found = [part["weight"] for part in summary["components"]]
    assert found == pytest.approx([part["weight"] for part in weights["components"]], abs=1e-5)


@pytest.fixture(scope="module")
def strangers(corpus, checkpoints, tmp_path_factory):
    """A language model over other words, and a checkpoint of a translation model."""
    folder = tmp_path_factory.mktemp("strangers")
    state = torch.load(checkpoints[0])
    state["model"]["decoder.dictionary_checksum"] += 1
    torch.save(state, folder / "other_words.pt")
    text = "\n".join((corpus.text / "valid.txt").read_text().splitlines()[:40]) + "\n"
    for name in ("train.x", "train.y", "valid.x", "valid.y"):
        (folder / name).write_text(text)
    run_here(
        f"fairseq-preprocess --source-lang x --target-lang y --trainpref {folder}/train "
        f"--validpref {folder}/valid --destdir {folder}/bin"
    )
    run_here(f"fairseq-train {folder}/bin --user-dir {PACKAGE} {LSTM} --save-dir {folder}")
    return folder


def test_the_criterion_needs_a_model_of_this_package(strangers, tmp_path):
    training = f"fairseq-train {strangers}/bin --user-dir {PACKAGE} {LSTM} --save-dir {tmp_path}"
    error = fail_here(f"{training} --criterion doc_cross_entropy")
    assert "--criterion doc_cross_entropy needs a model of this package" in error


def test_fairseqs_own_encoder_decoder_translates(strangers):
    """Its settings are an argparse.Namespace."""
    source = strangers / "valid.x"
    model = [strangers / "bin", "--path", strangers / "checkpoint_last.pt", "--cpu"]
    words = ["translate", *model, "--no-progress-bar", "--input", source]
    assert len(doc(*words)[0].splitlines()) == len(source.read_text().splitlines())
    (strangers / "one.x").write_text("w1 w2\n")
    without = refused("attention", *model, "--input", strangers / "one.x")
    assert "expected models with attention" in without
    error = refused(*words, "--matmul-precision", "bfloat16")
    assert "expected a model of this package; got" in error and "a lstm" in error


@pytest.mark.parametrize(
    "path, problem",
    [
        ("{first}:{strangers}/other_words.pt", "words.pt: the checkpoint has a different"),
        ("{strangers}/checkpoint_last.pt", "got one of the task translation"),
        ("{first}:nothing.pt", "cannot read nothing.pt: No such file"),
    ],
)
def test_models_that_cannot_be_evaluated(path, problem, corpus, checkpoints, strangers):
    path = path.format(first=checkpoints[0], strangers=strangers)
    assert problem in refused("eval-lm", corpus.data, "--path", path, "--cpu")
