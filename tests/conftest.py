"""What the tests share: commands, in this process or in one of their own, and small trainings."""

import contextlib
import functools
import hashlib
import importlib
import io
import json
import logging
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops.matmul import BACKENDS, force_backend

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fairseq_doc"
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT / "tests"))
# An error that no code expects is a bug: fairseq-doc, here and in other processes, raises it.
os.environ["FAIRSEQ_DOC_TRACEBACK"] = "1"

# A model and a schedule small enough for a test; later options overrule earlier ones.
SMALL_MODEL = """--arch lstm_doc_lm --decoder-embed-dim 16 --layer-dims 24,24,20
    --doc-components 0,1,1,2"""
SMALL_TRAINING = """--task bptt_language_modeling --criterion doc_cross_entropy
    --doc-balance published --doc-lambda 0.001 --ar-alpha 2 --tar-beta 1
    --optimizer nt_asgd --lr-scheduler nt_asgd --lr 10 --clip-norm 0.25 --weight-decay 1.2e-6
    --batch-size 8 --batch-size-valid 4 --bptt 40 --num-workers 0 --seed 3 --cpu
    --log-format simple --log-interval 10"""


def pytest_addoption(parser):
    parser.addoption(
        "--backend",
        choices=BACKENDS,
        help="library for float32 matrix products in every test (default: by the processor's maker)",
    )


def pytest_configure(config):
    """The tests' commands inherit the backend."""
    if config.getoption("--backend"):
        force_backend(config.getoption("--backend"))


def pytest_collection_modifyitems(config, items):
    """Without the data sets, the tests that read them are deselected, and reported so."""
    if os.environ.get("FAIRSEQ_DOC_DATA"):
        return
    needing = [item for item in items if item.get_closest_marker("data")]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
        if hasattr(config, "workeroutput"):  # of pytest-xdist, which would not report them
            config.workeroutput["deselected"] = [item.nodeid for item in needing]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """What one worker deselected, which is what every worker did, in the closing line."""
    reported = node.config.pluginmanager.get_plugin("terminalreporter").stats
    if "deselected" not in reported and getattr(node, "workeroutput", {}).get("deselected"):
        items = [SimpleNamespace(nodeid=name) for name in node.workeroutput["deselected"]]
        node.config.hook.pytest_deselected(items=items)


@pytest.fixture(scope="session")
def server():
    from fork_server import ForkServer

    with ForkServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
        preexec_fn=heed_interrupts,
    )


def heed_interrupts():
    """A background job, and so what it starts, ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(command, cwd=ROOT, fails=False, **changes):
    """Run a command line that must succeed, or with ``fails`` fail; its output."""
    process = start(command, cwd, **changes)
    output, _ = process.communicate(timeout=300)
    assert (process.returncode != 0) == fails, f"{command}\n{output[-3000:]}"
    return output


fail = functools.partial(run, fails=True)


def shim(folder, program, text):
    """A program of that name that runs some lines of sh."""
    (folder / program).write_text(f"#!/bin/sh\n{text}\n")
    (folder / program).chmod(0o755)


def wait_until(condition, seconds=120, pid=None):
    """Wait until a condition holds, while a process lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline and (pid is None or not has_ended(pid))
        time.sleep(0.02)


def has_ended(pid):
    """Whether a process is gone, or waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def captured(out, err, stdin=b""):
    """This process as a command of its own would find it: standard streams, logging, one thread."""
    root, threads = logging.getLogger(), torch.get_num_threads()
    before, level = root.handlers[:], root.level
    handler = logging.StreamHandler(out)
    fairseqs_format = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
    handler.setFormatter(logging.Formatter(fairseqs_format))
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    torch.set_num_threads(1)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(stdin)))),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        torch.set_num_threads(threads)


def _stream():
    return io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)


def _text(stream):
    return stream.buffer.getvalue().decode()


def doc(*words, stdin=b"", status=0):
    """Run ``fairseq-doc`` in this process; what it wrote to standard output and standard error."""
    from fairseq_doc.cli.main import main

    out, err = _stream(), _stream()
    with captured(out, err, stdin):
        found = main([str(word) for word in words])
    assert found == status, _text(err)
    return _text(out), _text(err)


def result_of(command, *words, **settings):
    """The JSON object that a ``fairseq-doc`` prints."""
    return json.loads(doc(command, "--json", *words, **settings)[0])


def refused(*words, stdin=b""):
    """The error of a ``fairseq-doc`` that must fail: one line, and no result."""
    out, err = doc(*words, stdin=stdin, status=1)
    (line,) = err.splitlines()
    assert out == "" and line.startswith(f"fairseq-doc {words[0]}: error: ")
    return line


def refusal(function, *arguments, **keywords):
    """The message of the ``FairseqDocError``, one line, that a call must raise."""
    with pytest.raises(FairseqDocError) as caught:
        function(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_refused(pattern, function, *arguments, **keywords):
    """As :func:`refusal`; the message must match a regular expression."""
    message = refusal(function, *arguments, **keywords)
    assert re.search(pattern, message), message


@contextlib.contextmanager
def files_up_to(size):
    """A disk that is full: no file can grow larger than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def locked_elsewhere(path):
    """Another process, which holds the lock of a file."""
    code = "from fairseq_doc.files import lock; held = lock({!r}, ''); print('held', flush=True); input()"
    words = [sys.executable, "-c", code.format(str(path))]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def call_here(command):
    """(output, exception or None) of one of fairseq's commands in this process, which saves the
    seconds of its imports."""
    from fairseq_doc.fairseq_patches import error_messages

    words = shlex.split(command)
    name = words[0].removeprefix("fairseq-").replace("-", "_")
    module = importlib.import_module(f"fairseq_cli.{name}")
    stream, problem = _stream(), None
    with captured(stream, stream), mock.patch("sys.argv", words):
        try:
            module.cli_main()
        except (Exception, SystemExit) as error:
            problem = error
            with mock.patch("sys.excepthook", sys.__excepthook__):  # as its process would print it
                error_messages.print_usage_errors_in_one_line()
                sys.excepthook(type(error), error, error.__traceback__)
    return _text(stream), problem


