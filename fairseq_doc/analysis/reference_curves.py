"""Reference curves: what one training gave by seed, and whether another run is like it.

The band at an epoch covers every seed's perplexity at it and at its neighbours, since averaging
starts an epoch earlier or later from seed to seed, and three standard deviations more:

    low = exp(min - 3 s), high = exp(max + 3 s) of the log perplexities,
    s^2 = the seeds' variance of the log perplexity, its mean over the epochs; s is at least 0.01
"""

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from fairseq_doc.analysis.learning_curves import LearningCurve
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import read_text, text_lines

MAX_BYTES = 1 << 22  # of a file
DEVIATIONS, LEAST_DEVIATION = 3.0, 0.01
LARGEST = 709.78  # logarithm of the largest float
KIND = "fairseq_doc reference curves"


def reference_lines(
    curves: Mapping[str, LearningCurve], command: str, made_with: Mapping[str, str]
) -> list[str]:
    """The lines of a reference file, JSON with a line for each run: ``curves`` {name of a run: its
    curve} of one ``command`` with several seeds, ``made_with`` such as versions and the
    processor."""
    text = partial(json.dumps, ensure_ascii=False)
    head = {"kind": KIND, "command": command, **made_with}
    runs = [f"  {text(name)}: {text(curve.facts())}" for name, curve in curves.items()]
    rows = [f" {text(key)}: {text(value)}," for key, value in head.items()]
    return ["{", *rows, ' "runs": {', ",\n".join(runs), " }", "}"]


def band_of(seeds: Sequence[LearningCurve]) -> dict[int, tuple[float, float]]:
    """{epoch: (low, high)} of the runs of one training with several seeds."""
    by_epoch: dict[int, list[float]] = {}
    for curve in seeds:
        for epoch, perplexity in curve.perplexities.items():
            by_epoch.setdefault(epoch, []).append(math.log(perplexity))
    varied = [statistics.variance(logs) for logs in by_epoch.values() if len(logs) > 1]
    margin = DEVIATIONS * max(LEAST_DEVIATION, math.sqrt(statistics.fmean(varied or [0.0])))
    band = {}
    for epoch in sorted(by_epoch):
        near = [x for k in (epoch - 1, epoch, epoch + 1) for x in by_epoch.get(k, ())]
        low, high = max(-700, min(near) - margin), min(LARGEST, max(near) + margin)
        band[epoch] = _rounded(math.exp(low)), _rounded(math.exp(high))
    return band


def _rounded(perplexity: float) -> float:
    """To two decimals, or, below 1, to three digits: never to 0."""
    return round(perplexity, 2) if perplexity >= 1 else float(f"{perplexity:.3g}")


def is_reference(path: str | os.PathLike) -> bool:
    """Whether a file, whose name ends in .json, is a reference; else it is a log."""
    if not str(path).endswith(".json"):
        return False
    return any(KIND in line for line in islice(text_lines(path, MAX_BYTES, errors="replace"), 2))


def read_reference(path: str | os.PathLike) -> list[LearningCurve]:
    """The seeds' curves of a reference file."""
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise FairseqDocError(
            f"{path}: expected a reference that fairseq-doc curves --reference wrote; got another "
            "file"
        )
    return [
        LearningCurve(
            _by_number(run["perplexity"], float),
            run["averaging_after"],
            _by_number(run["stages_after"], int),
        )
        for run in content["runs"].values()
    ]


def _by_number(items: Mapping[str, Any], kind: type) -> dict[int, Any]:
    return {int(number): kind(value) for number, value in items.items()}


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
