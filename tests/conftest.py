import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fairseq_doc"
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT / "tests"))

# A model and a schedule small enough for a test; later options overrule earlier ones.
SMALL_MODEL = """--arch lstm_doc_lm --decoder-embed-dim 16 --layer-dims 24,24,20
    --doc-components 0,1,1,2"""
SMALL_TRAINING = """--task bptt_language_modeling --criterion doc_cross_entropy
    --doc-balance published --doc-lambda 0.001 --ar-alpha 2 --tar-beta 1
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 10 --clip-norm 0.25 --weight-decay 1.2e-6
    --batch-size 8 --batch-size-valid 4 --bptt 40 --num-workers 0 --seed 3 --cpu
    --log-format simple --log-interval 10"""


def pytest_collection_modifyitems(config, items):
    """Without the data sets, the tests that read them are deselected, and reported so."""
    if os.environ.get("FAIRSEQ_DOC_DATA"):
        return
    needing = [item for item in items if item.get_closest_marker("data")]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
        if hasattr(config, "workeroutput"):  # of pytest-xdist, which would not tell
            config.workeroutput["deselected"] = [item.nodeid for item in needing]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """What one worker deselected, which is what every worker did, in the closing line."""
    told = node.config.pluginmanager.get_plugin("terminalreporter").stats
    if "deselected" not in told and getattr(node, "workeroutput", {}).get("deselected"):
        items = [SimpleNamespace(nodeid=name) for name in node.workeroutput["deselected"]]
        node.config.hook.pytest_deselected(items=items)


@pytest.fixture(scope="session")
def data_sets():
    """The folder of the real data sets."""
    return Path(os.environ["FAIRSEQ_DOC_DATA"])


def environment(**changes):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}", **changes}


def start(command, cwd=ROOT, **changes):
    """Start a command line (a string, split at blanks, or a list) with its output in one pipe."""
    arguments = command.split() if isinstance(command, str) else [str(part) for part in command]
    return subprocess.Popen(
        arguments,
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(command, cwd=ROOT, **changes):
    """Run a command line that must succeed; its output."""
    process = start(command, cwd, **changes)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"{command}\n{output[-3000:]}"
    return output


def fail(command, cwd=ROOT, **changes):
    """Run a command line that must fail; its output."""
    process = start(command, cwd, **changes)
    output, _ = process.communicate(timeout=300)
    assert process.returncode not in (0, None), f"{command}\n{output[-3000:]}"
    return output


def training(data, save_dir, options="", model=SMALL_MODEL):
    """The command line of a small training run."""
    return (
        f"fairseq-train {data} --user-dir {PACKAGE} {model} {SMALL_TRAINING} --save-dir {save_dir} "
        f"{options}"
    )


SMALL_TRANSLATION = """--arch lstm_luong_doc --encoder-embed-dim 24 --decoder-embed-dim 20
    --hidden-size 28 --doc-components 1,0,1,2 --task translation -s src -t tgt
    --criterion doc_cross_entropy --doc-balance published --doc-lambda 0.001 --sentence-avg
    --optimizer sgd --lr 1 --clip-norm 5 --batch-size 32 --num-workers 0 --seed 3 --cpu
    --log-format simple --log-interval 10"""


def preprocessing(text, data):
    """The command line that binarises a parallel text, one dictionary for both sides."""
    prefixes = " ".join(f"--{split}pref {text}/{split}" for split in ("train", "valid", "test"))
    return f"fairseq-preprocess -s src -t tgt {prefixes} --destdir {data} --joined-dictionary"


def translation_training(data, save_dir, options=""):
    """The command line of a small translation run."""
    return (
        f"fairseq-train {data} --user-dir {PACKAGE} {SMALL_TRANSLATION} --save-dir {save_dir} "
        f"{options}"
    )


def generate(data, checkpoint, options="", runs=run):
    """The output of fairseq-generate, line by line as it was written."""
    command = (
        f"fairseq-generate {data} --user-dir {PACKAGE} -s src -t tgt --path {checkpoint} "
        f"--num-workers 0 --cpu {options}"
    )
    return runs(command, PYTHONUNBUFFERED="1")


def generated(output, kind="H"):
    """{sentence: its lines of one kind, split at tabs}, of fairseq-generate or -interactive."""
    found = {}
    for sentence, rest in re.findall(rf"^{kind}-(\d+)\t(.*)$", output, flags=re.MULTILINE):
        found.setdefault(int(sentence), []).append(rest.split("\t"))
    return found


def evaluation(data, checkpoint, options=""):
    return (
        f"fairseq-eval-lm {data} --user-dir {PACKAGE} --task bptt_language_modeling "
        f"--path {checkpoint} --num-workers 0 --cpu {options}"
    )


def last_validation(output):
    """The last validation line's numbers, by name."""
    line = re.findall(r"(?:\| valid \||\[valid\]\[INFO\] -) (epoch .*)", output)[-1]
    return {name: float(value) for name, value in re.findall(r"(\w+) ([\d.e+-]+)(?: \||$)", line)}


def evaluated(output):
    """(perplexity, loss in bits, tokens) that fairseq-eval-lm printed."""
    loss, perplexity = re.search(
        r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)", output
    ).groups()
    tokens = re.search(r"Evaluated ([\d,]+) tokens", output).group(1).replace(",", "")
    return float(perplexity), float(loss), int(tokens)
