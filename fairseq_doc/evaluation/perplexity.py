"""Perplexity of a split, with the LSTM state carried over the whole text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fairseq_doc.data.bptt_stream import columns_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import Part, Progress, no_progress
from fairseq_doc.evaluation.scorer import USUAL, ScorerSettings, scorer


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
    ensemble: Ensemble,
    split: str,
    columns: int = 1,
    progress: Progress = no_progress,
    settings: ScorerSettings = USUAL,
) -> Evaluation:
    """:func:`evaluate_each` for one of the settings."""
    return evaluate_each(ensemble, split, [settings], columns, progress)[0]


def check_text(
    ensemble: Ensemble, split: str, settings: ScorerSettings = USUAL, columns: int = 1
) -> None:
    """Load a split.

    Raises:
        FairseqDocError: no such split, one too short, dynamic evaluation of several columns, or a
            cache that its columns cannot fill.
    """
    if settings.dynamic and columns != 1:
        raise FairseqDocError(
            f"--dynamic learns from one text in its order: expected --batch-size 1; got {columns}"
        )
    length = columns_of(ensemble.split(split), columns).size(1)
    if settings.cache and settings.cache.window >= length:
        raise FairseqDocError(
            f"--cache-window {settings.cache.window} is more than a column of split {split!r} holds: "
            f"expected at most {length - 1} of its {length} tokens"
        )


def evaluate_each(
    ensemble: Ensemble,
    split: str,
    settings: Sequence[ScorerSettings],
    columns: int = 1,
    progress: Progress = no_progress,
    tokens: int | None = None,
    give_up: Callable[[int, float], bool] | None = None,
) -> list[Evaluation]:
    """Score a split with each of several settings, in one pass; each window starts from the state after
    the one before.

    Args:
        ensemble: the models.
        split: ``valid``, ``test`` or another split of the task's folder.
        settings: see :func:`fairseq_doc.evaluation.scorer.scorer`.
        columns: 1 for final figures; several cut the text and leave out its remainder.
        progress: see :mod:`fairseq_doc.evaluation.progress`.
        tokens: score whole windows from the beginning until they hold as many targets; None: all.
        give_up: called after each window with the targets scored so far and the least of the NLLs;
            whether to stop there.

    Raises:
        FairseqDocError: as :func:`check_text`; a score that is not finite.
    """
    check_text(ensemble, split, settings[0], columns)
    steps = settings[0].window_length(ensemble) or max(1, ensemble.task.cfg.eval_window // columns)
    windows = windows_of(ensemble, split, columns, steps)
    if tokens is not None:
        windows = Part(windows, 0, math.ceil(tokens / (steps * columns)))
    nll, scored = torch.zeros(len(settings), dtype=torch.float64), 0
    with scorer(ensemble, *settings) as one:
        for window in progress(windows, f"eval-lm {split}"):
            source = window["net_input"]["src_tokens"].to(ensemble.device)
            target = window["target"].to(ensemble.device)
            log_probs = one.log_probs(source, target, window["net_input"]["window"])
            nll -= log_probs.sum((1, 2)).cpu()
            scored += target.numel()
            if give_up is not None and give_up(scored, nll.min().item()):
                break
    left_out = len(ensemble.split(split)) - 1 - scored
    return [Evaluation(total, scored, left_out) for total in nll.tolist()]
