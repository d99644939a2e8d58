"""Learning curves read from fairseq's logs (the paper's Figure 2)."""

import contextlib
import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines

# --log-format simple and tqdm, also under fairseq-hydra-train
VALID = re.compile(r"epoch (\d+) \| valid on '([^']*)' subset .*?\| ppl (\S+) \|")
VALID_JSON = re.compile(r'\{"epoch": .*"\w+_ppl": .*\}')
SWITCH = re.compile(r"averaging starts after (?:epoch|check) (\d+)")  # of NT-ASGD, of plateau
STAGE = re.compile(r"fine-tuning stage (\d+) starts after epoch (\d+)")
MAX_LINE = 1 << 26  # bytes: a progress bar of tqdm is one line, with all its states
MAX_STATE = 10_000  # characters; a longer one holds no validation


@dataclass(frozen=True)
class LearningCurve:
    """The validations of one run."""

    perplexities: dict[int, float]  # {epoch: validation perplexity}; the later of two runs
    averaging_after: int | None  # the epoch after which averaging started
    stages_after: dict[int, int]  # {fine-tuning stage: the epoch after which it started}

    def facts(self) -> dict[str, Any]:
        """The same and the best perplexity, for JSON."""
        return {
            "perplexity": self.perplexities,
            "best": min(self.perplexities.values()),
            "averaging_after": self.averaging_after,
            "stages_after": self.stages_after,
        }


def mean_curve(seeds: Sequence[LearningCurve]) -> LearningCurve:
    """The mean perplexity of the epochs that all seeds have; averaging and stages start where they
    do for the first."""
    epochs = sorted(set.intersection(*(set(curve.perplexities) for curve in seeds)))
    means = {e: statistics.fmean(curve.perplexities[e] for curve in seeds) for e in epochs}
    return replace(seeds[0], perplexities=means)


def read_log(path: str | os.PathLike) -> LearningCurve:
    """Read a log of ``fairseq-train`` or ``fairseq-hydra-train``, ``--log-format`` simple, tqdm or
    json: finite perplexities of the first validation subset."""
    perplexities: dict[int, float] = {}
    first_subset: str | None = None
    averaging_after: int | None = None
    stages_after: dict[int, int] = {}
    lines = text_lines(path, MAX_LINE, errors="replace")
    states = chain.from_iterable(line.split("\r") for line in lines)  # of progress bars too
    for line in states:
        if len(line) > MAX_STATE:
            continue
        for epoch, subset, perplexity in _validations(line):
            first_subset = first_subset or subset
            if subset == first_subset and 0 < perplexity < math.inf:
                perplexities[epoch] = perplexity
        for match in SWITCH.finditer(line):
            averaging_after = int(match[1])
        for match in STAGE.finditer(line):
            stages_after[int(match[1])] = int(match[2])
    if not perplexities:
        raise FairseqDocError(
            f"{path} has no validation line: expected a log of fairseq-train, with an epoch "
            "validated"
        )
    return LearningCurve(perplexities, averaging_after, stages_after)


def _validations(line: str) -> Iterator[tuple[int, str, float]]:
    """(epoch, subset, perplexity) of a line's validations; a damaged one is left out."""
    for epoch, subset, printed in VALID.findall(line):
        with contextlib.suppress(ValueError):
            yield int(epoch), subset, float(printed)
    for text in VALID_JSON.findall(line):
        with contextlib.suppress(ValueError):  # cut off
            logged = json.loads(text)
            for key, value in logged.items():
                if key.endswith("_ppl") and key != "train_ppl":
                    yield int(logged["epoch"]), key.removesuffix("_ppl"), float(value)
