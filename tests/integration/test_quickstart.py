"""scripts/quickstart.sh runs its two trainings at once, and neither outlives it.

The real run takes minutes. Here the script runs with commands in place of fairseq's that write what it reads.
"""

import os
import shlex
import shutil
import signal
import subprocess

import pytest
from conftest import ROOT, has_ended, heed_interrupts, wait_until

from fairseq_doc.cli.main import make_parser, settings_of

# A training: its log, its process, and either its end or a long wait.
TRAIN = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do [ "$1" = --save-dir ] && name=$(basename "$2"); shift; done
echo $$ >"$name.pid"
echo "| valid | epoch 001 | valid on 'valid' subset | loss 5 | ppl 148.41 |"
for _ in 1 2 3 4 5 6 7 8 9; do  # until the other has started as well
    [ -f one_softmax.pid ] && [ -f doc.pid ] && touch both && break
    sleep 0.3
done
[ "$name" != "${FAILS:-}" ] || { echo "error: no room"; exit 1; }
[ -z "${WAITS:-}" ] || exec sleep 60
"""
EVALUATE = """#!/usr/bin/env bash
case "$*" in *one_softmax*) perplexity=45.05 ;; *) perplexity=42.11 ;; esac
echo "Evaluated 6,527 tokens in 0.1s"
echo "Loss (base 2): 5.0, Perplexity: $perplexity"
"""


@pytest.fixture
def start(tmp_path):
    """Start the script in a checkout with these commands; ends it with the test."""
    started = []
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "quickstart.sh", tmp_path / "scripts")
    commands = {
        "scripts/setup.sh": "#!/usr/bin/env bash\n",
        ".venv/bin/fairseq-doc": '#!/usr/bin/env bash\nprintf "%q " "$@" >>calls; echo >>calls\n',
        ".venv/bin/fairseq-train": TRAIN,
        ".venv/bin/fairseq-eval-lm": EVALUATE,
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start(**environment):
        process = subprocess.Popen(
            ["scripts/quickstart.sh"],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for_the_end(folder, name):
    pid = (folder / f"{name}.pid").read_text().strip()
    wait_until(lambda: has_ended(pid), 10)


def test_the_last_line_has_both_perplexities_and_fairseq_doc_reads_the_commands(start, tmp_path):
    out, err = start().communicate(timeout=60)
    *_, last = out.splitlines()
    assert last.startswith("quickstart: one softmax 45.05, doc 42.11, 6527 tokens, "), err
    for name in ("one_softmax", "doc"):
        assert f"  {name}, epoch 1: validation perplexity 148.41" in out
    assert (tmp_path / "both").exists() == (len(os.sched_getaffinity(0)) > 1)
    calls = [shlex.split(call) for call in (tmp_path / "calls").read_text().splitlines()]
    assert {call[0] for call in calls} == {"prepare-lm", "curves"}
    for call in calls:
        args = make_parser().parse_args(call)
        settings_of(args)
        assert args.command.__name__.endswith(call[0].replace("-", "_"))


@pytest.mark.parametrize("waits", ["1", ""], ids=["while the other trains", "both ended"])
@pytest.mark.parametrize("name", ["one_softmax", "doc"])
def test_a_training_that_fails_ends_the_script_with_its_last_lines(start, tmp_path, name, waits):
    if len(os.sched_getaffinity(0)) == 1:
        waits = ""  # the other has ended before this one starts
    process = start(FAILS=name, WAITS=waits)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 1 and "error: no room" in err and "quickstart: one" not in out
    for path in tmp_path.glob("*.pid"):
        wait_for_the_end(tmp_path, path.stem)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_training_outlives_the_script(start, tmp_path, number):
    process = start(WAITS="1")
    names = ["one_softmax", "doc"] if len(os.sched_getaffinity(0)) > 1 else ["one_softmax"]
    wait_until(lambda: all((tmp_path / f"{name}.pid").exists() for name in names), 30)
    os.killpg(process.pid, number)  # as a terminal does: the script's group, not the jobs'
    process.communicate(timeout=30)
    assert process.returncode != 0
    for name in names:
        wait_for_the_end(tmp_path, name)
