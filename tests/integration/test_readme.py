"""The lines that README and the examples tell people to type."""

import re

import pytest
import toy_translation
import toy_trees
from conftest import PACKAGE, ROOT, evaluated, fail, preprocessing, run

SMALL = (
    "--decoder-embed-dim 16 --layer-dims 24,24,20 --doc-components 0,0,1,2 --max-update 3 --cpu "
    "--batch-size 4"
)


SMALL_TRANSLATION = (
    "--encoder-embed-dim 16 --decoder-embed-dim 16 --hidden-size 12 --max-update 3 --cpu "
    "--warmup-updates 0 --batch-size 32"
)


def blocks():
    """README's shell blocks."""
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def commands():
    """Every line of the blocks about language models that runs one of the programs ``fairseq-...``."""
    about = [block for block in blocks() if "multi30k" not in block and "wsj" not in block]
    lines = "\n".join(about).replace("\\\n", " ").splitlines()
    return [line.split(" # ")[0] for line in lines if re.search(r"(^|\| )fairseq-", line)]


def test_readme_commands_train_evaluate_and_use_a_model(corpus, tmp_path):
    typed = commands()
    programs = {re.search(r"(?:^|\| )fairseq-(train|\S+(?: [a-z-]+)?)", line)[1] for line in typed}
    used = {f"doc {name}" for name in ("eval-lm", "score", "generate", "rank", "weights", "curves")}
    assert {"train", "eval-lm data-bin"} | used <= programs
    model = re.search(r"^model=.*", (ROOT / "README.md").read_text(), flags=re.MULTILINE).group()
    for line in sorted(typed, key=lambda line: not line.startswith("fairseq-train")):
        options = SMALL if "fairseq-train" in line else "--cpu"
        line = line.replace("data-bin/ptb", str(corpus.data))
        line = line.replace("--user-dir fairseq_doc", f"--user-dir {PACKAGE}")
        if " curves " not in line:
            command, *piped = line.split(" 2>&1 ")
            line = " 2>&1 ".join([f"{command} {options}", *piped])
        line = f"{model}; {line}"
        run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path)


@pytest.mark.parametrize("example", ["penn_treebank", "wikitext2"])
def test_recipes_train_and_evaluate(example, corpus, tmp_path):
    places = {"DATA": str(corpus.data), "USER_DIR": str(PACKAGE)}
    run([ROOT / "examples" / example / "train.sh", *SMALL.split()], cwd=tmp_path, **places)
    output = run([ROOT / "examples" / example / "evaluate.sh", "--cpu"], cwd=tmp_path, **places)
    assert output.count("Perplexity:") == 2
    assert evaluated(output)[2] > 1000


def write_headline_like(folder, names, sides):
    """Three splits of a toy task under other names."""
    toy_translation.write_corpus(folder, "copy", 200, 20, 20)
    for split, name in zip(("train", "valid", "test"), names, strict=True):
        for side, language in zip(("src", "tgt"), sides, strict=True):
            (folder / f"{split}.{side}").rename(folder / f"{name}.{language}")


def test_readme_commands_translate(tmp_path):
    """From raw text to scored translations, a typed sentence and a heat map."""
    (block,) = (block for block in blocks() if "multi30k" in block)
    names = ("train", "val", "test_2016_flickr")
    write_headline_like(tmp_path / "multi30k", names, ("en", "de"))
    changes = {
        "--user-dir fairseq_doc": f"--user-dir {PACKAGE}",
        " scripts/": f" {ROOT}/scripts/",
        "--merges 8000": "--merges 15",
        "--max-epoch 13": SMALL_TRANSLATION,
    }
    block = f" {block}"  # a blank before its first word, too
    for old, new in changes.items():
        assert old in block
        block = block.replace(old, new)
    shell = [
        "bash",
        "-e",
        "-o",
        "pipefail",
        "-c",
        block.replace("\nscripts/", f"\n{ROOT}/scripts/"),
    ]
    output = run(shell, cwd=tmp_path, FAIRSEQ_DOC_DATA=str(tmp_path))
    assert "BLEU|nrefs:1" in output and "20 of 20 targets are the reference" in output
    assert "D-0\t" in output
    assert (tmp_path / "attention.png").exists()


