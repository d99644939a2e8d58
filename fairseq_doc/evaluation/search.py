"""Which temperature, which cache, which learning of dynamic evaluation is best on a split.

Temperatures and points of a cache are all tried in one pass over the split. Each pair of dynamic
evaluation needs a pass of its own, and a pair that falls behind is given up.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import cache, dynamic
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate_each
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.scorer import ScorerSettings
from fairseq_doc.modules.mixture import NotFiniteError

# Melis et al. (2018) search a factor of the logits, 1 / T, from 1.06 down to .8 in steps of .02.
TEMPERATURES = tuple(1 / (factor / 100) for factor in range(106, 78, -2))
# A pair is given up where its perplexity, after this share of the tokens or more, is so many times
# that of the best pair at the same place.
TRIED_SHARE, LOST = 0.2, 1.03


Candidates = dict[str, ScorerSettings]  # by their names


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        settings: with the best setting.
        best: its evaluation.
        tried: {name of a setting: its evaluation}.
        given_up: {name of a setting that fell behind: the tokens that were scored with it}.
        at_ends: {part of the best setting: "smallest" or "largest"} of all that were tried.
    """

    settings: ScorerSettings
    best: Evaluation
    tried: dict[str, Evaluation]
    given_up: dict[str, int] = field(default_factory=dict)
    at_ends: dict[str, str] = field(default_factory=dict)


def temperatures(settings: ScorerSettings) -> Candidates:
    """The settings at each of ``TEMPERATURES``."""
    return {f"{t:.4f}": replace(settings, temperature=t) for t in TEMPERATURES}


def cache_points(settings: ScorerSettings) -> Candidates:
    """The settings with each point of ``cache.GRIDS``."""
    assert settings.cache is not None
    return {
        f"theta {theta:g}, lambda {share:g}": replace(
            settings, cache=replace(settings.cache, theta=theta, share=share)
        )
        for theta, share in cache.GRIDS[settings.cache.similarity]
    }


def dynamic_pairs(settings: ScorerSettings) -> Candidates:
    """The settings with each pair of ``dynamic.grid``."""
    assert settings.dynamic is not None
    return {
        f"rate {rate:g}, decay {decay:g}": replace(
            settings, dynamic=replace(settings.dynamic, rate=rate, decay=decay)
        )
        for rate, decay in dynamic.grid(settings.dynamic.segment)
    }


def search_in_one_pass(
    ensemble: Ensemble,
    split: str,
    candidates: Candidates,
    columns: int = 1,
    progress: Progress = no_progress,
) -> Search:
    """The best of temperatures or of points of a cache; arguments as of
    :func:`fairseq_doc.evaluation.perplexity.evaluate_each`."""
    settings = list(candidates.values())
    evaluations = evaluate_each(ensemble, split, settings, columns, progress)
    tried = dict(zip(candidates, evaluations, strict=True))
    best = min(tried, key=lambda name: tried[name].nll)
    return Search(candidates[best], tried[best], tried, at_ends=ends(candidates, best))


def search_dynamic(
    ensemble: Ensemble,
    split: str,
    settings: ScorerSettings,
    tokens: int,
    progress: Progress = no_progress,
    remark: Callable[[str], None] = lambda text: None,
) -> Search:
    """The best of :func:`dynamic_pairs` on the first tokens of a split.

    Args:
        ensemble, split, settings, progress: as of
            :func:`fairseq_doc.evaluation.perplexity.evaluate_each`.
        tokens: how many.
        remark: called with a line after each pair.

    Raises:
        FairseqDocError: no pair gave finite scores.
    """
    candidates = dynamic_pairs(settings)
    start = time.perf_counter()
    tried: dict[str, Evaluation] = {}
    given_up: dict[str, int] = {}
    best, lowest = "", math.inf
    best_nlls: dict[int, float] = {}  # {tokens scored: NLL} of the best pair
    for number, (name, pair) in enumerate(candidates.items(), start=1):
        nlls: dict[int, float] = {}

        def falls_behind(scored: int, nll: float, own=nlls, of_best=best_nlls) -> bool:
            own[scored] = nll
            behind = (nll - of_best.get(scored, math.inf)) / scored
            return scored >= TRIED_SHARE * tokens and behind > math.log(LOST)

        try:
            (evaluation,) = evaluate_each(
                ensemble, split, [pair], progress=progress, tokens=tokens, give_up=falls_behind
            )
            lost = falls_behind(evaluation.tokens, evaluation.nll)
        except NotFiniteError:  # the weights ran away
            evaluation, lost = Evaluation(math.inf, tokens), False
        if lost:
            given_up[name] = evaluation.tokens
        else:
            tried[name] = evaluation
            if evaluation.nll < lowest:
                best, lowest, best_nlls = name, evaluation.nll, nlls
        left = (time.perf_counter() - start) / number * (len(candidates) - number)
        ending = f" after {evaluation.tokens:,} tokens, given up" if lost else ""
        remark(
            f"pair {number} of {len(candidates)}: {name}: perplexity "
            f"{perplexity_text(evaluation.perplexity)}{ending}; about {left / 60:.0f} min left"
        )
    if not best:
        raise FairseqDocError(
            "no pair of --dynamic-search gave finite scores: expected statistics of more batches, or "
            "a larger --dynamic-epsilon; or has the training diverged?"
        )
    return Search(candidates[best], tried[best], tried, given_up, ends(candidates, best))


def ends(candidates: Candidates, best: str) -> dict[str, str]:
    """Which numbers of the best setting are the smallest or the largest of those tried."""
    at_ends = {}
    varied = [_numbers(settings) for settings in candidates.values()]
    for name, value in _numbers(candidates[best]).items():
        smallest, largest = (choose(numbers[name] for numbers in varied) for choose in (min, max))
        if smallest < largest and value in (smallest, largest):
            at_ends[name] = "smallest" if value == smallest else "largest"
    return at_ends


def _numbers(settings: ScorerSettings) -> dict[str, float]:
    numbers = {"temperature": settings.temperature}
    if settings.cache:
        numbers |= {"theta": settings.cache.theta, "lambda": settings.cache.share}
    if settings.dynamic:
        assert settings.dynamic.rate is not None and settings.dynamic.decay is not None
        numbers |= {"rate": settings.dynamic.rate, "decay": settings.dynamic.decay}
    return numbers


def perplexity_text(perplexity: float) -> str:
    """A perplexity as people read it, however large."""
    return f"{perplexity:.2f}" if perplexity < 1e6 else f"{perplexity:.3g}"
