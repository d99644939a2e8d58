"""Scores text window by window: log P of the targets, optionally with a temperature, Monte-Carlo
dropout, a cache or dynamic evaluation. Each model of an ensemble has its own cache and weights; the
models' probabilities are averaged last.

Axes: B streams, T time, V vocabulary, K samples, C mixture parameters, S settings in one pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_doc.adaptation.cache import CacheSettings, StreamCache
from fairseq_doc.adaptation.dynamic import Adaptation, DynamicSettings
from fairseq_doc.adaptation.monte_carlo import AVERAGES, BLOCK_BYTES, mean_log_probs, sampled
from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.evaluation.ensemble import Ensemble, average_log_probs
from fairseq_doc.modules.mixture import at_temperature, check_finite
from fairseq_doc.options import REQUIRED, check_ranges, option


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """Settings of Monte-Carlo evaluation."""

    samples: int = option(
        "Monte-Carlo evaluation: average K passes with dropout as in training, with new masks "
        "every N steps, where N is the --bptt of the (first) model's training (default: one pass "
        "without dropout)",
        REQUIRED,
        metavar="K",
        least=1,
    )
    average: str = option(
        "which mean of the samples' probabilities to take; the geometric mean is, for one softmax, "
        "the mean of the logits",
        AVERAGES[0],
        choices=AVERAGES,
    )
    dropout_scale: float = option(
        "factor of all dropout rates of the samples", 1.0, metavar="F", least=0
    )
    seed: int = option("random seed of the dropout masks", 1)

    def __post_init__(self) -> None:
        check_ranges(SampleSettings, self)


@dataclass(frozen=True, kw_only=True)
class ScorerSettings:
    """Optional additions to evaluation; None: nothing. T first turns each model's P into P^(1/T),
    renormalised. Raises ``FairseqDocError`` for a T outside [0.01, 100], where P is uniform or
    one-hot in float64, and for samples together with a cache or dynamic evaluation, which need a
    pass without dropout."""

    temperature: float = 1.0
    samples: SampleSettings | None = None
    cache: CacheSettings | None = None
    dynamic: DynamicSettings | None = None
    statistics: Sequence[dict[str, torch.Tensor]] = ()  # {parameter: M} of each model

    def __post_init__(self) -> None:
        in_range = 0.01 <= self.temperature <= 100
        require(in_range, "temperature", "from 0.01 to 100", self.temperature)
        if self.samples and (self.cache or self.dynamic):
            raise FairseqDocError(
                "samples of dropout cannot be combined with a cache or dynamic evaluation",
                "samples",
            )

    def window_length(self, ensemble: Ensemble) -> int | None:
        """How many steps a window must have; None: any number."""
        if self.dynamic:
            return self.dynamic.segment
        return ensemble.task.cfg.bptt if self.samples else None


USUAL = ScorerSettings()


class _Member:
    """One model of the ensemble, set up until ``stack`` is closed."""

    def __init__(
        self, model: Any, number: int, settings: Sequence[ScorerSettings], stack: ExitStack
    ) -> None:
        first, caches = settings[0], [one.cache for one in settings if one.cache]
        self.model, self.adaptation = model, None
        if first.dynamic is not None:
            self.adaptation = Adaptation(model, first.statistics[number], first.dynamic)
            stack.enter_context(self.adaptation.learning())
        self._average = first.samples.average if first.samples else AVERAGES[0]
        samples = first.samples.samples if first.samples else 0
        self._forward = stack.enter_context(sampled(model, samples))
        self._temperatures = [one.temperature for one in settings]
        self._cache = StreamCache(caches) if caches else None

    def log_probs(self, source, target, window, at):
        """log P of the targets, (S, *target.shape), float64; then the model learns from them."""
        output = self.read(source, window)
        params = output[0].detach()  # (K, B, T, C)
        params = params.flatten(1, 2) if at is None else params[:, at[0], at[1]]  # (K, N, C)
        distinct = list(dict.fromkeys(self._temperatures))
        rows = mean_log_probs(self.model, params, target.flatten(), distinct, self._average)
        if len(self._temperatures) > 1:
            rows = rows[[distinct.index(t) for t in self._temperatures]]  # (S, N)
        rows = rows.unflatten(1, target.shape)
        if self._cache is not None:
            rows = self._cache.mix(rows, _hidden(output), target)
        if self.adaptation is not None:
            self.adaptation.learn(output, target)
        return rows

    def distributions(self, source, target, window, steps):
        """log P of every word, (B, t, V), in pieces of ``steps`` steps; then the model learns."""
        output = self.read(source, window)
        params = output[0].detach()[0]  # (B, T, C)
        parts = (x.split(steps, 1) for x in (params, _hidden(output), target))
        for some, hidden, words in zip(*parts, strict=True):
            log_probs = self.model.decoder.output.log_probs(some)  # (B, t, V)
            if self._cache is not None:
                log_probs = self._cache.mix_all(log_probs, hidden, words)
            yield log_probs
        if self.adaptation is not None:
            self.adaptation.learn(output, target)

    def read(self, source, window):
        """The mixture's parameters (K, B, T, C), and the model's extra."""
        with torch.set_grad_enabled(self.adaptation is not None):
            return self._forward(source, window)


def _hidden(output):
    return output[1]["undropped"].detach().transpose(0, 1)  # (B, T, D)


class Scorer:
    """The models while they read one text; made by :func:`scorer`."""

    def __init__(self, members: Sequence[_Member], device: torch.device) -> None:
        self._members, self._device = members, device
        self._question: tuple[str, ...] = ("has the training diverged?",)
        if any(member.adaptation for member in members):
            learned = "has the model diverged while it learned? Try a smaller dynamic.rate"
            self._question = learned, "dynamic.rate"

    def log_probs(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        window: int,
        at: tuple[torch.Tensor, ...] | None = None,
        streams: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """log P of the targets, natural logarithm, without any (B, T, V) tensor: (S,
        *target.shape), float64, on the CPU. Raises ``FairseqDocError`` unless all are finite.

        Args:
            source: (B, T) word indices.
            target: (B, T) word indices; with ``at`` (n,).
            window: 0 starts from a state of zeros, k > 0 goes on from window k - 1 of the same B
                streams.
            at: indices (n,) of the streams and (n,) of the steps of ``source`` that predict the
                targets, without a cache or dynamic evaluation; None: all, one target each.
            streams: (B,) the streams of window k - 1 that these go on from; None: the same.
        """
        source, target = source.to(self._device), target.to(self._device)
        if streams is not None:
            for member in self._members:
                member.model.decoder.reorder_evaluation_state(streams.to(self._device))
        of_models = [m.log_probs(source, target, window, at) for m in self._members]
        log_probs = average_log_probs(of_models)
        check_finite(log_probs, *self._question)
        return log_probs.cpu()

    def with_entropies(
        self, source: torch.Tensor, target: torch.Tensor, window: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """log P of the targets and the entropy of P, in nats, each (B, T), float64; as
        :meth:`log_probs`, but at temperature 1, with S = 1."""
        source, target = source.to(self._device), target.to(self._device)
        vocabulary = len(self._members[0].model.decoder.output.weight)
        steps = max(1, BLOCK_BYTES // (8 * vocabulary * len(target)))
        of_models = [m.distributions(source, target, window, steps) for m in self._members]
        scores, entropies = [], []
        # strict runs every generator to its end, where its model learns.
        for parts, words in zip(zip(*of_models, strict=True), target.split(steps, 1), strict=True):
            log_probs = average_log_probs(parts)  # (B, t, V)
            scores.append(log_probs.gather(2, words.unsqueeze(2)).squeeze(2).double())
            check_finite(scores[-1], *self._question)
            entropies.append(torch.special.entr(log_probs.exp()).sum(2, dtype=torch.float64))
        return torch.cat(scores, dim=1).cpu(), torch.cat(entropies, dim=1).cpu()

    def next_log_probs(
        self, source: torch.Tensor, window: int, temperature: float = 1.0
    ) -> torch.Tensor:
        """log P of every word after the last step, (B, V); otherwise as :meth:`log_probs`. The
        temperature applies to each model, before the average."""
        of_models = []
        for member in self._members:
            params = member.read(source, window)[0][0]  # (B, T, C)
            log_probs = member.model.decoder.output.log_probs(params[:, -1:])[:, 0]  # (B, V)
            check_finite(log_probs.amax(-1))
            if temperature != 1.0:
                log_probs = at_temperature(log_probs, 1 / temperature)
            of_models.append(log_probs)
        return average_log_probs(of_models)


@contextmanager
def scorer(ensemble: Ensemble, *settings: ScorerSettings) -> Iterator[Scorer]:
    """A scorer for one text, from its beginning. Within the context the models use dropout or learn
    as the S ``settings`` say. All S are scored in one pass, so they may differ only in the
    temperature and the cache's theta and lambda; none given: ``USUAL``."""
    with torch.no_grad(), ExitStack() as stack:
        members = [
            _Member(model, number, settings or (USUAL,), stack)
            for number, model in enumerate(ensemble.models)
        ]
        yield Scorer(members, ensemble.device)
