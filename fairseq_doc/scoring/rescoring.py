"""N-best lists rescored by language models.

A candidate's score is s + w ln P + b n, with the first pass's score s, the language models' P of
its tokens and the end mark, and its number of words n. Without the bonus b the language models
prefer short candidates, of all most the empty one. w and b are tuned on lists with references.

Axes: U utterances, n candidates of one, N of the longest list, S statistics of a metric.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from math import isfinite
from typing import NamedTuple

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import (
    MAX_SEQUENCES,
    chunks_of,
    sequence_log_probs,
    states_after,
)
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.options import option, parse_grid
from fairseq_doc.scoring.metrics import METRICS, Metric
from fairseq_doc.scoring.nbest_lists import Utterance

MAX_ROUNDS = 5  # of tuning with carried states
Rows = list[np.ndarray]  # ln P of the tokens and the end mark of each of n candidates


class Weights(NamedTuple):
    """w and b."""

    weight: float
    bonus: float


FIRST_PASS = Weights(0.0, 0.0)
WEIGHTS, BONUSES = "0:1:0.05", "-2:4:0.25"  # tried by default


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """The weights, or by what to find them."""

    weight: float | None = option("of the language model beside the first pass")
    bonus: float | None = option("added for each word; without one short candidates win")
    metric: str | None = option("of the best candidates", choices=METRICS, needs="reference")
    lang: str | None = option(
        "language of the references, for sacrebleu's tokenizer (default: en)", needs="metric"
    )
    tune: bool = option("find weight and bonus by the metric", False, needs="metric")
    weights: str | None = option(
        f"tried by --tune (default: {WEIGHTS})", needs="tune", metavar="FROM:TO:STEP"
    )
    bonuses: str | None = option(
        f"tried by --tune (default: {BONUSES})", needs="tune", metavar="FROM:TO:STEP"
    )

    def check_weights(self, chooses: bool, carry: bool) -> None:
        """Refuse a choice without weights, weights without effect, and those that are no numbers."""
        given = [x for x in (self.weight, self.bonus) if x is not None]
        expected = {0} if self.tune else {2} if chooses else {0, 2} if carry else {0}
        if len(given) not in expected or not all(map(isfinite, given)):
            raise FairseqDocError(
                "expected numbers for --weight and --bonus beside --output or --metric, or --tune, "
                f"which finds both; got weight {self.weight}, bonus {self.bonus}, tune {self.tune}"
            )
        _ = self.grid

    @property
    def fixed(self) -> Weights | None:
        """Those that are given."""
        if self.weight is None or self.bonus is None:
            return None
        return Weights(self.weight, self.bonus)

    @property
    def grid(self) -> list[Weights]:
        """Those to try, the smallest first."""
        bonuses = sorted(parse_grid("--bonuses", self.bonuses or BONUSES), key=abs)
        weights = parse_grid("--weights", self.weights or WEIGHTS, least=0)
        return [Weights(*pair) for pair in product(weights, bonuses)]


def encode(
    ensemble: Ensemble, utterances: Sequence[Utterance]
) -> tuple[list[list[list[int]]], Counter[str]]:
    """The indices of each candidate's tokens and end mark, by the language models' data folder; and
    the tokens outside the dictionary, which are scored as ``<unk>``."""
    dictionary, unknown = ensemble.dictionary, Counter[str]()
    encoded = []
    for utterance in utterances:
        tokenized = list(map(ensemble.form.tokens, utterance.texts))
        unknown.update(token for tokens in tokenized for token in tokens if token not in dictionary)
        encoded.append([[*map(dictionary.index, x), dictionary.eos()] for x in tokenized])
    return encoded, unknown


def score(
    ensemble: Ensemble,
    utterances: Sequence[Utterance],
    encoded: Sequence[list[list[int]]],
    carry: bool = False,
    weights: Weights | None = None,
    progress: Progress = no_progress,
) -> list[Rows]:
    """ln P of each utterance's candidates, which start after ``</s>`` from a state of zeros; with
    ``carry`` from the state after the last utterance's best candidate at the weights (None: after
    the first of its list, as Kaldi's script does)."""
    end = ensemble.dictionary.eos()
    scored: list[Rows] = []
    if not carry:
        for chunk in progress(chunks_of(encoded, MAX_SEQUENCES), "rescore"):
            rows = iter(sequence_log_probs(ensemble, [*chain(*chunk)], end))
            scored += [list(islice(rows, len(sequences))) for sequences in chunk]
        return scored
    states = None
    for utterance, sequences in progress(list(zip(utterances, encoded, strict=True)), "rescore"):
        scored.append(sequence_log_probs(ensemble, sequences, end, states))
        best = 0 if weights is None else int(choose([utterance], scored[-1:], weights)[0])
        states = states_after(ensemble, [end, *sequences[best][:-1]], states)
    return scored