@pytest.mark.parametrize(
    "example, model, sides, score",
    [
        ("iwslt16", "checkpoints/small.en-de", ("en", "de"), "BLEU|nrefs:1"),
        ("gigaword", "checkpoints/headline_small", ("src", "tgt"), "ROUGE-L"),
    ],
)
def test_recipes_translate(example, model, sides, score, tmp_path):
    write_headline_like(tmp_path / "text", ("train", "valid", "test"), sides)
    command = preprocessing(tmp_path / "text", tmp_path / "bin")
    run(command.replace("-s src -t tgt", f"-s {sides[0]} -t {sides[1]}"))
    places = {"DATA": str(tmp_path / "bin"), "USER_DIR": str(PACKAGE)}
    recipe = ROOT / "examples" / example
    run([recipe / "train_small.sh", *SMALL_TRANSLATION.split()], cwd=tmp_path, **places)
    places["RAW"] = str(tmp_path / "text" / f"test.{sides[1]}")
    places["MODEL"] = f"{model}/checkpoint_best.pt:{model}/checkpoint_last.pt"  # an ensemble
    assert score in run([recipe / "evaluate.sh", "--cpu"], cwd=tmp_path, **places)
    output = places["OUT"] = next((tmp_path / model).glob("generate-test*.txt"))
    told = fail([recipe / "evaluate.sh"], cwd=tmp_path, **places)
    assert told == f"evaluate: {output} exists; remove it, or name another file: OUT=...\n"
    places["MODEL"] = f"{model}/checkpoint_best.pt:no such.pt"
    told = fail([recipe / "evaluate.sh"], cwd=tmp_path, **places)
    assert told == "evaluate: expected a checkpoint, got no file no such.pt\n"
    for system in ("plain", "i3"):  # the published recipes, but for the width and the length
        run([recipe / f"train_{system}.sh", *SMALL_TRANSLATION.split()], cwd=tmp_path, **places)
    places |= {"SYSTEM": "plain", "OUT": "plain.txt"}
    del places["MODEL"]
    told = fail([recipe / "evaluate.sh"], cwd=tmp_path, **places | {"RAW": "nothing.de"})
    assert told == "evaluate: expected a reference, got no file nothing.de\n"
    assert score in run([recipe / "evaluate.sh", "--cpu"], cwd=tmp_path, **places)


def write_treebank(folder):
    """A toy treebank under the sample's names; the lists are compressed or not, whatever their name."""
    toy_trees.write_corpus(folder, train=150, dev=12, test=12)
    (folder / "dev.nbest").rename(folder / "dev.nbest.gz")


def test_readme_commands_rerank_and_the_recipe_parses(tmp_path):
    """README's lines; then an encoder-decoder whose lists the same language model reranks."""
    (block,) = (block for block in blocks() if "wsj" in block)
    write_treebank(tmp_path / "wsj_sample")
    block = f"\n{block}".replace("\nscripts/", f"\n{ROOT}/scripts/")
    block = block.replace(
        "\nexamples/parsing/train_small.sh", f"\n{ROOT}/examples/parsing/train_small.sh {SMALL}"
    )
    places = {"FAIRSEQ_DOC_DATA": str(tmp_path), "USER_DIR": str(PACKAGE)}
    shell = ["bash", "-e", "-o", "pipefail", "-c"]
    output = run([*shell, block], cwd=tmp_path, **places)
    assert output.count("-- all\n") == 2 and "-- best candidate of each list" in output

    recipe = ROOT / "examples" / "parsing"
    run([recipe / "train_parser_small.sh", *SMALL_TRANSLATION.split()], cwd=tmp_path, **places)
    model = "checkpoints/wsj/parser_small"
    places["MODEL"] = f"{model}/checkpoint_best.pt"
    (tmp_path / model / "dev.nbest.part").write_text("(S (NP of a run that was interr")
    assert run([recipe / "parse.sh", "--cpu"], cwd=tmp_path, **places).count("120 outputs") == 2
    told = fail([recipe / "parse.sh"], cwd=tmp_path, **places)
    assert told.startswith(f"parse: {model}/dev.nbest exists; remove it, or name another folder")
    told = fail([recipe / "parse.sh"], cwd=tmp_path, **places | {"MODEL": "no such.pt"})
    assert told == "parse: expected a checkpoint, got no file no such.pt\n"
    places |= {"DEV": f"{model}/dev.nbest", "TEST": f"{model}/test.nbest"}
    places["MODEL"] = "checkpoints/wsj/small/checkpoint_best.pt"
    output = run([recipe / "rerank.sh", "--cpu", "--no-progress-bar"], cwd=tmp_path, **places)
    assert len(re.findall(r"^rerank: \S+test.nbest, weight [\d.]+:$", output, re.MULTILINE)) == 2
    del places["TEST"]
    told = fail([recipe / "rerank.sh"], cwd=tmp_path, **places)
    assert told == "rerank: expected TEST=LISTS, an n-best file, gzip or not\n"
