"""Learning curves from fairseq's logs (the paper's Figure 2), and whether a run is like others.

A reference file holds the curves of one training with several seeds. Its band at an epoch covers
every seed's perplexity at this epoch, the one before and the one after, since averaging starts
earlier with some seeds than with others, and three standard deviations more on either side:

    low = exp(min - 3 s), high = exp(max + 3 s) of the log perplexities,
    s^2 = the seeds' variance of the log perplexity, its mean over the epochs; s is at least 0.01
"""

import contextlib
import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import read_text, text_lines

# --log-format simple and tqdm, also under fairseq-hydra-train
VALID = re.compile(r"epoch (\d+) \| valid on '([^']*)' subset .*?\| ppl (\S+) \|")
VALID_JSON = re.compile(r'\{"epoch": .*"\w+_ppl": .*\}')
SWITCH = re.compile(r"averaging starts after (?:epoch|check) (\d+)")  # of NT-ASGD, of plateau
STAGE = re.compile(r"fine-tuning stage (\d+) starts after epoch (\d+)")
MAX_LINE = 1 << 26  # bytes: a progress bar of tqdm is one line, with all its states
DEVIATIONS, LEAST_DEVIATION = 3.0, 0.01
KIND = "fairseq_doc reference curves"


@dataclass(frozen=True)
class LearningCurve:
    """The validations of one run."""

    # {epoch: validation perplexity}; a repeated epoch keeps its last value
    perplexities: dict[int, float]
    averaging_after: int | None  # the epoch after which averaging started
    stages_after: dict[int, int]  # {fine-tuning stage: the epoch after which it started}

    def facts(self) -> dict[str, Any]:
        """The fields and the best perplexity, for JSON."""
        return {
            "perplexity": self.perplexities,
            "best": min(self.perplexities.values()),
            "averaging_after": self.averaging_after,
            "stages_after": self.stages_after,
        }


def mean_curve(seeds: Sequence[LearningCurve]) -> LearningCurve:
    """The mean perplexity at the epochs that all seeds have; averaging and stages are the first
    seed's. Raises ``FairseqDocError`` if the seeds have no common epoch."""
    epochs = sorted(set.intersection(*(set(curve.perplexities) for curve in seeds)))
    if not epochs:
        raise FairseqDocError("expected runs of the same training with a common epoch; got none")
    means = {e: statistics.fmean(curve.perplexities[e] for curve in seeds) for e in epochs}
    return replace(seeds[0], perplexities=means)


# ---- logs ----


def read_log(path: str | os.PathLike) -> LearningCurve:
    """Read a log of ``fairseq-train`` or ``fairseq-hydra-train``, ``--log-format`` simple, tqdm or
    json: finite perplexities of the first validation subset."""
    perplexities: dict[int, float] = {}
    first_subset: str | None = None
    averaging_after: int | None = None
    stages_after: dict[int, int] = {}
    for line in text_lines(path, MAX_LINE, errors="replace"):
        for state in line.split("\r"):  # of a progress bar
            for epoch, subset, perplexity in _validations(state):
                first_subset = first_subset or subset
                if subset == first_subset and 0 < perplexity < math.inf:
                    perplexities[epoch] = perplexity
            for match in SWITCH.finditer(state):
                averaging_after = int(match[1])
            for match in STAGE.finditer(state):
                stages_after[int(match[1])] = int(match[2])
    if not perplexities:
        raise FairseqDocError(
            f"{path} has no validation line: expected a log of fairseq-train with at least one "
            "validation"
        )
    return LearningCurve(perplexities, averaging_after, stages_after)


def _validations(line: str) -> Iterator[tuple[int, str, float]]:
    """(epoch, subset, perplexity) of a line's validations; a damaged one is left out."""
    for epoch, subset, printed in VALID.findall(line):
        with contextlib.suppress(ValueError):
            yield int(epoch), subset, float(printed)
    for text in VALID_JSON.findall(line):
        with contextlib.suppress(ValueError, TypeError):  # cut off, or not a number
            logged = json.loads(text)
            for key, value in logged.items():
                if key.endswith("_ppl") and key != "train_ppl":
                    yield int(logged["epoch"]), key.removesuffix("_ppl"), float(value)


# ---- references ----


def reference_lines(
    curves: Mapping[str, LearningCurve], command: str, made_with: Mapping[str, str]
) -> list[str]:
    """The lines of a reference file, JSON with a line for each run: the ``curves`` {name of a run:
    its curve} of one ``command``, and ``made_with``, such as versions and the processor."""
    text = partial(json.dumps, ensure_ascii=False)
    head = {"kind": KIND, "command": command, **made_with}
    runs = [f"  {text(name)}: {text(curve.facts())}" for name, curve in curves.items()]
    rows = [f" {text(key)}: {text(value)}," for key, value in head.items()]
    return ["{", *rows, ' "runs": {', ",\n".join(runs), " }", "}"]


def is_reference(path: str | os.PathLike) -> bool:
    """Whether a file is a reference, whose name ends in .json; else it is a log."""
    is_json = str(path).lower().endswith(".json")
    return is_json and any(KIND in line for line in islice(text_lines(path, errors="replace"), 2))


def read_reference(path: str | os.PathLike) -> list[LearningCurve]:
    """The seeds' curves of a reference file."""
    text = read_text(path)
    try:
        content = json.loads(text)
        if content["kind"] == KIND and content["runs"]:
            return [
                LearningCurve(
                    {int(epoch): float(value) for epoch, value in run["perplexity"].items()},
                    run["averaging_after"],
                    {int(stage): epoch for stage, epoch in run["stages_after"].items()},
                )
                for run in content["runs"].values()
            ]
    except (LookupError, TypeError, ValueError, AttributeError):
        pass
    raise FairseqDocError(
        f"{path}: expected a reference that fairseq-doc curves --reference wrote; got another file"
    )


def band_of(seeds: Sequence[LearningCurve]) -> dict[int, tuple[float, float]]:
    """The band, {epoch: (low, high)}, of one training with several seeds."""
    by_epoch: dict[int, list[float]] = {}
    for curve in seeds:
        for epoch, perplexity in curve.perplexities.items():
            by_epoch.setdefault(epoch, []).append(math.log(perplexity))
    varied = [statistics.variance(logs) for logs in by_epoch.values() if len(logs) > 1]
    margin = DEVIATIONS * max(LEAST_DEVIATION, math.sqrt(statistics.fmean(varied or [0.0])))
    band = {}
    for epoch in sorted(by_epoch):
        near = [x for k in (epoch - 1, epoch, epoch + 1) for x in by_epoch.get(k, ())]
        low, high = math.exp(min(near) - margin), math.exp(max(near) + margin)
        band[epoch] = round(low, 2), round(high, 2)
    return band


def departures(
    curve: LearningCurve, band: Mapping[int, tuple[float, float]]
) -> tuple[list[dict[str, float]], int]:
    """The epochs at which a run is outside the band, each with ``epoch``, ``perplexity``, ``low``
    and ``high``, and how many were compared, at least one."""
    shared = sorted(curve.perplexities.keys() & band.keys())
    if not shared:
        raise FairseqDocError(
            f"expected epochs of the reference, {min(band)} to {max(band)}; "
            f"the run has {min(curve.perplexities)} to {max(curve.perplexities)}"
        )
    outside = []
    for epoch in shared:
        perplexity, (low, high) = curve.perplexities[epoch], band[epoch]
        if not low <= perplexity <= high:
            outside.append({"epoch": epoch, "perplexity": perplexity, "low": low, "high": high})
    return outside, len(shared)
