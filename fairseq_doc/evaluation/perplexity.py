"""Perplexity of a split, with the LSTM state carried over the whole text."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fairseq_doc.data.bptt_stream import columns_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import CacheSettings
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import Part, Progress, no_progress
from fairseq_doc.evaluation.stream_scorer import USUAL, StreamSettings, stream_scorer


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


def check_columns(columns: int) -> None:
    """Raise ``FairseqDocError`` unless dynamic evaluation can read a text in so many columns."""
    if columns != 1:
        raise FairseqDocError(
            f"--dynamic learns from one text in its order: expected --batch-size 1; got {columns}"
        )


def check_text(
    ensemble: Ensemble, split: str, cache: CacheSettings | None = None, columns: int = 1
) -> None:
    """Load a split.

    Raises:
        FairseqDocError: no such split, one too short, or a cache that its columns cannot fill.
    """
    length = columns_of(ensemble.split(split), columns).size(1)
    if cache and cache.window >= length:
        raise FairseqDocError(
            f"--cache-window {cache.window} is more than a column of split {split!r} holds: expected at "
            f"most {length - 1} of its {length} tokens"
        )


def evaluate_at(
    ensemble: Ensemble,
    split: str,
    settings: StreamSettings = USUAL,
    columns: int = 1,
    progress: Progress = no_progress,
    tokens: int | None = None,
    give_up: Callable[[int, float], bool] | None = None,
) -> list[Evaluation]:
    """Score a split with all that evaluation may add, at several temperatures and points of a cache in
    one pass.

    Args:
        ensemble: the models. What is added is added to each before they are averaged.
        settings: see :class:`fairseq_doc.evaluation.stream_scorer.StreamSettings`.
        split, columns, progress: as in :func:`evaluate`.
        tokens: score whole windows from the beginning until they hold as many targets; None: all.
        give_up: called after each window with the targets scored so far and the least of their S NLLs;
            whether to stop there.

    Returns:
        S evaluations: each temperature with every point of the cache.

    Raises:
        FairseqDocError: several columns with dynamic evaluation, a cache that the columns cannot fill;
            otherwise as :func:`evaluate`.
    """
    if settings.dynamic:
        check_columns(columns)
    check_text(ensemble, split, settings.cache, columns)
    steps = settings.window_length(ensemble) or max(1, ensemble.task.cfg.eval_window // columns)
    windows = windows_of(ensemble, split, columns, steps)
    if tokens is not None:
        windows = Part(windows, 0, math.ceil(tokens / (steps * columns)))
    nll, scored = torch.zeros(settings.points, dtype=torch.float64), 0
    with stream_scorer(ensemble, settings) as scorer:
        for window in progress(windows, f"eval-lm {split}"):
            source = window["net_input"]["src_tokens"].to(ensemble.device)
            target = window["target"].to(ensemble.device)
            log_probs = scorer.log_probs(source, target, window["net_input"]["window"])
            nll -= log_probs.sum((1, 2)).cpu()
            scored += target.numel()
            if give_up is not None and give_up(scored, nll.min().item()):
                break
    left_out = len(ensemble.split(split)) - 1 - scored
    return [Evaluation(total, scored, left_out) for total in nll.tolist()]
