"""The lines that README and the examples tell people to type."""

import re

import pytest
from conftest import PACKAGE, ROOT, evaluated, run

SMALL = (
    "--decoder-embed-dim 16 --layer-dims 24,24,20 --doc-components 0,0,1,2 --max-update 3 --cpu "
    "--batch-size 4"
)


def commands():
    """Every line of README's shell blocks that runs one of the programs ``fairseq-...``."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
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
