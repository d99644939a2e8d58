"""Perplexity of a split, with the LSTM state carried over the whole text."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import Progress, no_progress


@dataclass(frozen=True)
class Evaluation:
    """The negative log likelihood of a text.

    Attributes:
        nll: the sum of -log P over the targets, in nats.
        tokens: the number of targets.
        left_out: tokens of the text that are no target, not counting its first.
    """

    nll: float
    tokens: int
    left_out: int = 0

    @property
    def perplexity(self) -> float:
        """e^(nll / tokens); infinite where that is beyond float64."""
        try:
            return math.exp(self.nll / self.tokens)
        except OverflowError:
            return math.inf

    @property
    def bits(self) -> float:
        """Mean NLL of a token, base 2, as fairseq logs losses: bits a character where a token is a
        byte."""
        return self.nll / self.tokens / math.log(2)


def evaluate(
    ensemble: Ensemble, split: str, columns: int = 1, progress: Progress = no_progress
) -> Evaluation:
    """Score a split in ``columns`` columns; each window starts from the state after the one before.

    Args:
        ensemble: the models.
        split: ``valid``, ``test`` or another split of the task's folder.
        columns: 1 for final figures; several cut the text and leave out its remainder.
        progress: see :mod:`fairseq_doc.evaluation.progress`.

    Returns:
        :class:`Evaluation`.

    Raises:
        FairseqDocError: no such split, one too short, or a score that is not finite.
    """
    nll, tokens = 0.0, 0
    for sample in progress(windows_of(ensemble, split, columns), f"eval-lm {split}"):
        log_probs = ensemble.token_log_probs(
            sample["net_input"]["src_tokens"].to(ensemble.device),
            sample["target"].to(ensemble.device),
            sample["net_input"]["window"],
        )
        nll -= log_probs.sum().item()
        tokens += len(log_probs)
    left_out = len(ensemble.task.dataset(split)) - 1 - tokens
    return Evaluation(nll, tokens, left_out)


def windows_of(ensemble: Ensemble, split: str, columns: int = 1) -> Iterable[dict[str, Any]]:
    """The windows of a split, in order: the batches of the task, with a length."""
    ensemble.task.load_dataset(split)
    return ensemble.task.eval_lm_dataloader(ensemble.task.dataset(split), batch_size=columns)
