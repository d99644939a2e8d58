"""Rescoring of n-best lists by language models: scores, the best candidates, tuned weights.

The score of a candidate is a s + w ln P + b n, where s is the score of the first pass, P the
probability of its tokens and the end mark by the language models, and n its number of words.
``rescore`` has a = 1 and tunes w and b; ``rerank``, whose first pass is a parser, has w = 1 and
b = 0 and tunes a.

Axes: U lists, n candidates in a list, N in the longest list.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import (
    MAX_SEQUENCES,
    chunks_of,
    sequence_log_probs,
    states_after,
)
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.scoring.metrics import Metric
from fairseq_doc.scoring.nbest_lists import NBestList

MAX_ROUNDS = 5  # maximal number of rounds of tuning with carried states
Rows = list[np.ndarray]  # for each of n candidates, ln P of its tokens and the end mark


class Weights(NamedTuple):
    """a, w and b, in this order."""

    first_pass: float = 1.0
    language_model: float = 0.0
    words: float = 0.0


FIRST_PASS, LANGUAGE_MODEL = Weights(), Weights(0.0, 1.0)


def encode(
    dictionary: Dictionary, tokenized: Iterable[Sequence[Sequence[str] | None]]
) -> tuple[list[list[list[int]]], Counter[str]]:
    """The indices of each candidate's tokens and end mark, and the tokens outside the dictionary,
    which are scored as ``<unk>``. A candidate that is None has no indices, and its ln P is -inf."""
    unknown = Counter[str]()
    encoded = []
    for candidates in tokenized:
        encoded.append(
            [[] if x is None else [*map(dictionary.index, x), dictionary.eos()] for x in candidates]
        )
        for tokens in filter(None, candidates):
            unknown.update(token for token in tokens if token not in dictionary)
    return encoded, unknown


def score(
    ensemble: Ensemble,
    lists: Sequence[NBestList],
    encoded: Sequence[list[list[int]]],
    carry: bool = False,
    weights: Weights | None = None,
    progress: Progress = no_progress,
    at_once: int = MAX_SEQUENCES,
) -> Iterator[Rows]:
    """Yield ln P of the tokens of each list's candidates. They start after ``</s>`` from a zero
    state or, with ``carry``, from the state after the previous list's best candidate at these
    weights (None: after its first candidate, as in Kaldi's script). ``at_once``: number of
    candidates that are scored together, at least those of one list; it changes memory and speed,
    and results only by rounding. Progress counts the tokens of the longest candidates."""
    end = ensemble.dictionary.eos()
    chunks = chunks_of(encoded, 1 if carry else at_once)
    tokens = sum(max(map(len, chain(*chunk))) for chunk in chunks)
    steps = iter(progress(range(tokens), "score"))
    number, states = 0, None
    for chunk in chunks:
        rows = iter(sequence_log_probs(ensemble, [*chain(*chunk)], end, states, steps))
        for sequences in chunk:
            own = list(islice(rows, len(sequences)))
            yield own
            if carry:
                best = 0
                if weights is not None:
                    best = choose(lists[number : number + 1], [totals(own)], weights).item()
                states = states_after(ensemble, [end, *sequences[best][:-1]], states)
            number += 1
    next(steps, None)  # finishes the progress bar


def totals(rows: Rows) -> np.ndarray:
    """ln P of each candidate, (n,); -inf for a candidate without tokens."""
    return np.array([row.cumsum()[-1] if len(row) else -np.inf for row in rows])


class _Table:
    """The parts of the candidates' scores, each (U, N), and the mask of the padding after a list."""

    def __init__(self, lists: Sequence[NBestList], log_probs: Sequence[np.ndarray]) -> None:
        lengths = np.array([len(one.texts) for one in lists])
        self._beyond = np.arange(lengths.max()) >= lengths[:, None]
        first_pass, words = [one.first_pass for one in lists], [one.words for one in lists]
        self._parts = list(map(self._padded, (first_pass, log_probs, words)))  # as Weights

    def _padded(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        table = np.zeros(self._beyond.shape)
        table[~self._beyond] = np.concatenate(rows)
        return table

    def choose(self, weights: Weights) -> np.ndarray:
        scores = sum(weight * part for weight, part in zip(weights, self._parts, strict=True))
        return np.where(self._beyond, -np.inf, scores).argmax(1)


def choose(
    lists: Sequence[NBestList], log_probs: Sequence[np.ndarray], weights: Weights
) -> np.ndarray:
    """The index of the best candidate in each list, (U,); the first among equals."""
    return _Table(lists, log_probs).choose(weights)


class Judge:
    """Scores any selection of candidates from U lists, from their statistics, (n, S) per list."""

    def __init__(self, metric: Metric, statistics: Sequence[np.ndarray]) -> None:
        self.metric, self.statistics = metric, statistics
        self._rows = np.concatenate(statistics)
        self._starts = np.cumsum([0, *map(len, statistics[:-1])])

    def chosen(self, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
        """The statistics (U, S) of one candidate per list, given by its index."""
        return self._rows[self._starts + np.asarray(chosen)]

    def __call__(self, chosen: Sequence[int] | np.ndarray) -> float:
        return self.metric.value(self.chosen(chosen).sum(0))

    @property
    def oracle(self) -> list[int]:
        """The index of the best candidate by itself in each list, the first among equals."""
        sign, value = self.metric.sign, self.metric.value
        return [int(np.argmax([sign * value(row) for row in rows])) for rows in self.statistics]

    def check_tunable(self) -> None:
        """Raise ``FairseqDocError`` if the metric is the same for every selection."""
        if all((rows == rows[0]).all() for rows in self.statistics):
            raise FairseqDocError(
                f"weights cannot be tuned: within each list, all candidates have the same "
                f"{self.metric.name}, so every selection scores alike"
            )


@dataclass(frozen=True)
class Tuning:
    """The best weights, and the metric with them in percent."""

    weights: Weights
    value: float
    tried: dict[Weights, float]


def search(
    judge: Judge,
    lists: Sequence[NBestList],
    log_probs: Sequence[np.ndarray],
    grid: Sequence[Weights],
) -> Tuning:
    """The best weights in the grid, the first among equals."""
    table = _Table(lists, log_probs)
    values = {weights: judge(table.choose(weights)) for weights in grid}
    best = max(grid, key=lambda weights: judge.metric.sign * values[weights])
    return Tuning(best, values[best], values)


def tune(
    ensemble: Ensemble,
    judge: Judge,
    lists: Sequence[NBestList],
    encoded: Sequence[list[list[int]]],
    grid: Sequence[Weights],
    carry: bool = False,
    progress: Progress = no_progress,
) -> tuple[Tuning, list[Rows]]:
    """The best weights in the grid, and the scores of the lists with them.

    Carried states depend on the weights. So with ``carry`` the lists are scored again with the
    weights found, and the weights tuned again, until they repeat, at most ``MAX_ROUNDS`` times. The
    result is the best of the weights with which lists were scored, so that its value can be
    reproduced.
    """
    weights, rounds = FIRST_PASS, {}
    while True:
        scored = list(score(ensemble, lists, encoded, carry, weights, progress))
        log_probs = list(map(totals, scored))
        found = search(judge, lists, log_probs, grid)
        if not carry:
            return found, scored
        if weights in grid:  # perhaps not the first ones
            value = judge(choose(lists, log_probs, weights))
            rounds[weights] = Tuning(weights, value, found.tried), scored
        weights = found.weights
        if weights in rounds or len(rounds) == MAX_ROUNDS:
            return max(rounds.values(), key=lambda pair: judge.metric.sign * pair[0].value)
