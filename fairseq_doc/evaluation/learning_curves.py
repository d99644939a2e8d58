"""Learning curves from fairseq's logs (the paper's Figure 2)."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError

# --log-format simple and tqdm, and the same under fairseq-hydra-train
VALID = re.compile(r"(?:\| valid \||\[valid\]\[INFO\] -) epoch (\d+) .*?\| ppl ([\d.e+]+)")
VALID_JSON = re.compile(r'\{"epoch": .*"valid_ppl": .*\}')
SWITCH = re.compile(r"averaging starts after epoch (\d+)")
STAGE = re.compile(r"fine-tuning stage (\d+)\D.*starts after epoch (\d+)")


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
    """Read a log of ``fairseq-train`` or ``fairseq-hydra-train``, of any ``--log-format``.

    Raises:
        FairseqDocError: no such file, or no validation in it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FairseqDocError(
            f"no log at {path}: expected what fairseq-train printed ({error.strerror})"
        ) from None
    curve = {int(epoch): float(perplexity) for epoch, perplexity in VALID.findall(text)}
    for line in VALID_JSON.findall(text):
        logged = json.loads(line)
        curve[int(logged["epoch"])] = float(logged["valid_ppl"])
    if not curve:
        raise FairseqDocError(
            f"{path} has no validation line: expected a log of fairseq-train, with at least one "
            "epoch validated"
        )
    switches = SWITCH.findall(text)
    stages = {int(stage): int(epoch) for stage, epoch in STAGE.findall(text)}
    return LearningCurve(curve, int(switches[-1]) if switches else None, stages)
