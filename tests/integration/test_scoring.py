"""Generated text in, scores out: ``bleu`` and ``rouge`` on what fairseq-generate writes."""

import csv
import re

import pytest
from conftest import PACKAGE, doc, refused, result_of, run, run_here
from generated_text import blocks, write
from rouge_score import io
from rouge_score.rouge_scorer import RougeScorer

from fairseq_doc.preparation.tokenization import moses
from fairseq_doc.scoring.hypotheses import (
    ReadOptions,
    looks_tokenized,
    read_references,
    read_system,
)
from fairseq_doc.scoring.nbest_lists import read_translations

NOUNS = [("dog", "Hund"), ("cat", "Kater"), ("bird", "Vogel"), ("well-known man", "Mann")]
VERBS = [("sleeps", "schläft"), ("runs", "läuft"), ("doesn't go", "geht nicht"), ("eats", "frisst")]
ENDS = [
    ("today.", "heute."),
    ("(now)!", "(jetzt)!"),
    ("& here?", "& hier?"),
    ("at 3,500.", "bei 3,5."),
]
TINY = """--arch lstm --encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-hidden-size 8
    --decoder-hidden-size 8 --decoder-out-embed-dim 8 --optimizer adam --lr 0.01 --max-tokens 999
    --max-update 5 --cpu --no-epoch-checkpoints --disable-validation --num-workers 0"""
GERMAN = ReadOptions(lang="de")


