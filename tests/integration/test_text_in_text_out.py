"""Raw text in, scores out: the commands of preparation and scoring, with fairseq's between them."""

import csv
import json
import re
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT, environment, fail, run

from fairseq_doc.scoring.hypotheses import moses, read_references, read_system

sys.path.insert(0, str(ROOT / "scripts"))
import prepare_parallel  # noqa: E402
import score_bleu  # noqa: E402
import score_rouge  # noqa: E402

# of hydra and of torch's loader, in the process that generates
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

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


def pairs(start, count):
    """English sentences with their translations, all different up to 64."""
    chosen = [
        (NOUNS[n % 4], VERBS[n // 4 % 4], ENDS[n // 16 % 4]) for n in range(start, start + count)
    ]
    english = [f"A {noun[0]}, {verb[0]} {end[0]}" for noun, verb, end in chosen]
    german = [f"Ein {noun[1]}, {verb[1]} {end[1]}" for noun, verb, end in chosen]
    return english, german


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


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
    output = run(f"{ROOT}/scripts/prepare_mt.sh en de {raw} {folder}/data --merges 60 --joint")
    assert output.splitlines()[-1] == f"prepare_mt: wrote {folder}/data"
    assert all(line.startswith("prepare_mt: ") for line in output.splitlines())
    run(f"fairseq-train {folder}/data --user-dir {PACKAGE} {TINY} --save-dir {folder}")
    return folder


def options(model):
    return (
        f"{model}/data --user-dir {PACKAGE} --path {model}/checkpoint_last.pt --cpu -s en -t de "
        "--beam 2 --max-len-a 0 --max-len-b 9 --num-workers 0 --unkpen 99"
    )


def generate(model, to, more=""):
    """Run fairseq-generate in this process; its file."""
    from fairseq import options as fairseq_options
    from fairseq_cli import generate

    parser = fairseq_options.get_generation_parser()
    arguments = f"{options(model)} --results-path {to} {more}".split()
    generate.main(fairseq_options.parse_args_and_arch(parser, arguments))
    return to / "generate-test.txt"


def test_whatever_generate_undid_the_plain_text_is_the_same(raw, model, tmp_path):
    every = "--required-batch-size-multiple 1"
    codes = f"--bpe subword_nmt --bpe-codes {model}/data/bpe.codes"
    ways = ["", "--remove-bpe", f"--tokenizer moses {codes}", "--remove-bpe --tokenizer moses"]
    references = read_references(raw / "test.de")
    systems = [
        read_system(
            generate(model, tmp_path / str(n), f"{every} --nbest 2 {way}"),
            references,
            language="de",
        )
        for n, way in enumerate(ways)
    ]
    undone = ["subword_nmt, moses (de)", "moses (de)", "nothing", "nothing"]
    assert [str(system.undoing) for system in systems] == undone
    assert [system.agreeing for system in systems] == [13] * 4
    assert len({tuple(system.hypotheses) for system in systems}) == 1
    generated = (tmp_path / "0" / "generate-test.txt").read_text(encoding="utf-8")
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", generated, re.MULTILINE))

    # typed text is read as the prepared text was
    typed = subprocess.run(
        f"fairseq-interactive {options(model)} --tokenizer moses {codes}".split(),
        input=(raw / "test.en").read_bytes(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        check=True,
    ).stdout.decode()
    assert dict(re.findall(r"^S-(\d+)\t(.*)$", typed, re.MULTILINE)) == sources


def test_generate_leaves_no_sentence_out(raw, model, tmp_path, capsys):
    """13 sentences are no multiple of --required-batch-size-multiple, 8."""
    output = generate(model, tmp_path)
    arguments = [str(output), "--reference", str(raw / "test.de"), "--lang", "de"]
    assert score_bleu.main(arguments) == 0
    assert "13 of 13 targets are the reference" in capsys.readouterr().out


def test_sentences_left_out_are_told(raw, model, tmp_path, capsys):
    output = generate(model, tmp_path)
    kept = [line for line in output.read_text().splitlines() if "-12\t" not in line]
    output.write_text("\n".join(kept) + "\n")
    told = refused(score_bleu, capsys, output, "--reference", raw / "test.de", "--lang", "de")
    assert "sentences are missing" in told or "13 references and" in told


def write_output(path, texts, targets):
    lines = []
    for number, (text, target) in enumerate(zip(texts, targets, strict=True)):
        lines += [f"S-{number}\tx", f"T-{number}\t{target}", f"H-{number}\t-1\t{text}"]
        lines += [f"D-{number}\t-1\t{text}", f"P-{number}\t-1"]
    return write(path, lines)


@pytest.fixture
def scored(tmp_path):
    """Files: references, and two systems' plain text and output, of tokenised German."""
    _, references = pairs(0, 60)
    write(tmp_path / "ref", references)
    paths = []
    for name, every in (("a", 3), ("b", 2)):
        texts = [
            line if n % every else line.replace("Ein", "Der").replace(" nicht", "")
            for n, line in enumerate(references)
        ]
        write(tmp_path / f"{name}.txt", texts)
        encode = moses("de").encode
        tokens = [list(map(encode, lines)) for lines in (texts, references)]
        paths.append(write_output(tmp_path / f"{name}.out", *tokens))
    return tmp_path


def scores_of(command, capsys, *arguments):
    assert command.main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_bleu_is_what_sacrebleu_prints(scored, capsys):
    outputs = scored / "a.out", scored / "b.out"
    told = scores_of(score_bleu, capsys, *outputs, "--reference", scored / "ref", "--lang", "de")
    texts = f"-i {scored}/a.txt {scored}/b.txt"
    table = run(f"sacrebleu {scored}/ref {texts} -m bleu chrf --paired-bs -q -nc -f text -w 6")
    theirs = re.findall(r"(\d+\.\d{6}) \((\d+\.\d{6}) ± (\d+\.\d{6})\)", table)
    p_values = re.findall(r"\(p = (\d\.\d{4})\)", table)
    rows = [told["scores"][metric]["systems"] for metric in ("BLEU", "chrF2")]
    ours = [row[number] for number in (0, 1) for row in rows]
    for own, row in zip(ours, theirs, strict=True):
        assert [f"{own[name]:.6f}" for name in ("score", "mean", "interval")] == list(row)
    assert [f"{row[1]['p']:.4f}" for row in rows] == p_values
    for result in told["scores"].values():
        assert result["signature"] in table
    one = run(f"sacrebleu {scored}/ref -i {scored}/a.txt -m bleu chrf --confidence -f json -w 6")
    for row in json.loads(one):
        own = told["scores"][row["name"]]
        assert own["systems"][0]["score"] == pytest.approx(row["score"], abs=1e-6)
        assert own["signature"] == row["signature"]
    arguments = [*outputs, "--reference", scored / "ref", "--lang", "de", "--lowercase"]
    lower = scores_of(score_bleu, capsys, *arguments)["scores"]["BLEU"]
    assert "case:lc" in lower["signature"]


def test_bleu_prints_a_row_a_system(scored, capsys):
    arguments = ["a.out", "b.out", "--reference", "ref", "--lang", "de"]
    arguments = [str(scored / x) if (scored / x).exists() else x for x in arguments]
    assert score_bleu.main([*arguments, "--bootstrap", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"references {scored}/ref: 60 lines, raw"
    undone = "undone here: moses (de); 60 of 60 targets are the reference"
    assert lines[1:3] == [f"{scored}/{name}.out: {undone}" for name in "ab"]
    row = r".*/[ab]\.out  BLEU \d+\.\d\d \(\d+\.\d\d ± \d\.\d\d\)( p 0\.\d{4})?  chrF2 .*"
    assert re.fullmatch(row, lines[3]) and re.fullmatch(row, lines[4])
    assert " p " not in lines[3] and lines[4].count(" p ") == 2
    assert lines[5].startswith("BLEU|nrefs:1|bs:200|seed:12345|case:mixed|eff:no|tok:13a|")


def test_the_same_text_differs_from_itself_by_chance(scored, capsys):
    (scored / "copy.out").write_bytes((scored / "a.out").read_bytes())
    arguments = [scored / "a.out", scored / "copy.out", "--reference", scored / "ref"]
    told = scores_of(score_bleu, capsys, *arguments, "--lang", "de", "--bootstrap", "100")
    assert told["scores"]["BLEU"]["systems"][1]["p"] == 1.0
    told = scores_of(score_rouge, capsys, *arguments, "--lang", "de", "--bootstrap", "100")
    assert told["scores"]["stemmed"]["rouge1"][1]["p"] == 1.0


def test_rouge_is_what_rouge_score_prints(scored, capsys):
    outputs = scored / "a.out", scored / "b.out"
    arguments = [*outputs, "--reference", scored / "ref", "--lang", "de", "--bootstrap", "500"]
    told = scores_of(score_rouge, capsys, *arguments)
    assert told == scores_of(score_rouge, capsys, *arguments)
    for stemmed, options in (("unstemmed", ""), ("stemmed", "--use_stemmer")):
        run(
            f"python -m rouge_score.rouge --target_filepattern {scored}/ref --prediction_filepattern "
            f"{scored}/a.txt --output_filename {scored}/csv --noaggregate {options}"
        )
        with open(scored / "csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for kind in ("rouge1", "rouge2", "rougeL"):
            baseline, other = told["scores"][stemmed][kind]
            theirs = sum(float(row[f"{kind}-F"]) for row in rows) / len(rows)
            assert baseline["f1"] == pytest.approx(100 * theirs, abs=1e-4)
            assert baseline["low"] < baseline["f1"] < baseline["high"]
            assert other["f1"] < baseline["f1"] and 0 < other["p"] < 0.2
            assert baseline["p"] is None


def test_rouge_tells_what_rouge_score_leaves_out(scored, capsys):
    arguments = [str(scored / "a.out"), "--reference", str(scored / "ref"), "--lang", "de"]
    assert score_rouge.main([*arguments, "--bootstrap", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    umlauts = sum(line.count("ä") for line in (scored / "ref").read_text("utf-8").splitlines())
    assert lines[2].startswith(f"{umlauts} of ")
    assert lines[3].split()[1:3] == ["unstemmed", "ROUGE-1"]
    assert lines[4].split()[1:3] == ["stemmed", "ROUGE-1"]


def refused(command, capsys, *arguments):
    """The one line of a refusal, with no number printed."""
    assert command.main(list(map(str, arguments))) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert told.err.startswith(f"{command.__name__}: error: ")
    return told.err


@pytest.mark.parametrize("command", [score_bleu, score_rouge])
def test_what_would_flatter_or_hurt_is_refused(command, scored, capsys):
    output, reference = scored / "a.out", scored / "ref"
    lines = reference.read_text("utf-8").splitlines()

    def told(output=output, reference=reference, *more):
        arguments = [output, "--reference", reference, "--lang", "de", *more]
        return refused(command, capsys, *arguments)

    tokens = [moses("de").encode(line) for line in lines]
    assert "looks tokenised" in told(output, write(scored / "tokens", tokens))
    assert "59 references and 60 hypotheses" in told(output, write(scored / "few", lines[:59]))
    assert "61 references and 60" in told(output, write(scored / "many", [*lines, "Ein Hund."]))
    assert "line 3 is empty" in told(output, write(scored / "gap", [*lines[:2], "", *lines[3:]]))
    assert "line 1 holds a mark" in told(output, write(scored / "bpe", ["a@@ b", *lines[1:]]))
    assert "1 references hold <unk>" in told(output, write(scored / "unk", ["<unk>", *lines[1:]]))
    assert "targets differ" in told(output, write(scored / "other", [*lines[30:], *lines[:30]]))
    assert "cannot read" in told(output, scored / "none")
    assert "cannot read" in told(scored / "none")
    (scored / "latin").write_bytes("größer\n".encode("latin-1"))
    assert "latin: line 1 is not UTF-8" in told(output, scored / "latin")
    assert "at least 100 resamples; got 99" in told(output, reference, "--bootstrap", 99)
    twice = [output, output, "--reference", reference, "--lang", "de"]
    assert "expected other outputs" in refused(command, capsys, *twice)
    assert "looks tokenised after" in told(output, reference, "--tokenizer", "none")
    marked = write_output(scored / "marked", ["a@@ b", *lines[1:]], lines)
    assert "holds a mark of BPE" in told(marked, reference, "--bpe", "none")
    unknown = write_output(scored / "unknown", ["<unk>", *lines[1:]], lines)
    assert "1 hypotheses hold a mark" in told(unknown)
    arguments = [unknown, "--reference", reference, "--lang", "de", "--allow-unknown"]
    read = scores_of(command, capsys, *arguments, "--bootstrap", 100)["read"]
    assert "1 hypotheses with an unknown unit, scored as they are" in read[1]


def test_tokenised_references_are_compared_with_when_told(scored, capsys):
    lines = (scored / "ref").read_text("utf-8").splitlines()
    write(scored / "tokens", [moses("de").encode(line) for line in lines])
    arguments = [scored / "a.out", "--reference", scored / "tokens", "--tokenized-reference"]
    read = scores_of(score_rouge, capsys, *arguments, "--bootstrap", 100)["read"]
    assert read[0].endswith("60 lines, tokenised, as told")
    assert "undone here: nothing; 60 of 60 targets" in read[1]


def test_the_scripts_run_by_themselves(scored, raw, tmp_path):
    base = f"{scored}/a.out --reference {scored}/ref --lang de"
    assert "BLEU|nrefs:1" in run(f"python {ROOT}/scripts/score_bleu.py {base}")
    assert "ROUGE-L" in run(f"python {ROOT}/scripts/score_rouge.py {base} --bootstrap 100")
    output = fail(
        f"python {ROOT}/scripts/score_bleu.py {scored}/none --reference {scored}/ref --lang de"
    )
    assert output.startswith("score_bleu: error: cannot read") and output.count("\n") == 1
    output = fail(f"{ROOT}/scripts/prepare_headline.sh {raw} {tmp_path}/new")
    assert output.startswith("prepare_headline: error: cannot read") and output.count("\n") == 1
    assert not list(tmp_path.glob("new*"))


@pytest.mark.data
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_real_references_raw_and_tokenised(data_sets, language):
    from fairseq_doc.scoring.hypotheses import looks_tokenized

    pair = "en-fr" if language == "fr" else "en-de"
    names = ["multi30k/test_2016_flickr", f"tatoeba/{pair}.test", f"debian_ddtp/{pair}.test"]
    for name in names:
        lines = read_references(data_sets / f"{name}.{language}")[:500]
        assert looks_tokenized([moses(language).encode(line) for line in lines])
    for side in ("src", "tgt"):
        assert looks_tokenized(read_references(data_sets / f"reuters_headline/test.{side}", True))


@pytest.mark.data
def test_real_text_is_binarised_whole(data_sets, tmp_path, capsys):
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            with open(data_sets / "debian_ddtp" / f"en-de.{split}.{side}", "rb") as file:
                (tmp_path / f"{split}.{side}").write_bytes(b"".join(file.readlines()[:400]))
    arguments = ["mt", "en", "de", str(tmp_path), str(tmp_path / "bin"), "--merges", "500"]
    assert prepare_parallel.main(arguments) == 0
    told = capsys.readouterr().out
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            assert f"{split}.{side}: 400 sentences and" in told
