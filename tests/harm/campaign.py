"""Mutilated inputs given to a command, each judged. ``FAIRSEQ_DOC_HARM=whole`` runs the whole form.

hypothesis draws the damage, always the same for a test, and prints how to repeat a case that failed. With
``--hypothesis-show-statistics`` pytest counts what became of the cases.
"""

import hashlib
import os
import shutil
from re import fullmatch

import hypothesis
import pytest
from harm import mutilations, oracles
from harm.targets import targets_of
from hypothesis import strategies as st

WHOLE = os.environ.get("FAIRSEQ_DOC_HARM") == "whole"
# To spare the machine: more memory than a command may need. Time is the processor's, since others may
# be at work.
LIMITS = {"RLIMIT_DATA": 6 * 10**9, "RLIMIT_CORE": 0, "RLIMIT_CPU": 20}
TIMEOUT = 150
drawn = hypothesis.settings(
    max_examples=12 if WHOLE else 1,
    derandomize=True,
    deadline=None,
    print_blob=True,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


def mutilated(group):
    """A test that gives each target of a group damaged files."""
    targets = targets_of(group)

    @drawn
    @hypothesis.given(data=st.data())
    @pytest.mark.parametrize("name", targets)
    def test(name, data, campaign):
        target, cases = targets[name], campaign(group)
        original = (cases.inputs / target.file).read_bytes()
        recipe = data.draw(target.draws(original))
        hypothesis.assume(recipe != [["cut", 0]])  # the simplest, always drawn first
        hypothesis.assume(mutilations.mutilate(original, recipe) != original)
        hypothesis.event(cases.judge(target, recipe))

    return test


def special(group):
    """A test that gives each target what every file meets once: not a plain file; for a text, gigabytes
    of one line that were compressed, and brackets in brackets."""
    targets = targets_of(group)

    @pytest.mark.parametrize("name", targets)
    def test(name, campaign):
        target = targets[name]
        found = [[[place]] for place in mutilations.PLACES]
        if target.draws not in (mutilations.binary, mutilations.checkpoint):
            found += [[["bomb", 3, "a"]], [["nest", 0, 200_000, "(|)"]]]
        for recipe in found:
            campaign(group).judge(target, recipe)

    return test


class Campaign:
    """The cases of one group's targets.

    Args:
        server: a fork server.
        inputs: folder with the group's unharmed inputs.
        folder: where each case is run; emptied between cases.
    """

    def __init__(self, server, inputs, folder):
        self.server, self.inputs, self.folder = server, inputs, folder
        self._expected = {}

    def expected(self, target):
        """The command's result on the unharmed inputs."""
        key = (target.words, target.reads)
        if key not in self._expected:
            case = self._fresh()
            result = self._start(target, case)
            assert result.status == 0, f"{target.name}\n{result.out[-900:]}\n{result.err[-900:]}"
            self._expected[key] = target.reads(result, case)
        return self._expected[key]

    def _fresh(self):
        case = self.folder / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(self.inputs, case, symlinks=True)
        return case

    def _start(self, target, case):
        return self.server.run(
            target.words, case, timeout=TIMEOUT, limits=LIMITS, FAIRSEQ_DOC_TRACEBACK="0"
        )

    def judge(self, target, recipe):
        """``refused`` or ``right result``; a failure where the command did neither."""
        if WHOLE:  # else only where there is a result to compare
            self.expected(target)
        case = self._fresh()
        mutilations.place(case / target.file, recipe)
        before = listing(case)
        result = self._start(target, case)
        problem = oracles.wrong(oracles.check_ending, result, target.prints)
        problem = problem or _problem_of_files(target, result, before, listing(case))
        if problem is None and result.status == 0:
            problem = self._problem_of_result(target, recipe, result, case)
        mutilations.remove(case / target.file)
        if problem:
            tail = [line[:300] for line in result.err.splitlines() if line.strip()][-3:]
            spent = f"{result.memory / 1e9:.2f} GB, {result.seconds:.1f} s"
            found = f"{target.name}: {problem}; status {result.status}, {spent}"
            pytest.fail("\n    ".join([found, *tail]), pytrace=False)
        return "refused" if result.status else "right result"

    def _problem_of_result(self, target, recipe, result, case):
        try:
            found = target.reads(result, case)
        except Exception as error:
            return f"a result that cannot be read: {type(error).__name__}: {error}"
        expected = self.expected(target)
        if found == expected:
            return None
        if recipe[0][0] in mutilations.PLACES:
            return f"a result from a {recipe[0][0]}"
        original = (self.inputs / target.file).read_bytes()
        mutilated = mutilations.mutilate(original, recipe)
        return oracles.wrong(target.fits, original, mutilated, result, expected)


def listing(folder):
    """{relative path: digest of the contents, or what it is}."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_dir():
            found[f"{name}/"] = "folder"
        elif path.is_fifo():
            found[name] = "pipe"
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _problem_of_files(target, result, before, after):
    """What is wrong with what a command left in the folder."""
    for name, content in before.items():
        written = target.writes and fullmatch(target.writes, name) and result.status == 0
        if after.get(name) != content and not written:
            return f"changed or removed {name}"
    for name in after.keys() - before.keys():
        allowed = target.writes and fullmatch(target.writes, name)
        failed = result.status != 0 and not fullmatch(r"hydra_train\.log|outputs/.*|.*lock.*", name)
        if not name.endswith("/") and (failed or not allowed):
            return f"left {name}"
    return None
