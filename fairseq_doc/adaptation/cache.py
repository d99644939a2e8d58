"""A neural cache: after a state like earlier ones, the words that followed those are likelier.

    p_cache(w) proportional to the sum over i with x_{i+1} = w of exp(theta s(h_t, h_i))
    P          = (1 - lambda) P_model + lambda p_cache

The i are the last ``window`` steps of the stream whose next word was scored already. h is the last
layer's output h^N without dropout; in ``lstm_melis_lm`` it is the sum of the layers' outputs, or
its projection if there is one. s is the dot product (Grave et al., 2017; also the code of Merity et
al., 2018) or the cosine, whose theta does not depend on the norm of h. At a stream's first step the
cache is empty: P = P_model.

Axes: B streams, T time, D width of h, M steps remembered, V vocabulary, S settings in one pass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch

from fairseq_doc.ops.mixture import sum_dtype
from fairseq_doc.options import REQUIRED, check_ranges, option

_SHARES = (0.01, 0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
_THETAS = {
    "dot": (0.2, 0.5, 1.0, 1.4, 2.0, 4.0, 6.0, 10.0, 16.0, 32.0, 64.0, 128.0, 256.0),
    "cosine": (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0),
}
# {similarity: the pairs (theta, lambda) that --cache-search tries}
GRIDS = {name: tuple(product(thetas, _SHARES)) for name, thetas in _THETAS.items()}
SIMILARITIES = tuple(GRIDS)
# Bytes of the weights (B, T, M) that are in memory at once; longer windows are split.
BLOCK_BYTES = 2**21


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Settings of a cache."""

    window: int = option(
        "mix in a cache of the words that followed the last N states (default: no cache)",
        REQUIRED,
        metavar="N",
        least=1,
    )
    theta: float = option(
        "factor of the similarities; a larger one favours the most similar states", 1.0, least=0
    )
    similarity: str = option(
        "similarity of two states: dot product, as published, or cosine",
        SIMILARITIES[0],
        choices=SIMILARITIES,
    )
    # At 1 a word that the cache lacks would have no probability.
    share: float = option(
        "weight of the cache in the mixture with the model, from 0 to below 1",
        0.1,
        name="lambda",
        least=0,
        below=1,
    )

    def __post_init__(self) -> None:
        check_ranges(CacheSettings, self, "cache.")


class Shares(NamedTuple):
    """The weights that T steps give to M remembered steps, for any theta; not ``share``, lambda."""

    similar: torch.Tensor  # s, (B, T, M)
    seen: torch.Tensor  # (T, M), true where a step sees a remembered one
    words: torch.Tensor  # (B, M), the word after each remembered step
    empty: torch.Tensor  # (T,), true where nothing is remembered

    def weights(self, theta: float) -> torch.Tensor:
        """(B, T, M). A row sums to one, or to zero where nothing is remembered."""
        scores = (theta * self.similar).masked_fill(~self.seen, -math.inf)
        return scores.softmax(2).masked_fill(self.empty.unsqueeze(1), 0.0)

    def log_probs_of(self, target: torch.Tensor, theta: float) -> torch.Tensor:
        """log p_cache of the targets (B, T), float64; -inf for a word that is not remembered."""
        matching = self.words.unsqueeze(1) == target.unsqueeze(2)  # (B, T, M)
        return (self.weights(theta) * matching).sum(2, dtype=torch.float64).log()

    def log_probs(self, vocabulary: int, theta: float) -> torch.Tensor:
        """log p_cache of every word, (B, T, V), float64."""
        weights = self.weights(theta).double()
        words = self.words.unsqueeze(1).expand_as(weights)
        probs = weights.new_zeros(*weights.shape[:2], vocabulary).scatter_add_(2, words, weights)
        return probs.log()


class StreamCache:
    """The cache of one model over B streams. The S settings differ in theta and lambda only."""

    def __init__(self, settings: Sequence[CacheSettings]) -> None:
        self._settings, self._window = settings, settings[0].window
        self._keys: torch.Tensor | None = None  # (B, M, D)
        self._words: torch.Tensor | None = None  # (B, M), the word after each

    def mix(
        self, log_probs: torch.Tensor, hidden: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Mix log P_model of the targets, (S, B, T), with the cache; the result is float64.
        ``hidden`` is h of the steps that predict ``target`` (B, T); the cache remembers both from
        now on."""
        # The largest T with T (window + T) weights in one block.
        shares = BLOCK_BYTES // (4 * len(target))
        steps = max(1, (math.isqrt(self._window**2 + 4 * shares) - self._window) // 2)
        parts = (
            log_probs.double().split(steps, 2),
            hidden.split(steps, 1),
            target.split(steps, 1),
        )
        return torch.cat([self._mix(*part) for part in zip(*parts, strict=True)], dim=2)

    def _mix(self, log_probs, hidden, target):
        shares = self.attend(hidden, target)
        thetas = {one.theta for one in self._settings}
        of_theta = {theta: shares.log_probs_of(target, theta) for theta in thetas}
        rows = [
            mixed(row, of_theta[one.theta], one.share, shares.empty)
            for row, one in zip(log_probs, self._settings, strict=True)
        ]
        return torch.stack(rows)

    def mix_all(
        self, log_probs: torch.Tensor, hidden: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """:meth:`mix` for every word, (B, T, V), with S = 1."""
        shares = self.attend(hidden, target)
        (one,) = self._settings
        of_cache = shares.log_probs(log_probs.size(2), one.theta)
        return mixed(log_probs.double(), of_cache, one.share, shares.empty.unsqueeze(1))

    def attend(self, hidden: torch.Tensor, target: torch.Tensor) -> Shares:
        """Weights of the next steps h (B, T, D), which the cache remembers with the words after
        them (B, T). A step sees earlier ones only, whose words were scored before its own."""
        keys = hidden.to(sum_dtype(hidden.dtype))  # (B, T, D)
        if self._settings[0].similarity == "cosine":
            keys = torch.nn.functional.normalize(keys, dim=2)
        all_keys, words = keys, target
        if self._keys is not None and self._words is not None:
            all_keys = torch.cat([self._keys, keys], dim=1)  # (B, M, D)
            words = torch.cat([self._words, target], dim=1)  # (B, M)
        new, window = target.size(1), self._window
        step = torch.arange(words.size(1) - new, words.size(1), device=target.device).unsqueeze(1)
        remembered = torch.arange(words.size(1), device=target.device)
        seen = (remembered < step) & (remembered >= step - window)  # (T, M)
        self._keys, self._words = all_keys[:, -window:], words[:, -window:]
        return Shares(keys @ all_keys.transpose(1, 2), seen, words, ~seen.any(1))


def mixed(
    log_probs: torch.Tensor, of_cache: torch.Tensor, share: float, empty: torch.Tensor
) -> torch.Tensor:
    """log((1 - lambda) P_model + lambda p_cache), lambda = ``share``; log P_model where ``empty``,
    which is broadcast to the shape of the other two."""
    if share == 0:
        return log_probs
    both = torch.logaddexp(log_probs + math.log1p(-share), of_cache + math.log(share))
    return torch.where(empty, log_probs, both)
