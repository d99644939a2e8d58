"""A language model of bytes, from the text to its bits a character, with the real commands."""

import json
import math
from types import SimpleNamespace

import pytest
from conftest import doc, evaluated, evaluation, refused, run_here, training

from fairseq_doc.data.bptt_stream import load_stream
from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel
from fairseq_doc.preparation.binarisation import load_dictionary
from fairseq_doc.preparation.byte_tokens import text_of

LINE = "Ein Bär läuft\tüber [[die Brücke]] &amp; zurück.\n"


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    """A text by bytes whose test split ends in the middle of a character, and a model of it."""
    folder = tmp_path_factory.mktemp("bytes")
    text = {"train": LINE * 60, "valid": LINE * 8, "test": LINE * 8 + "Ein B"}
    for split, lines in text.items():
        (folder / f"{split}.txt").write_bytes(lines.encode())
    with open(folder / "test.txt", "ab") as file:
        file.write("ä".encode()[:1])
    data = folder / "bin"
    doc("prepare-lm", "text", folder, data, "--unit", "byte")
    run_here(training(data, folder / "save", "--lr 10 --max-update 15 --max-epoch 9"))
    return SimpleNamespace(
        folder=folder, data=data, checkpoint=folder / "save" / "checkpoint_last.pt"
    )


def command(of_bytes, name, *options, **settings):
    """A command's output on the model."""
    words = [name, of_bytes.data, "--path", of_bytes.checkpoint, "--cpu", *options]
    return doc(*words, **settings)[0]


def test_the_stream_is_the_text(of_bytes):
    dictionary = load_dictionary(of_bytes.data / "dict.txt")
    stream = load_stream(str(of_bytes.data / "valid"), "valid", dictionary)
    words = [dictionary[token] for token in stream.tokens.tolist()]
    assert text_of(words, "byte") == LINE * 8


def test_every_evaluation_gives_the_same_bits_a_character(of_bytes):
    path = of_bytes.folder / "test.txt"
    size = path.stat().st_size
    result = json.loads(command(of_bytes, "eval-lm", "--json"))
    bits = result["bits_per_character"]
    assert result["tokens"] == size - 1 and result["perplexity"] == pytest.approx(2**bits)
    assert bits < math.log2(len(load_dictionary(of_bytes.data / "dict.txt")))  # it has learned
    assert f"{bits:.4f} bits a character" in command(of_bytes, "eval-lm")
    perplexity, loss, tokens = evaluated(run_here(evaluation(of_bytes.data, of_bytes.checkpoint)))
    assert (tokens, loss) == (size - 1, pytest.approx(bits, abs=2e-3))
    assert perplexity == pytest.approx(result["perplexity"], abs=0.02)
    # score ends every line, so it reads a text that ends in a line feed as eval-lm reads it.
    scored = ["--state", "carried", "--input", of_bytes.folder / "valid.txt", "--json"]
    result = json.loads(command(of_bytes, "score", *scored))
    whole = json.loads(command(of_bytes, "eval-lm", "--gen-subset", "valid", "--json"))
    assert result["bits_per_character"] == pytest.approx(whole["bits_per_character"], rel=1e-5)
    assert result["tokens"] == whole["tokens"]


def test_the_components_at_each_byte(of_bytes):
    result = json.loads(command(of_bytes, "components", "--json", stdin=b"B\xc3\xa4r \xff\n"))
    (sentence,) = result["sentences"]
    names = ["<0x42>", "<0xC3>", "<0xA4>", "<0x72>", "<0x20>", "<0xFF>", "</s>"]
    assert [token["word"] for token in sentence["tokens"]] == names
    assert sentence["text"] == "Bär \ufffd"
    bits = -result["log_prob"] / 7 / math.log(2)
    assert result["bits_per_character"] == pytest.approx(bits)
    printed = command(of_bytes, "components", "--summary", stdin=b"B\xc3\xa4r \xff\n")
    assert f"{bits:.4f} bits a character" in printed


def test_plain_text_goes_in_and_comes_out(of_bytes):
    out = command(of_bytes, "score", stdin=b"Ein B\xc3\xa4r\nein B\xff\n")
    assert [row.split("\t")[1] for row in out.splitlines()] == ["Ein Bär", "ein B\ufffd"]
    drawn = ["--prompt", "Ein Bär", "--length", "40", "--samples", "2"]
    text = command(of_bytes, "generate", *drawn)
    result = json.loads(command(of_bytes, "generate", *drawn, "--json"))
    assert text.startswith("Ein Bär") and text.count("Ein Bär") >= 2 and "<0x" not in text
    assert all(len(sample) == 40 for sample in result["samples"])
    lm = LSTMDocLanguageModel.from_pretrained(
        str(of_bytes.checkpoint.parent), of_bytes.checkpoint.name, str(of_bytes.data)
    )
    assert lm.sample("Ein Bär", 40, samples=2) == result["samples"]
    assert lm.text(result["prompt"] + result["samples"][0]) == result["texts"][0]
    assert lm.score("Ein Bär").tokens == 9


def test_text_that_cannot_be_prepared_by_bytes_is_one_line(of_bytes, tmp_path):
    file = of_bytes.folder / "train.txt"
    message = refused("prepare-lm", "enwik8", file, tmp_path / "bin")
    assert f"expected the 100,000,000 bytes of enwik8; got {file.stat().st_size:,}" in message
    assert not list(tmp_path.iterdir())
