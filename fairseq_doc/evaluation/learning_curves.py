"""Learning curves from fairseq's logs (the paper's Figure 2)."""

import json
import math
import re
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
    """One run.

    Attributes:
        perplexities: {epoch: validation perplexity}; of an epoch that was run twice, the later.
        averaging_after: the epoch after which averaging started, or None.
        stages_after: {fine-tuning stage: the epoch after which it started}.
    """

    perplexities: dict
    averaging_after: int | None
    stages_after: dict


def read_log(path):
    """Read what ``fairseq-train`` or ``fairseq-hydra-train`` printed with ``--log-format`` simple,
    tqdm or json. Of several validation subsets the first counts; an epoch whose perplexity is not
    finite is left out.

    Raises:
        FairseqDocError: no such file, or no validation in it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FairseqDocError(
            f"no log at {path}: expected what fairseq-train printed ({error.strerror})"
        ) from None
    validations = [*VALID.findall(text), *_validations_in_json(text)]
    curve = {}
    for epoch, subset, printed in validations:
        perplexity = float(printed)
        if subset == validations[0][1] and math.isfinite(perplexity):
            curve[int(epoch)] = perplexity
    if not curve:
        raise FairseqDocError(
            f"{path} has no validation line: expected a log of fairseq-train, with at least one "
            "epoch validated"
        )
    switches = SWITCH.findall(text)
    stages = {int(stage): int(epoch) for stage, epoch in STAGE.findall(text)}
    return LearningCurve(curve, int(switches[-1]) if switches else None, stages)


def _validations_in_json(text):
    """(epoch, subset, perplexity) of each line of --log-format json that is no training's."""
    for line in VALID_JSON.findall(text):
        try:
            logged = json.loads(line)
        except ValueError:  # cut off
            continue
        for key, value in logged.items():
            if key.endswith("_ppl") and key != "train_ppl":
                yield logged["epoch"], key.removesuffix("_ppl"), value
