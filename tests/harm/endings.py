"""How a command may end, and what it may leave behind."""

import hashlib
import json
import os
import re

import torch
from conftest import digest_of

import fairseq_doc.registration  # noqa: F401  # so that torch.load accepts what checkpoints hold

WHOLE = os.environ.get("FAIRSEQ_DOC_HARM") == "whole"
STATUSES = (0, 1, 2, 3, os.EX_SOFTWARE)
# To spare the machine: more memory than a command may need.
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (6 * 10**9, 6 * 10**9))"


def check_ending(result):
    """It ended by itself; a failure has one line of its own last, no traceback and no result."""
    assert result.status in STATUSES, f"status {result.status}\n{result.err[-2000:]}"
    assert not re.search(r"Traceback \(most|Exception ignored in", result.out + result.err), (
        result.err
    )
    if result.status == 0:
        return
    program, command = result.words[0], " ".join(result.words[:2])
    name = command if program == "fairseq-doc" else program
    lines = [line for line in result.err.splitlines() if line.strip()]
    assert lines and lines[-1].startswith((f"{name}: error: ", "fairseq_doc: error: ")), result.err
    prints_a_report = program != "fairseq-doc" or result.words[1].startswith("prepare")
    assert prints_a_report or not result.out, result.out
    # An unexpected error must name a file.
    assert result.status != os.EX_SOFTWARE or " after reading " in lines[-1], lines[-1]


def check_files(result, before, after):
    """No input is changed, and a command that failed leaves nothing."""
    assert before.items() <= after.items()
    made = [name for name in after.keys() - before.keys() if "lock" not in name]
    allowed = () if result.status else ("new", "save/")
    assert all(name.startswith(allowed) for name in made), made


def listing(folder):
    """{relative path: digest} of the files of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def checkpoints_of(folder):
    """{name: digest of weights, optimizer state and position in the data} of the checkpoints; the names
    of all other files but locks."""
    found = {}
    for path in sorted(folder.glob("save/*")):
        if path.suffix == ".pt":
            state = torch.load(path)
            extra = state["extra_state"]
            position = [extra["train_iterator"], extra.get("val_loss"), extra.get("best")]
            found[path.name] = digest_of([state["model"], state["last_optimizer_state"], position])
        elif "lock" not in path.name:
            found[path.name] = "no checkpoint"
    return found


def outcome(result, folder):
    """The result of a command that succeeded, without times: what it printed and wrote."""
    if (folder / "save").exists():
        return checkpoints_of(folder)
    if result.words[0] != "fairseq-doc":
        return sorted(re.findall(r"(?m)^[STHDPA]-\d+\t.*$|Loss \(base 2\).*", result.out))
    found = json.loads(result.out)
    written = {name: value for name, value in listing(folder).items() if name.startswith("new")}
    return {key: value for key, value in found.items() if not key.startswith("seconds")} | written
