"""Mutilated inputs given to a command, each judged.

``FAIRSEQ_DOC_HARM=whole`` runs the whole form; ``FAIRSEQ_DOC_HARM_TARGET`` and ``_RECIPE`` repeat one
case.
"""

import hashlib
import json
import os
import shlex
import shutil
from dataclasses import dataclass, field
from re import fullmatch

import hypothesis
from harm import mutilations, oracles

WHOLE = os.environ.get("FAIRSEQ_DOC_HARM") == "whole"
TARGET = os.environ.get("FAIRSEQ_DOC_HARM_TARGET")
RECIPE = os.environ.get("FAIRSEQ_DOC_HARM_RECIPE")
CASES = 12 if WHOLE else 1  # of a target
# To spare the machine: more memory than a command may need. Time is the processor's, since others may
# be at work.
LIMITS = {"RLIMIT_DATA": 6 * 10**9, "RLIMIT_CORE": 0, "RLIMIT_CPU": 20}
TIMEOUT = 150


@dataclass
class Counts:
    """What became of the cases of one kind."""

    kind: str
    cases: int = 0
    refused: int = 0
    right: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def summary(self):
        """The numbers."""
        right = {"refused": self.refused, "right results": self.right}
        return {"cases": self.cases, **right, "failures": len(self.failures)}

    @property
    def report(self):
        """What failed."""
        return f"{len(self.failures)} of {self.cases} cases\n" + "\n".join(self.failures)


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

    def run(self, target):
        """The :class:`Counts` of a target's cases."""
        counts = Counts(target.kind)
        for recipe in self._recipes(target):
            counts.cases += 1
            problem, refused = self._judge(target, recipe)
            if problem:
                counts.failures.append(problem)
            elif refused:
                counts.refused += 1
            else:
                counts.right += 1
        return counts

    def _recipes(self, target):
        if TARGET and target.name != TARGET:
            return []
        if RECIPE:
            return [json.loads(RECIPE)]
        data = (self.inputs / target.file).read_bytes()
        number = int(hashlib.sha256(target.name.encode()).hexdigest()[:8], 16)
        strategy = target.draws(data)
        found = [recipe for recipe in drawn(strategy, 2 * CASES, number) if _changes(data, recipe)]
        return found[:CASES] + (special(target) if WHOLE else [])

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
        return self.server.run(target.words, case, timeout=TIMEOUT, limits=LIMITS)

    def _judge(self, target, recipe):
        """(what is wrong or None, whether the command refused the file)."""
        expected = self.expected(target)
        case = self._fresh()
        mutilations.place(case / target.file, recipe)
        before = listing(case)
        result = self._start(target, case)
        problem = oracles.problem_of_ending(result, target.prints)
        problem = problem or _problem_of_files(target, result, before, listing(case))
        if problem is None and result.status == 0:
            problem = self._problem_of_result(target, recipe, result, case, expected)
        mutilations.remove(case / target.file)
        if problem:
            problem = _described(target, recipe, result, problem)
        return problem, result.status != 0

    def _problem_of_result(self, target, recipe, result, case, expected):
        try:
            if target.reads(result, case) == expected:
                return None
        except Exception as error:
            return f"a result that cannot be read: {type(error).__name__}: {error}"
        if recipe[0][0] in mutilations.PLACES:
            return f"a result from a {recipe[0][0]}"
        original = (self.inputs / target.file).read_bytes()
        try:
            mutilated = mutilations.mutilate(original, recipe)
            return target.fits(original, mutilated, result, expected)
        except oracles.Unreadable as error:
            return f"a result from a file without a meaning: {error}"


def drawn(strategy, count, number):
    """So many different recipes of a strategy, by this seed. The first that hypothesis gives is always
    the simplest; it is left out."""
    found = []

    @hypothesis.seed(number)
    @hypothesis.settings(
        max_examples=2 * count + 5,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(recipe):
        if recipe not in found:
            found.append(recipe)

    collect()
    return found[1 : count + 1]


def special(target):
    """What every file meets once: not a plain file; a text: gigabytes that were compressed."""
    found = [[[name]] for name in mutilations.PLACES]
    if target.draws not in (mutilations.binary, mutilations.checkpoint):
        found += [[["bomb", 3, "a"]], [["nest", 0, 200_000, "(|)"]]]
        if target.words[0] != "fairseq-interactive":  # which translates line by line, for hours
            found.append([["bomb", 3, "a\n"]])
    return found


def _changes(data, recipe):
    return recipe[0][0] in mutilations.PLACES or mutilations.mutilate(data, recipe) != data


def listing(folder):
    """{relative path: digest of the contents, or what it is}."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_dir():
            found[f"{name}/"] = "folder"
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


def _described(target, recipe, result, problem):
    repeat = f"scripts/harm.sh {shlex.quote(target.name)} {shlex.quote(json.dumps(recipe))}"
    shown = json.dumps(recipe)
    tail = [line[:300] for line in result.err.splitlines() if line.strip()][-3:]
    return "\n    ".join(
        [
            f"{target.name} {shown[:200]}",
            f"{problem}; status {result.status}, {result.memory / 1e9:.2f} GB, {result.seconds:.1f} s",
            f"repeat: {repeat[:500]}",
            *tail,
        ]
    )
