"""Perplexity of a split, with the LSTM state carried over the whole text."""

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_doc.evaluation.ensemble import Ensemble, average_log_probs
from fairseq_doc.evaluation.monte_carlo import mean_log_probs, sampled
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.temperature import check_temperatures
from fairseq_doc.modules.mixture import check_finite


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
    return evaluate_at(ensemble, split, columns=columns, progress=progress)[0]


@torch.no_grad()
def evaluate_at(
    ensemble: Ensemble,
    split: str,
    temperatures: Sequence[float] = (1.0,),
    samples: int = 0,
    average: str = "arithmetic",
    columns: int = 1,
    progress: Progress = no_progress,
) -> list[Evaluation]:
    """Score a split at several temperatures in one pass.

    Args:
        ensemble: the models. Each is averaged over its samples before they are averaged.
        temperatures: S positive numbers.
        samples, average: see :mod:`fairseq_doc.evaluation.monte_carlo`; 0: none, without dropout.
        split, columns, progress: as in :func:`evaluate`.

    Returns:
        An evaluation for each temperature.

    Raises:
        FairseqDocError: a temperature that is not positive; otherwise as :func:`evaluate`.
    """
    check_temperatures(temperatures)
    length = ensemble.task.cfg.bptt if samples else None
    windows = windows_of(ensemble, split, columns, length)
    nll, tokens = torch.zeros(len(temperatures), dtype=torch.float64), 0
    with ExitStack() as stack:
        forwards = [stack.enter_context(sampled(model, samples)) for model in ensemble.models]
        for window in progress(windows, f"eval-lm {split}"):
            source = window["net_input"]["src_tokens"].to(ensemble.device)
            target = window["target"].to(ensemble.device)
            of_models = []
            for model, forward in zip(ensemble.models, forwards, strict=True):
                params = forward(source, window["net_input"]["window"]).flatten(1, 2)  # (K, N, C)
                log_probs = mean_log_probs(model, params, target.flatten(), temperatures, average)
                of_models.append(log_probs)
            log_probs = average_log_probs(of_models)  # (S, N)
            check_finite(log_probs)
            nll -= log_probs.sum(1).cpu()
            tokens += target.numel()
    left_out = len(ensemble.task.dataset(split)) - 1 - tokens
    return [Evaluation(total, tokens, left_out) for total in nll.tolist()]


def windows_of(
    ensemble: Ensemble, split: str, columns: int = 1, length: int | None = None
) -> Iterable[dict[str, Any]]:
    """The windows of a split, in order: the batches of the task, with a length. They have ``length``
    steps; None: as many as ``--eval-window`` allows."""
    task = ensemble.task
    task.load_dataset(split)
    return task.eval_lm_dataloader(task.dataset(split), batch_size=columns, length=length)