def run_here(command):
    """As :func:`run`, for one of fairseq's commands, in this process."""
    output, problem = call_here(command)
    assert problem is None, f"{command}\n{output[-3000:]}"
    return output


def error_of(output):
    """The one-line error of a command of fairseq: the last line, no traceback before it."""
    lines = [line for line in output.splitlines() if line.strip()]
    assert "Traceback" not in output and lines, output[-3000:]
    assert "fairseq_doc: error: " in lines[-1], output[-3000:]
    return lines[-1]


def fail_here(command):
    """The error of one of fairseq's commands that must fail, in this process."""
    output, problem = call_here(command)
    assert problem is not None, f"{command}\n{output[-3000:]}"
    error = error_of(output)
    assert error.startswith("fairseq_doc: error: "), error
    return error


def training(data, save_dir, options="", model=SMALL_MODEL, schedule=SMALL_TRAINING):
    """The command line of a small training run."""
    command = f"fairseq-train {data} --user-dir {PACKAGE}"
    return f"{command} {model} {schedule} --save-dir {save_dir} {options}"


def load(path):
    """A checkpoint, read as the package allows: weights and its own types."""
    return torch.load(path)


def stage_of(path):
    """The stage of NT-ASGD in which a checkpoint was saved."""
    return load(path)["last_optimizer_state"]["trigger"]["stage"]


def mid_epoch(folder, stage):
    """The first checkpoint of a stage that was saved inside an epoch."""
    paths = folder.glob("checkpoint_[0-9]*_*.pt")
    ordered = sorted(paths, key=lambda path: int(path.stem.rpartition("_")[2]))
    return next(path for path in ordered if stage_of(path) == stage)


def digest_of(value):
    """Of tensors and other values in dictionaries, lists and tuples."""
    digest = hashlib.sha256()

    def add(value):
        if isinstance(value, torch.Tensor):
            digest.update(str(value.dtype).encode() + value.contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key, part in value.items():
                digest.update(repr(key).encode())
                add(part)
        elif isinstance(value, (list, tuple)):
            for part in value:
                add(part)
        else:
            digest.update(repr(value).encode())

    add(value)
    return digest.hexdigest()


def assert_same_run(one, other):
    """Equal weights, raw and averaged, and equal optimizers, schedules, stages and counters."""
    one, other = load(one), load(other)
    for name in ("model", "last_optimizer_state"):
        assert digest_of(one[name]) == digest_of(other[name]), name
    for name in ("num_updates", "lr_scheduler_state"):
        assert one["optimizer_history"][-1][name] == other["optimizer_history"][-1][name]


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


def generate(data, checkpoint, options="", runs=run_here):
    """The output of fairseq-generate, line by line as it was written."""
    return runs(
        f"fairseq-generate {data} --user-dir {PACKAGE} -s src -t tgt --path {checkpoint} "
        f"--num-workers 0 --cpu {options}"
    )


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
    line = re.findall(r"\| valid \| (epoch .*)", output)[-1]
    return {name: float(value) for name, value in re.findall(r"(\w+) ([\d.e+-]+)(?: \||$)", line)}


def evaluated(output):
    """(perplexity, loss in bits, tokens) that fairseq-eval-lm printed."""
    loss, perplexity = re.search(
        r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)", output
    ).groups()
    tokens = re.search(r"Evaluated ([\d,]+) tokens", output).group(1).replace(",", "")
    return float(perplexity), float(loss), int(tokens)