def pairs(start, count):
    """English sentences with their translations, all different up to 64."""
    chosen = [
        (NOUNS[n % 4], VERBS[n // 4 % 4], ENDS[n // 16 % 4]) for n in range(start, start + count)
    ]
    english = [f"A {noun[0]}, {verb[0]} {end[0]}" for noun, verb, end in chosen]
    german = [f"Ein {noun[1]}, {verb[1]} {end[1]}" for noun, verb, end in chosen]
    return english, german


# What fairseq-generate writes


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """41 training pairs, 3 of valid, and 13 of test, which is no multiple of eight."""
    folder = tmp_path_factory.mktemp("raw")
    for split, start, count in (("train", 0, 41), ("valid", 41, 3), ("test", 44, 13)):
        for side, lines in zip(("en", "de"), pairs(start, count), strict=True):
            write(folder / f"{split}.{side}", lines)
    return folder


@pytest.fixture(scope="module")
def model(raw, tmp_path_factory):
    """A folder with data/ and a trained, bad model."""
    folder = tmp_path_factory.mktemp("model")
    doc("prepare-mt", "en", "de", raw, folder / "data", "--merges", 60, "--joint")
    run_here(f"fairseq-train {folder}/data --user-dir {PACKAGE} {TINY} --save-dir {folder}")
    return folder


def options(model):
    return (
        f"{model}/data --user-dir {PACKAGE} --path {model}/checkpoint_last.pt --cpu -s en -t de "
        "--beam 2 --max-len-a 0 --max-len-b 9 --num-workers 0 --unkpen 99"
    )


def generate(model, folder, more=""):
    """The file that fairseq-generate writes into a folder."""
    run_here(f"fairseq-generate {options(model)} --results-path {folder} {more}")
    return folder / "generate-test.txt"


def sources_of(text):
    return dict(re.findall(r"^S-(\d+)\t(.*)$", text, re.MULTILINE))


def test_the_plain_text_does_not_depend_on_what_generate_undid(raw, model, tmp_path):
    codes = f"--bpe subword_nmt --bpe-codes {model}/data/bpe.codes"
    ways = ["", "--remove-bpe", f"--tokenizer moses {codes}", "--remove-bpe --tokenizer moses"]
    undone = ["subword_nmt, moses (de)", "moses (de)", "nothing", "nothing"]
    references = read_references(raw / "test.de")
    found = set()
    for number, way in enumerate(ways):
        more = f"--required-batch-size-multiple 1 --nbest 2 {way}"
        path = generate(model, tmp_path / str(number), more)
        system = read_system(path, references, GERMAN)
        assert str(system.undoing) == undone[number] and system.agreeing == 13
        found.add(tuple(system.hypotheses))
        lists, _ = read_translations(path, model / "data", raw / "test.de")
        found.add(tuple(one.texts[0] for one in lists))
        assert {len(one.keys) for one in lists} == {2}
    assert len(found) == 1

    # typed text is read as the prepared text was
    typed = run_here(
        f"fairseq-interactive {options(model)} --tokenizer moses {codes} --input {raw}/test.en"
    )
    generated = (tmp_path / "0" / "generate-test.txt").read_text(encoding="utf-8")
    assert sources_of(typed) == sources_of(generated)


def test_no_sentence_is_left_out_unnoticed(raw, model, tmp_path):
    """13 sentences are no multiple of fairseq's own --required-batch-size-multiple, 8."""
    output = generate(model, tmp_path)
    line = ["bleu", output, "--reference", raw / "test.de", "--lang", "de", "--bootstrap", 100]
    assert "13 of 13 targets agree with the reference" in doc(*line)[0]
    write(output, [row for row in output.read_text().splitlines() if "-12\t" not in row])
    assert "expected 13 sentences" in refused(*line)


# Scores


@pytest.fixture
def scored(tmp_path):
    """Files: references, and two systems' plain text and output, of tokenised German."""
    _, references = pairs(0, 60)
    write(tmp_path / "ref", references)
    encode = moses("de").encode
    targets = list(map(encode, references))
    for name, every in (("a", 3), ("b", 2)):
        texts = [
            line if n % every else line.replace("Ein", "Der").replace(" nicht", "")
            for n, line in enumerate(references)
        ]
        write(tmp_path / f"{name}.txt", texts)
        write(tmp_path / f"{name}.out", blocks(list(map(encode, texts)), targets))
    return tmp_path


def line_of(command, folder, *more, outputs=("a.out", "b.out")):
    """The words of a command line."""
    outputs = [folder / name for name in outputs]
    return (command, *outputs, "--reference", folder / "ref", "--lang", "de", *more)


def test_bleu_is_what_sacrebleu_prints(scored):
    result = result_of(*line_of("bleu", scored))
    texts = f"-i {scored}/a.txt {scored}/b.txt"
    table = run(f"sacrebleu {scored}/ref {texts} -m bleu chrf --paired-bs -q -nc -f text -w 6")
    theirs = re.findall(r"(\d+\.\d{6}) \((\d+\.\d{6}) ± (\d+\.\d{6})\)", table)
    p_values = re.findall(r"\(p = (\d\.\d{4})\)", table)
    rows = [result["scores"][metric]["systems"] for metric in ("BLEU", "chrF2")]
    ours = [row[number] for number in (0, 1) for row in rows]
    for own, row in zip(ours, theirs, strict=True):
        assert [f"{own[name]:.6f}" for name in ("score", "mean", "interval")] == list(row)
    assert [f"{row[1]['p']:.4f}" for row in rows] == p_values
    for scores in result["scores"].values():
        assert scores["signature"] in table
    line = line_of("bleu", scored, "--lowercase", "--bootstrap", 100, outputs=["a.out"])
    lower = result_of(*line)["scores"]["BLEU"]
    assert "case:lc" in lower["signature"] and lower["systems"][0]["p"] is None


def test_rouge_is_what_rouge_score_prints(scored):
    line = line_of("rouge", scored, "--bootstrap", 500)
    result = result_of(*line)
    assert result == result_of(*line)
    for stemmed in ("unstemmed", "stemmed"):
        scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmed == "stemmed")
        texts = f"{scored}/ref", f"{scored}/a.txt"
        io.compute_scores_and_write_to_csv(*texts, f"{scored}/csv", scorer, None)
        with open(scored / "csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for kind in ("rouge1", "rouge2", "rougeL"):
            baseline, other = result["scores"][stemmed][kind]
            theirs = sum(float(row[f"{kind}-F"]) for row in rows) / len(rows)
            assert baseline["f1"] == pytest.approx(100 * theirs, abs=1e-4)
            assert baseline["low"] < baseline["f1"] < baseline["high"]
            assert other["f1"] < baseline["f1"] and 0 < other["p"] < 0.2
            assert baseline["p"] is None


@pytest.mark.data
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_real_references_raw_and_tokenised(data_sets, language):
    pair = "en-fr" if language == "fr" else "en-de"
    names = ["multi30k/test_2016_flickr", f"tatoeba/{pair}.test", f"debian_ddtp/{pair}.test"]
    for name in names:
        lines = read_references(data_sets / f"{name}.{language}")[:500]
        assert looks_tokenized([moses(language).encode(line) for line in lines])
    tokenized = ReadOptions(tokenized_reference=True)
    for side in ("src", "tgt"):
        path = data_sets / f"reuters_headline/test.{side}"
        assert looks_tokenized(read_references(path, tokenized))
