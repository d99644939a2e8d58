"""Rescoring of n-best lists by language models: scores, the best candidates, tuned weights.

The score of a candidate is a s + w ln P + b n, where s is the score of the first pass, P the
probability of its tokens and the end mark by the language models, and n its number of words.
``rescore`` has a = 1 and tunes w and b; ``rerank``, whose first pass is a parser, has w = 1 and
b = 0 and tunes a.

Axes: U lists, n candidates in a list.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import (
    MAX_SEQUENCES,
    chunks_of,
    sequence_log_probs,
    states_after,
)
from fairseq_doc.evaluation.progress import track
from fairseq_doc.scoring.metrics import Metric
from fairseq_doc.scoring.nbest_lists import NBestList

MAX_ROUNDS = 5  # maximum number of rounds of tuning with carried states
Rows = list[np.ndarray]  # for each of n candidates, ln P of its tokens and the end mark


class Weights(NamedTuple):
    """a, w and b, in this order."""

    first_pass: float = 1.0
    language_model: float = 0.0
    words: float = 0.0


def totals(rows: Rows) -> np.ndarray:
    """ln P of each candidate, (n,); -inf for a candidate without tokens."""
    return np.array([row.sum() if len(row) else -np.inf for row in rows])


def choose(
    lists: Sequence[NBestList], log_probs: Sequence[np.ndarray], weights: Weights
) -> list[int]:
    """The index of the best candidate in each of U lists; the first among equals."""
    a, w, b = weights
    pairs = zip(lists, log_probs, strict=True)
    return [int((a * one.first_pass + w * own + b * one.words).argmax()) for one, own in pairs]


@dataclass(frozen=True)
class Judge:
    """Scores any selection of candidates from U lists, from their statistics, (n, S) per list."""

    metric: Metric
    statistics: Sequence[np.ndarray]

    @classmethod
    def of(
        cls, metric: Metric, lists: Iterable[Sequence[str]], references: Iterable[str]
    ) -> "Judge":
        """A judge of lists of texts with a reference each."""
        pairs = zip(lists, references, strict=True)
        return cls(metric, [np.array([metric.statistics(x, y) for x in own]) for own, y in pairs])

    def statistics_of(self, chosen: Sequence[int]) -> np.ndarray:
        """The statistics (U, S) of one candidate per list, given by its index."""
        return np.array([rows[k] for rows, k in zip(self.statistics, chosen, strict=True)])

    def __call__(self, chosen: Sequence[int]) -> float:
        return self.metric.value(self.statistics_of(chosen).sum(0))

    @property
    def first(self) -> float:
        """The metric of the first candidates."""
        return self([0] * len(self.statistics))

    @property
    def oracle(self) -> float:
        """The metric of the candidates that are the best by themselves."""
        values = [dict(enumerate(map(self.metric.value, rows))) for rows in self.statistics]
        return self(list(map(self.metric.best, values)))


@dataclass(frozen=True)
class Rescorer:
    """Scores U lists by language models.

    Args:
        encoded: the indices of the tokens and end mark of each candidate; a candidate without any, a
            failed parse, has ln P = -inf.
        carry: start each list from the state after the previous list's best candidate; else from a
            zero state, after ``</s>``.
        at_once: number of candidates that are scored together, at least those of one list; it
            changes memory and speed, and results only by rounding.
    """

    ensemble: Ensemble
    lists: Sequence[NBestList]
    encoded: Sequence[list[list[int]]]
    carry: bool = False
    at_once: int = MAX_SEQUENCES

    def score(self, weights: Weights | None = None) -> Iterator[Rows]:
        """Yield ln P of the tokens of each list's candidates. With ``carry``, ``weights`` choose
        the best candidates; None: the first ones, as in Kaldi's script. Progress counts the tokens
        of the longest candidates."""
        end = self.ensemble.dictionary.eos()
        chunks = chunks_of(self.encoded, 1 if self.carry else self.at_once)
        tokens = sum(max(map(len, chain(*chunk))) for chunk in chunks)
        steps = iter(track(range(tokens), "score"))
        lists, states = iter(self.lists), None
        for chunk in chunks:
            rows = iter(sequence_log_probs(self.ensemble, [*chain(*chunk)], end, states, steps))
            for sequences, one in zip(chunk, lists, strict=False):
                own = list(islice(rows, len(sequences)))
                yield own
                if self.carry:
                    best = 0 if weights is None else choose([one], [totals(own)], weights)[0]
                    states = states_after(self.ensemble, [end, *sequences[best][:-1]], states)
        next(steps, None)  # finishes the progress bar

    def tune(
        self, judge: Judge, grid: Sequence[Weights]
    ) -> tuple[Weights, dict[Weights, float], list[Rows]]:
        """The best weights in the grid, the first among equals; the metric in percent with each of
        them; and the scores of the lists with the best.

        Carried states depend on the weights. So with ``carry`` the lists are scored again with the
        weights found, and the weights tuned again, until they repeat, at most ``MAX_ROUNDS`` times
        (once more if the first weights, w = b = 0, are not in the grid). The result is the best of
        the weights with which lists were scored, so that its value can be reproduced.
        """
        weights = Weights()
        rounds: dict[Weights, tuple[dict[Weights, float], list[Rows]]] = {}
        while weights not in rounds and len(rounds) < MAX_ROUNDS:
            scored = list(self.score(weights))
            log_probs = list(map(totals, scored))
            tried = {one: judge(choose(self.lists, log_probs, one)) for one in grid}
            if weights in tried:  # perhaps not the first ones
                rounds[weights] = tried, scored
            weights = judge.metric.best(tried)
            if not self.carry:
                return weights, tried, scored
        best = judge.metric.best({one: rounds[one][0][one] for one in rounds})
        return best, *rounds[best]
