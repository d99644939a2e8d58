"""Which temperature, which cache, which learning of dynamic evaluation is best on a split.

Temperatures and points of a cache are all tried in one pass over the split. Each pair of dynamic evaluation
needs a pass of its own, and a pair that falls behind is given up.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import cache, dynamic, temperature
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate_at
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.stream_scorer import StreamSettings
from fairseq_doc.modules.mixture import NotFiniteError

# A pair is given up where its perplexity, after this share of the tokens or more, is so many times that of the
# best pair at the same place.
TRIED_SHARE, LOST = 0.2, 1.03

Points = dict[str, tuple[float, ...]]  # names of settings -> their numbers


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        settings: with the best setting.
        best: its evaluation.
        tried: name of a setting -> its evaluation.
        given_up: name of a setting that fell behind -> the tokens that were scored with it.
        at_ends: part of the best setting -> "smallest" or "largest", where it is that of all that were
            tried.
    """

    settings: StreamSettings
    best: Evaluation
    tried: dict[str, Evaluation]
    given_up: dict[str, int] = field(default_factory=dict)
    at_ends: dict[str, str] = field(default_factory=dict)


def search_temperature(
    ensemble: Ensemble,
    split: str,
    settings: StreamSettings,
    columns: int = 1,
    progress: Progress = no_progress,
) -> Search:
    """The best temperature of ``temperature.GRID``; arguments as of
    :func:`fairseq_doc.evaluation.perplexity.evaluate_at`."""
    points: Points = {f"{t:.4f}": (t,) for t in temperature.GRID}

    def at(chosen):
        return replace(settings, temperatures=[t for (t,) in chosen])

    found = evaluate_at(ensemble, split, at(points.values()), columns, progress)
    return _of_one_pass(["temperature"], points, found, at)


def search_cache(
    ensemble: Ensemble,
    split: str,
    settings: StreamSettings,
    columns: int = 1,
    progress: Progress = no_progress,
) -> Search:
    """The best point of ``cache.GRIDS`` for a cache; arguments as of
    :func:`fairseq_doc.evaluation.perplexity.evaluate_at`."""
    assert settings.cache is not None
    grid = cache.GRIDS[settings.cache.similarity]
    points: Points = {f"theta {t:g}, lambda {s:g}": (t, s) for t, s in grid}

    def at(chosen):
        assert settings.cache is not None
        return replace(settings, cache=replace(settings.cache, points=list(chosen)))

    found = evaluate_at(ensemble, split, at(points.values()), columns, progress)
    return _of_one_pass(["theta", "lambda"], points, found, at)


def _of_one_pass(
    names: Sequence[str],
    points: Points,
    found: Sequence[Evaluation],
    at: Callable[[Sequence[tuple[float, ...]]], StreamSettings],
) -> Search:
    """The best of points that were tried together; ``at(points)`` gives the settings."""
    tried = dict(zip(points, found, strict=True))
    best = min(tried, key=lambda name: tried[name].nll)
    point = points[best]
    at_ends = ends(names, list(points.values()), point)
    return Search(at([point]), tried[best], tried, at_ends=at_ends)


def search_dynamic(
    ensemble: Ensemble,
    split: str,
    settings: StreamSettings,
    tokens: int,
    progress: Progress = no_progress,
    remark: Callable[[str], None] = lambda text: None,
) -> Search:
    """The best pair of ``dynamic.grid`` on the first tokens of a split.

    Args:
        ensemble, split, settings, progress: as of :func:`fairseq_doc.evaluation.perplexity.evaluate_at`.
        tokens: how many.
        remark: called with a line after each pair.

    Raises:
        FairseqDocError: no pair gave finite scores.
    """
    assert settings.dynamic is not None
    grid = dynamic.grid(settings.dynamic.segment)
    race, start = _Race(tokens), time.perf_counter()
    tried: dict[str, Evaluation] = {}
    given_up: dict[str, int] = {}
    best: tuple[Evaluation, tuple[float, float]] | None = None
    for number, (rate, decay) in enumerate(grid, start=1):
        learning = replace(settings.dynamic, rate=rate, decay=decay)
        of_pair, lost = replace(settings, dynamic=learning), race.new_pair()
        name = f"rate {rate:g}, decay {decay:g}"
        try:
            (found,) = evaluate_at(
                ensemble, split, of_pair, progress=progress, tokens=tokens, give_up=lost
            )
        except NotFiniteError:  # the weights ran away
            found = Evaluation(math.inf, tokens)
        if race.lost:
            given_up[name] = found.tokens
        else:
            tried[name] = found
            if found.nll < (best[0].nll if best else math.inf):
                best = found, (rate, decay)
                race.lead()
        left = (time.perf_counter() - start) / number * (len(grid) - number)
        ending = f" after {found.tokens:,} tokens, given up" if race.lost else ""
        remark(
            f"pair {number} of {len(grid)}: {name}: perplexity {shown(found.perplexity)}{ending}; "
            f"about {left / 60:.0f} min left"
        )
    if best is None:
        raise FairseqDocError(
            "no pair of --dynamic-search gave finite scores: expected statistics of more batches, or a "
            "larger --dynamic-epsilon; or has the training diverged?"
        )
    evaluation, pair = best
    found_settings = replace(
        settings, dynamic=replace(settings.dynamic, rate=pair[0], decay=pair[1])
    )
    return Search(found_settings, evaluation, tried, given_up, ends(["rate", "decay"], grid, pair))


class _Race:
    """Which pairs fall behind.

    Attributes:
        lost: whether the current pair did.
    """

    def __init__(self, tokens: int) -> None:
        self._first = TRIED_SHARE * tokens
        self._best: dict[int, float] = {}  # tokens scored -> NLL of the best pair
        self._own: dict[int, float] = {}  # of the current one
        self.lost = False

    def new_pair(self) -> Callable[[int, float], bool]:
        """Begin with a pair; what ``evaluate_at`` calls as ``give_up``."""
        self._own, self.lost = {}, False
        return self._take

    def _take(self, scored: int, nll: float) -> bool:
        self._own[scored] = nll
        behind = (nll - self._best.get(scored, math.inf)) / scored
        self.lost = scored >= self._first and behind > math.log(LOST)
        return self.lost

    def lead(self) -> None:
        """The current pair is the best so far."""
        self._best = self._own


def ends(
    names: Sequence[str], tried: Sequence[tuple[float, ...]], best: tuple[float, ...]
) -> dict[str, str]:
    """Which parts of the best setting are the smallest or the largest that a search tried."""
    found = {}
    for name, values, value in zip(names, zip(*tried, strict=True), best, strict=True):
        if value in (min(values), max(values)):
            found[name] = "smallest" if value == min(values) else "largest"
    return found


def shown(perplexity: float) -> str:
    """A perplexity as people read it, however large."""
    return f"{perplexity:.2f}" if perplexity < 1e6 else f"{perplexity:.3g}"
