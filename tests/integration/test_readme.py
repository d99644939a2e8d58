"""The lines that README and the examples tell people to type."""

import re

import pytest
from conftest import PACKAGE, ROOT, evaluated, run

SMALL = """--decoder-embed-dim 16 --layer-dims 24,24,20 --doc-components 0,0,1,2 --max-update 3 --cpu
    --batch-size 4""".split()


def commands():
    """Every ``fairseq-`` command of README's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("#")[0].split() for line in lines if line.startswith("fairseq-")]


def test_readme_commands_train_and_evaluate(corpus, tmp_path):
    typed = commands()
    programs = [words[0] for words in typed]
    assert {"fairseq-train", "fairseq-eval-lm"} <= set(programs)
    for words in sorted(typed, key=lambda words: words[0] != "fairseq-train"):
        words = [str(corpus.data) if word == "data-bin/ptb" else word for word in words]
        words = [str(PACKAGE) if word == "fairseq_doc" else word for word in words]
        run(words + (SMALL if words[0] == "fairseq-train" else ["--cpu"]), cwd=tmp_path)


@pytest.mark.parametrize("example", ["penn_treebank", "wikitext2"])
def test_recipes_train_and_evaluate(example, corpus, tmp_path):
    places = {"DATA": str(corpus.data), "USER_DIR": str(PACKAGE)}
    run([ROOT / "examples" / example / "train.sh", *SMALL], cwd=tmp_path, **places)
    output = run([ROOT / "examples" / example / "evaluate.sh", "--cpu"], cwd=tmp_path, **places)
    assert output.count("Perplexity:") == 2
    assert evaluated(output)[2] > 1000
