"""Learning curves read from fairseq's logs (the paper's Figure 2)."""

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError

# --log-format simple and tqdm, also under fairseq-hydra-train
VALID = re.compile(r"epoch (\d+) \| valid on '([^']*)' subset .*?\| ppl (\S+) \|")  # whole lines
VALID_JSON = re.compile(r'\{"epoch": .*"\w+_ppl": .*\}')
SWITCH = re.compile(r"averaging starts after epoch (\d+)")
STAGE = re.compile(r"fine-tuning stage (\d+) starts after epoch (\d+)")


@dataclass(frozen=True)
class LearningCurve:
    """The validations of one run.

    Attributes:
        perplexities: {epoch: validation perplexity}; the later one where an epoch was run twice.
        averaging_after: the epoch after which averaging started, or None.
        stages_after: {fine-tuning stage: the epoch after which it started}.
    """

    perplexities: dict[int, float]
    averaging_after: int | None
    stages_after: dict[int, int]


def read_log(path: str | os.PathLike) -> LearningCurve:
    """Read the output of ``fairseq-train`` or ``fairseq-hydra-train`` with ``--log-format`` simple,
    tqdm or json. Only the first of several validation subsets is read. An epoch whose perplexity is
    not finite is left out.

    Raises:
        FairseqDocError: no such file, or no validation in it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FairseqDocError(
            f"no log at {path}: expected the output of fairseq-train ({error.strerror})"
        ) from None
    validations = [*VALID.findall(text), *_validations_in_json(text)]
    perplexities = {}
    for epoch, subset, printed in validations:
        perplexity = float(printed)
        if subset == validations[0][1] and math.isfinite(perplexity):
            perplexities[int(epoch)] = perplexity
    if not perplexities:
        raise FairseqDocError(
            f"{path} has no validation line: expected a log of fairseq-train, with at least one "
            "epoch validated"
        )
    switches = SWITCH.findall(text)
    averaging_after = int(switches[-1]) if switches else None
    stages_after = {int(stage): int(epoch) for stage, epoch in STAGE.findall(text)}
    return LearningCurve(perplexities, averaging_after, stages_after)


def _validations_in_json(text: str) -> Iterator[tuple[int, str, str]]:
    """(epoch, subset, perplexity) of each validation in a log of --log-format json."""
    for line in VALID_JSON.findall(text):
        try:
            logged = json.loads(line)
        except ValueError:  # cut off
            continue
        for key, value in logged.items():
            if key.endswith("_ppl") and key != "train_ppl":
                yield logged["epoch"], key.removesuffix("_ppl"), value
