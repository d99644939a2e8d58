"""Perplexity of a split, with the LSTM state carried over the whole text; searches for the best
settings.

All temperatures, or all pairs (theta, lambda) of a cache, are tried in one pass over the split.
Each pair (rate, decay) of dynamic evaluation needs a pass of its own, which ends early if the pair
falls behind the best one so far.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch

from fairseq_doc.adaptation import cache, dynamic
from fairseq_doc.data.bptt_stream import columns_of
from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import track
from fairseq_doc.evaluation.scorer import USUAL, ScorerSettings, scorer
from fairseq_doc.modules.mixture import NotFiniteError
from fairseq_doc.preparation.raw_counts import RawCounts

# Melis et al. (2018) search a factor of the logits, 1 / T, from 1.06 down to 0.8 in steps of 0.02.
TEMPERATURES = tuple(1 / (factor / 100) for factor in range(106, 78, -2))
# A pair is given up if, after TRIED_SHARE of the tokens or later, its perplexity is more than LOST
# times that of the best pair so far after as many tokens.
TRIED_SHARE, LOST = 0.2, 1.03
Point: TypeAlias = dict[str, float]  # {name of a setting: value}


@dataclass(frozen=True)
class Evaluation:
    """The negative log likelihood of a text."""

    nll: float  # the sum of -log P over the targets, in nats
    tokens: int  # number of targets
    left_out: int = 0  # tokens of the text that are not targets, not counting its first

    @property
    def perplexity(self) -> float:
        """e^(nll / tokens)."""
        return _exp(self.nll / self.tokens)

    @property
    def bits(self) -> float:
        """Mean NLL per token in bits, as fairseq logs losses; for bytes, bits per byte."""
        return self.nll / self.tokens / math.log(2)


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < math.log(sys.float_info.max) else math.inf


def as_written(nats: float, counts: RawCounts) -> dict[str, float]:
    """Figures that do not depend on the tokenisation, from nll = ``nats`` times the number of all
    tokens (a token that was not scored counts as an average one):

    - ``word_perplexity``, e^(nll / (words + lines)): an end mark per line is a word too;
    - ``bits_per_character``, nll / (characters ln 2), and ``bits_per_byte``, nll / (bytes ln 2),
      line ends included.

    Args:
        nats: mean NLL of the tokens that were scored.
    """
    bits = nats * counts.tokens / math.log(2)
    return {
        "word_perplexity": _exp(nats * (counts.tokens / (counts.words + counts.lines))),
        "bits_per_character": bits / counts.characters,
        "bits_per_byte": bits / counts.bytes,
    }


def evaluate(
    ensemble: Ensemble, split: str, columns: int = 1, settings: ScorerSettings = USUAL
) -> Evaluation:
    """:func:`evaluate_each` with a single setting."""
    return evaluate_each(ensemble, split, [settings], columns)[0]


def check_text(
    ensemble: Ensemble, split: str, settings: ScorerSettings = USUAL, columns: int = 1
) -> None:
    """Load a split. Raises ``FairseqDocError`` for one that is missing or too short, and for dynamic
    evaluation of several columns."""
    if settings.dynamic:  # which learns from one text in its order
        require(columns == 1, "columns", "1 for dynamic evaluation", columns)
    columns_of(ensemble.split(split), columns)


def evaluate_each(
    ensemble: Ensemble,
    split: str,
    settings: Sequence[ScorerSettings],
    columns: int = 1,
    tokens: int | None = None,
    give_up: Callable[[int, float], bool] | None = None,
) -> list[Evaluation]:
    """Score a split with each of several settings, in one pass with a carried state. Errors as of
    :func:`check_text`, and for a score that is not finite.

    Args:
        settings: see :func:`fairseq_doc.evaluation.scorer.scorer`.
        columns: 1 for final figures; several cut the text and leave out its remainder.
        tokens: score whole windows until they hold at least this many targets; None: all.
        give_up: called after each window with the number of targets scored so far and the smallest
            NLL among the settings; True ends the pass.
    """
    check_text(ensemble, split, settings[0], columns)
    steps = settings[0].window_length(ensemble) or max(1, ensemble.task.cfg.eval_window // columns)
    windows = windows_of(ensemble, split, columns, steps)
    if tokens is not None:
        windows.take(math.ceil(tokens / (steps * columns)))
    nll, scored = torch.zeros(len(settings), dtype=torch.float64), 0
    with scorer(ensemble, *settings) as one:
        for window in track(windows, f"eval-lm {split}"):
            source, target = window["net_input"]["src_tokens"], window["target"]
            nll -= one.log_probs(source, target, window["net_input"]["window"]).sum((1, 2))
            scored += target.numel()
            if give_up is not None and give_up(scored, nll.min().item()):
                break
    left_out = len(ensemble.split(split)) - 1 - scored
    return [Evaluation(total, scored, left_out) for total in nll.tolist()]


# ---- search ----


@dataclass(frozen=True)
class Search:
    """The result of a search. The keys of ``tried`` and ``given_up`` are from :func:`name_of`."""

    settings: ScorerSettings  # with the best values
    best: Evaluation | None = None  # of these settings; None: nothing was searched
    tried: dict[str, Evaluation] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)  # {name: tokens scored until then}
    # {setting: "smallest" or "largest"}, where the best value is an end of those tried
    at_ends: dict[str, str] = field(default_factory=dict)


def points_of(settings: ScorerSettings, part: str) -> list[Point]:
    """What a search tries; ``part`` is ``temperature``, ``cache`` or ``dynamic``."""
    if settings.cache and part == "cache":
        grid = cache.GRIDS[settings.cache.similarity]
        return [{"theta": theta, "lambda": share} for theta, share in grid]
    if settings.dynamic and part == "dynamic":
        pairs = dynamic.grid(settings.dynamic.segment)
        return [{"rate": rate, "decay": decay} for rate, decay in pairs]
    return [{"temperature": t} for t in TEMPERATURES]


def at_point(settings: ScorerSettings, part: str, point: Point) -> ScorerSettings:
    """The settings with the values of a point."""
    if part == "temperature":
        return replace(settings, temperature=point[part])
    values = {"share" if name == "lambda" else name: value for name, value in point.items()}
    return replace(settings, **{part: replace(getattr(settings, part), **values)})


def name_of(point: Point) -> str:
    """A point as text, such as ``theta 1, lambda 0.1``; a temperature is the number alone."""
    if "temperature" in point:
        return f"{point['temperature']:.4f}"
    return ", ".join(f"{name} {value:g}" for name, value in point.items())


def search(
    ensemble: Ensemble,
    split: str,
    settings: ScorerSettings,
    part: str,
    columns: int = 1,
    tokens: int = 30_000,
    remark: Callable[[str], None] = lambda text: None,
) -> Search:
    """The best settings among :func:`points_of` a ``part``. Points of ``dynamic`` are tried on the
    first ``tokens`` of the split, and ``remark`` gets a line after each; the others in one pass over
    the whole split. Raises ``FairseqDocError`` if no point of ``dynamic`` gave finite scores."""
    points = {name_of(point): point for point in points_of(settings, part)}
    candidates = {name: at_point(settings, part, point) for name, point in points.items()}
    given_up: dict[str, int] = {}
    if part == "dynamic":
        tried, given_up = _one_by_one(ensemble, split, candidates, tokens, remark)
    else:
        evaluations = evaluate_each(ensemble, split, list(candidates.values()), columns)
        tried = dict(zip(candidates, evaluations, strict=True))
    best = min(tried, key=lambda name: tried[name].nll)
    at_ends = ends(list(points.values()), points[best])
    return Search(candidates[best], tried[best], tried, given_up, at_ends)


def _one_by_one(
    ensemble: Ensemble,
    split: str,
    candidates: dict[str, ScorerSettings],
    tokens: int,
    remark: Callable[[str], None],
) -> tuple[dict[str, Evaluation], dict[str, int]]:
    """``tried`` and ``given_up`` of a :class:`Search`."""
    start = time.perf_counter()
    tried: dict[str, Evaluation] = {}
    given_up: dict[str, int] = {}
    lowest, best_nlls = math.inf, dict[int, float]()  # {tokens scored: NLL} of the best pair
    for number, (name, settings) in enumerate(candidates.items(), start=1):
        nlls: dict[int, float] = {}
        falls_behind = partial(_falls_behind, nlls, best_nlls, TRIED_SHARE * tokens)
        try:
            (evaluation,) = evaluate_each(
                ensemble, split, [settings], tokens=tokens, give_up=falls_behind
            )
            lost = falls_behind(evaluation.tokens, evaluation.nll)
        except NotFiniteError:  # the weights diverged
            evaluation, lost = Evaluation(math.inf, tokens), False
        if lost:
            given_up[name] = evaluation.tokens
        else:
            tried[name] = evaluation
            if evaluation.nll < lowest:
                lowest, best_nlls = evaluation.nll, nlls
        left = (time.perf_counter() - start) / number * (len(candidates) - number)
        ending = f" after {evaluation.tokens:,} tokens, given up" if lost else ""
        remark(
            f"pair {number} of {len(candidates)}: {name}: perplexity "
            f"{perplexity_text(evaluation.perplexity)}{ending}; about {left / 60:.0f} min left"
        )
    if lowest == math.inf:
        raise FairseqDocError(
            "no pair of rate and decay gave finite scores: expected gradient statistics of more "
            "batches, or a larger dynamic.epsilon; or has the training diverged?",
            "dynamic.epsilon",
        )
    return tried, given_up


def _falls_behind(
    nlls: dict[int, float], best_nlls: dict[int, float], first: float, scored: int, nll: float
) -> bool:
    """Record the NLL, and return whether to give the pair up, at the earliest after ``first``
    tokens."""
    nlls[scored] = nll
    behind = (nll - best_nlls.get(scored, math.inf)) / scored
    return scored >= first and behind > math.log(LOST)


def ends(points: Sequence[Point], best: Point) -> dict[str, str]:
    """{name: ``smallest`` or ``largest``} for the best point's values at an end of their grid."""
    at_ends = {}
    for name, value in best.items():
        tried = [point[name] for point in points]
        if min(tried) < max(tried) and value in (min(tried), max(tried)):
            at_ends[name] = "smallest" if value == min(tried) else "largest"
    return at_ends


def perplexity_text(perplexity: float) -> str:
    """A perplexity with two decimals, or from a million on with three digits."""
    return f"{perplexity:.2f}" if perplexity < 1e6 else f"{perplexity:.3g}"
