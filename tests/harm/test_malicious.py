"""A malicious checkpoint of each kind, given to every command that loads one: its call does not run."""

import contextlib
import pickle
import shutil

import pytest
import torch
from conftest import PACKAGE
from harm import malicious, oracles
from harm.campaign import LIMITS, TIMEOUT, WHOLE
from harm.targets import (
    ATTENTION,
    INTERACTIVE,
    LM_TASK,
    RERANK,
    SCORE,
    TRANSLATE,
    analysis,
    doc,
    eval_lm,
    generate,
    train_lm,
    train_mt,
)

HUB = """from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel
LSTMDocLanguageModel.from_pretrained(".", "a.pt", "data").score("dog runs")"""
MT_HUB = """from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc
LSTMLuongDoc.from_pretrained(".", "mt.pt", "data")"""
FROM_MODEL = ("--finetune-from-model", "a.pt")
VALIDATE = ("fairseq-validate", "data", *LM_TASK, "--path", "a.pt", "--batch-size", "2")
RESTORED = train_mt("data", "--restore-file", "mt.pt", "--max-epoch", "2")
LISTED = (*RERANK, "--output", "new")
COMMANDS = {  # name: (group, checkpoint, words)
    "fairseq-train": ("lm", "middle.pt", train_lm("data", "--restore-file", "middle.pt")),
    "fairseq-train --finetune-from-model": ("lm", "a.pt", train_lm("data", *FROM_MODEL)),
    "fairseq-eval-lm": ("lm", "a.pt", eval_lm()),
    "fairseq-validate": ("lm", "a.pt", VALIDATE),
    "eval-lm": ("lm", "a.pt", analysis("eval-lm", "data", "b.pt:a.pt")),
    "score": ("lm", "a.pt", SCORE),
    "generate": ("lm", "a.pt", analysis("generate", "data", "a.pt", "--length", "5")),
    "rank": ("lm", "a.pt", analysis("rank")),
    "weights": ("lm", "a.pt", analysis("weights")),
    "from_pretrained": ("lm", "a.pt", ("python", "-c", HUB)),
    "rerank": ("trees", "lm.pt", doc(*LISTED)),
    "fairseq-train of a translator": ("translation", "mt.pt", RESTORED),
    "fairseq-generate": ("translation", "mt.pt", generate()),
    "fairseq-generate --lm-path": ("translation", "mt.pt", generate("plain", "--lm-path", "mt.pt")),
    "fairseq-interactive": ("translation", "mt.pt", INTERACTIVE),
    "attention": ("translation", "mt.pt", ATTENTION),
    "translate": ("translation", "mt.pt", TRANSLATE),
    "from_pretrained of a translator": ("translation", "mt.pt", ("python", "-c", MT_HUB)),
}
# In the short form a command meets some kinds, each kind some commands.
SHARE = 1 if WHOLE else 11
CASES = [
    pytest.param(name, kind, id=f"{name}, {kind.__name__}")
    for place, name in enumerate(COMMANDS)
    for number, kind in enumerate(malicious.KINDS)
    if (number + place) % SHARE == 0
]


@pytest.mark.parametrize("name, kind", CASES)
def test_a_call_in_a_checkpoint_does_not_run(name, kind, server, inputs, tmp_path):
    group, checkpoint, words = COMMANDS[name]
    case = tmp_path / "case"
    shutil.copytree(inputs(group), case)
    marker = case / malicious.MARKER
    state = torch.load(case / checkpoint)
    (case / checkpoint).write_bytes(kind(state, marker))
    result = server.run(words, case, timeout=TIMEOUT, limits=LIMITS)
    assert not marker.exists()
    assert kind in malicious.PLAIN or result.status != 0, "accepted"
    if words[0] == "python":
        assert result.status in (0, 1), result.err[-600:]
    else:
        oracles.check_ending(result)


def test_the_calls_would_run(server, inputs, tmp_path):
    """Where a checkpoint is read as a pickle without care, and where fairseq evaluates settings: else the
    tests above would show nothing."""
    did_not = set()
    for kind in malicious.KINDS:
        if kind in (*malicious.PLAIN, malicious.pickle_in_another_folder):
            continue
        marker = tmp_path / f"{kind.__name__}.ran"
        path = tmp_path / kind.__name__
        path.write_bytes(kind(torch.load(inputs("lm") / "a.pt"), marker))
        with contextlib.suppress(Exception):
            if kind is malicious.pickled:
                pickle.loads(path.read_bytes())
            else:
                torch.load(path, weights_only=False)
        if not marker.exists():
            did_not.add(kind)
    two = {malicious.two_pickles_harmless_first, malicious.two_pickles_harmless_last}
    assert did_not <= two and len(did_not) == 1, (
        "torch 2.6 reads the first of two, later ones the last"
    )

    case = tmp_path / "case"
    shutil.copytree(inputs("translation"), case)
    marker = case / malicious.MARKER
    state = torch.load(case / "mt.pt")
    (case / "mt.pt").write_bytes(malicious.evaluated_setting(state, marker))
    words = [word for word in generate() if word not in ("--user-dir", str(PACKAGE))]
    server.run(words, case, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")  # without this package
    assert marker.exists()
