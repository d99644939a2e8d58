"""Scores of a text that models read window by window, with all that evaluation may add to a model:
temperatures, samples of dropout, a cache, dynamic evaluation. Each model of an ensemble has its own, and
their probabilities are averaged at the end.

Axes: B streams, T time, V vocabulary, K samples, C mixture parameters, R temperatures, S = R times the
cache's points.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import CacheSettings, StreamCache, mixed
from fairseq_doc.evaluation.dynamic import Adaptation, DynamicSettings
from fairseq_doc.evaluation.ensemble import Ensemble, average_log_probs
from fairseq_doc.evaluation.monte_carlo import BLOCK_BYTES, Forward, mean_log_probs, sampled
from fairseq_doc.evaluation.temperature import check_temperatures
from fairseq_doc.modules.mixture import check_finite

SAMPLES_ALONE = (
    "--samples draws dropout masks, and a cache or dynamic evaluation reads a model without them: "
    "expected --samples alone; got it with one of them"
)


@dataclass(frozen=True)
class StreamSettings:
    """What evaluation adds to the models.

    Attributes:
        temperatures: R positive numbers; a model's P becomes P^(1/T), renormalised, before all else.
        samples, average: see :mod:`fairseq_doc.evaluation.monte_carlo`; 0: none, without dropout.
        cache: see :mod:`fairseq_doc.evaluation.cache`; None: none.
        dynamic: see :mod:`fairseq_doc.evaluation.dynamic`; None: the weights do not change.
        statistics: for it, of each model, name -> M.

    Raises:
        FairseqDocError: settings that exclude one another.
    """

    temperatures: Sequence[float] = (1.0,)
    samples: int = 0
    average: str = "arithmetic"
    cache: CacheSettings | None = None
    dynamic: DynamicSettings | None = None
    statistics: Sequence[dict[str, torch.Tensor]] = ()

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if self.samples and (self.cache or self.dynamic):
            raise FairseqDocError(SAMPLES_ALONE)

    @property
    def points(self) -> int:
        """S, how many scores a token gets."""
        return len(self.temperatures) * (len(self.cache.points) if self.cache else 1)

    def window_length(self, ensemble: Ensemble) -> int | None:
        """How many steps a window must have; None: any number."""
        if self.dynamic:
            return self.dynamic.segment
        return ensemble.task.cfg.bptt if self.samples else None


USUAL = StreamSettings()


@dataclass
class _Member:
    """One model of the ensemble."""

    model: Any
    settings: StreamSettings
    forward: Forward
    adaptation: Adaptation | None
    cache: StreamCache | None = field(init=False)

    def __post_init__(self) -> None:
        self.cache = StreamCache(self.settings.cache) if self.settings.cache else None

    def log_probs(self, source, target, window):
        """log P of the targets (B, T), (S, B, T), float64; then the model learns from them."""
        output = self._run(source, window)  # (K, B, T, C), and the rest
        params = output[0].detach().flatten(1, 2)  # (K, B T, C)
        settings = self.settings
        found = mean_log_probs(
            self.model, params, target.flatten(), settings.temperatures, settings.average
        ).unflatten(1, target.shape)  # (R, B, T)
        if self.cache is not None:
            found = self.cache.mix(found, output[1]["undropped"].detach().transpose(0, 1), target)
        self._learn(output, target)
        return found

    def distributions(self, source, target, window, steps):
        """log P of every word, (B, t, V), for ``steps`` steps after ``steps`` steps; then the model
        learns."""
        output = self._run(source, window)
        params = output[0].detach()[0]  # (B, T, C)
        hidden = output[1]["undropped"].detach().transpose(0, 1)  # (B, T, D)
        parts = zip(*(x.split(steps, 1) for x in (params, hidden, target)), strict=True)
        for some, h, words in parts:
            log_probs = self.model.decoder.output.log_probs(some)  # (B, t, V)
            if self.cache is not None:
                attention = self.cache.attend(h, words)
                ((theta, share),) = self.cache.settings.points
                of_cache = attention.log_probs(log_probs.size(2), theta)
                empty = attention.empty().unsqueeze(1)
                log_probs = mixed(log_probs.double(), of_cache, share, empty)
            yield log_probs
        self._learn(output, target)

    def _run(self, source, window):
        with torch.set_grad_enabled(self.adaptation is not None):
            return self.forward(source, window)

    def _learn(self, output, target):
        if self.adaptation is not None:
            params, extra = output
            with torch.enable_grad():
                only = params[0]  # (1, T, C)
            self.adaptation.learn((only, extra), target)


class StreamScorer:
    """Made by :func:`stream_scorer`.

    Attributes:
        window_length: how many steps a window must have; None: any number.
    """

    def __init__(self, members: Sequence[_Member], window_length: int | None) -> None:
        self._members, self.window_length = members, window_length
        self._question = "has the training diverged?"
        if any(member.adaptation for member in members):
            self._question = "has the model diverged while it learned? Try a smaller --dynamic-rate"

    def log_probs(self, source: torch.Tensor, target: torch.Tensor, window: int) -> torch.Tensor:
        """log P of the targets, natural logarithm.

        Args:
            source, target: (B, T) word indices.
            window: 0 starts from a state of zeros, k > 0 goes on from window k - 1 of the same B.

        Returns:
            (S, B, T), float64: each temperature with every point of the cache.

        Raises:
            FairseqDocError: a score that is not finite.
        """
        found = average_log_probs([m.log_probs(source, target, window) for m in self._members])
        check_finite(found, self._question)
        return found

    def with_entropies(
        self, source: torch.Tensor, target: torch.Tensor, window: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """log P of the targets and the entropy of P, in nats, each (B, T), float64; arguments and errors
        as in :meth:`log_probs`. One temperature, one, and one point of the cache."""
        vocabulary = len(self._members[0].model.decoder.output.weight)
        steps = max(1, BLOCK_BYTES // (8 * vocabulary * len(target)))
        of_models = [m.distributions(source, target, window, steps) for m in self._members]
        scores, entropies = [], []
        # strict runs every generator to its end, where its model learns.
        for parts, words in zip(zip(*of_models, strict=True), target.split(steps, 1), strict=True):
            log_probs = average_log_probs(parts)  # (B, t, V)
            chosen = log_probs.gather(2, words.unsqueeze(2)).squeeze(2)
            check_finite(chosen, self._question)
            scores.append(chosen.double())
            entropies.append(torch.special.entr(log_probs.exp()).sum(2, dtype=torch.float64))
        return torch.cat(scores, dim=1), torch.cat(entropies, dim=1)


@contextmanager
def stream_scorer(ensemble: Ensemble, settings: StreamSettings) -> Iterator[StreamScorer]:
    """A scorer for one text, from its beginning. Until the end of the context the models drop or learn as
    the settings say."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        members = []
        for number, model in enumerate(ensemble.models):
            adaptation = None
            if settings.dynamic is not None:
                adaptation = Adaptation(model, settings.statistics[number], settings.dynamic)
                stack.enter_context(adaptation.learning())
            forward = stack.enter_context(sampled(model, settings.samples))
            members.append(_Member(model, settings, forward, adaptation))
        yield StreamScorer(members, settings.window_length(ensemble))
