"""A language model of bytes, from the text to its bits per byte, with the real commands."""

import math
from types import SimpleNamespace

import pytest
from conftest import doc, evaluated, evaluation, result_of, run_here, training

from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel
from fairseq_doc.preparation.binarisation import load_dictionary

LINE = "Ein Bär läuft\tüber [[die Brücke]] &amp; zurück.\n"


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    """A text by bytes whose test split ends in the middle of a character, and a model of it."""
    folder = tmp_path_factory.mktemp("bytes")
    line = LINE.encode()
    text = {"train": line * 60, "valid": line * 8, "test": line * 8 + "Ein Bä".encode()[:-1]}
    for split, lines in text.items():
        (folder / f"{split}.txt").write_bytes(lines)
    data = folder / "bin"
    doc("prepare-lm", "text", folder, data, "--unit", "byte")
    run_here(training(data, folder / "save", "--lr 10 --max-update 15 --max-epoch 9"))
    return SimpleNamespace(
        folder=folder, data=data, checkpoint=folder / "save" / "checkpoint_last.pt"
    )


def result(of_bytes, name, *options):
    """A command's result on the model."""
    return result_of(name, of_bytes.data, "--path", of_bytes.checkpoint, "--cpu", *options)


def test_every_evaluation_gives_the_same_bits_a_byte(of_bytes):
    path = of_bytes.folder / "test.txt"
    size = path.stat().st_size
    alone = result(of_bytes, "eval-lm")
    bits = alone["bits_per_byte"]
    assert alone["tokens"] == size - 1 and alone["perplexity"] == pytest.approx(2**bits)
    assert bits < math.log2(len(load_dictionary(of_bytes.data / "dict.txt")))  # it has learned
    perplexity, loss, tokens = evaluated(run_here(evaluation(of_bytes.data, of_bytes.checkpoint)))
    assert (tokens, loss) == (size - 1, pytest.approx(bits, abs=2e-3))
    assert perplexity == pytest.approx(alone["perplexity"], abs=0.02)
    # score ends every line, so it reads a text that ends in a line feed as eval-lm reads it.
    text = of_bytes.folder / "valid.txt"
    scored = result(of_bytes, "score", "--state", "carried", "--input", text)
    whole = result(of_bytes, "eval-lm", "--gen-subset", "valid")
    assert whole["bits_per_character"] > whole["bits_per_byte"]  # not all is ASCII
    for name in ("bits_per_character", "word_perplexity"):
        assert scored[name] == pytest.approx(whole[name], rel=1e-4)
    assert scored["tokens"] == whole["tokens"] and scored["raw_counts"] == whole["raw_counts"]


def test_python_gives_what_the_commands_give(of_bytes):
    drawn = result(of_bytes, "generate", "--prompt", "Ein Bär", "--length", 40, "--samples", 2)
    lm = LSTMDocLanguageModel.from_pretrained(
        str(of_bytes.checkpoint.parent), of_bytes.checkpoint.name, str(of_bytes.data)
    )
    assert lm.sample("Ein Bär", 40, samples=2) == drawn["samples"]
    assert lm.text(drawn["prompt"] + drawn["samples"][0]) == drawn["texts"][0]
    assert lm.score("Ein Bär").tokens == 9