def choose(utterances: Sequence[Utterance], scored: Sequence[Rows], weights: Weights) -> np.ndarray:
    """(U,) the index of each utterance's best candidate, the first of equal ones."""
    return _Table(utterances, scored).choose(weights)


class _Table:
    """The parts of the candidates' scores, each (U, N); -inf after the end of a shorter list."""

    def __init__(self, utterances: Sequence[Utterance], scored: Sequence[Rows]) -> None:
        self._first = _padded([one.first_pass for one in utterances], -np.inf)
        self._words = _padded([one.words for one in utterances], 0)
        self._log_probs = _padded([np.array([x.sum() for x in rows]) for rows in scored], 0)

    def choose(self, weights: Weights) -> np.ndarray:
        weight, bonus = weights
        return (self._first + weight * self._log_probs + bonus * self._words).argmax(1)


def _padded(rows: Sequence[np.ndarray], fill: float) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows))), fill, dtype=float)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


class Judge:
    """The metric of any choice of candidates against references, one an utterance."""

    def __init__(
        self, metric: Metric, utterances: Sequence[Utterance], references: Sequence[str]
    ) -> None:
        self.metric = metric
        self._statistics = [  # (n, S) of each utterance
            np.array([metric.statistics(text, reference) for text in one.texts])
            for one, reference in zip(utterances, references, strict=True)
        ]
        if metric.name == "WER" and not any(map(str.split, references)):
            raise FairseqDocError("expected references with words; got empty ones")

    def __call__(self, chosen: Sequence[int] | np.ndarray) -> float:
        pairs = zip(self._statistics, chosen, strict=True)
        return self.metric.value(np.sum([rows[index] for rows, index in pairs], axis=0))

    def check_tunable(self) -> None:
        """Raise ``FairseqDocError`` if no choice changes the metric."""
        if all((rows == rows[0]).all() for rows in self._statistics):
            raise FairseqDocError(
                f"weights cannot be tuned: the candidates of each list have equal {self.metric.name} "
                "statistics, so every choice scores alike; expected lists that differ"
            )


@dataclass(frozen=True)
class Tuning:
    """The best of the weights tried, and the metric that they give, in percent."""

    weights: Weights
    value: float
    tried: dict[Weights, float]


def tune(
    ensemble: Ensemble,
    judge: Judge,
    utterances: Sequence[Utterance],
    encoded: Sequence[list[list[int]]],
    grid: Sequence[Weights],
    carry: bool = False,
    progress: Progress = no_progress,
) -> tuple[Tuning, list[Rows]]:
    """The best of the weights, of equally good ones the first; and the lists' scores at them.

    Carried states depend on the weights. So with ``carry`` the lists are scored again at the weights
    found, and weights tuned again, until they repeat, at most ``MAX_ROUNDS`` times; of the weights
    at which lists were scored the best are taken, so that they give the same value again.
    """
    judge.check_tunable()
    weights, rounds = FIRST_PASS, {}
    while True:
        scored = score(ensemble, utterances, encoded, carry, weights, progress)
        found = search(judge, utterances, scored, grid)
        if not carry:
            return found, scored
        if weights in grid:  # not the first ones, perhaps
            value = judge(choose(utterances, scored, weights))
            rounds[weights] = Tuning(weights, value, found.tried), scored
        weights = found.weights
        if weights in rounds or len(rounds) == MAX_ROUNDS:
            return max(rounds.values(), key=lambda pair: judge.metric.sign * pair[0].value)


def search(
    judge: Judge, utterances: Sequence[Utterance], scored: Sequence[Rows], grid: Sequence[Weights]
) -> Tuning:
    """The best of the weights at these scores."""
    table, values = _Table(utterances, scored), {}
    known: dict[bytes, float] = {}  # of each choice
    for weights in grid:
        chosen = table.choose(weights)
        key = chosen.tobytes()
        if key not in known:
            known[key] = judge(chosen)
        values[weights] = known[key]
    best = max(grid, key=lambda weights: judge.metric.sign * values[weights])
    return Tuning(best, values[best], values)


def score_lines(
    utterances: Sequence[Utterance], scored: Sequence[Rows], totals: bool = False
) -> Iterator[str]:
    """Kaldi's scores, in the list's order: ``UTT-K`` and -ln P of each token and of the end mark, or
    with ``totals`` their sum."""
    for utterance, rows in zip(utterances, scored, strict=True):
        for key, row in zip(utterance.keys, rows, strict=True):
            numbers = [row.sum()] if totals else row
            yield " ".join([key, *(f"{max(0.0, -x):.4f}" for x in numbers)])
