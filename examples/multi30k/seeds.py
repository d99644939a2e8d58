"""Choose each system's beam and length penalty on the first split, over its seeds together, and
print tables of the other splits.

python seeds.py TEXTS FOLDER TARGET SEEDS METRICS SPLITS SYSTEM..., with n-best lists of
``fairseq-doc translate --json`` in FOLDER/SYSTEM-seedN/SPLIT.beamK.json. The choice is by the first
metric. Axes: R seeds, U sentences, S statistics of a metric.
"""

import itertools
import json
import math
import statistics
import sys
from functools import cache
from pathlib import Path

import numpy as np

from fairseq_doc.errors import check_count
from fairseq_doc.files import read_text, text_lines
from fairseq_doc.scoring.metrics import Metric, metric_of

BEAMS = (1, 5, 10)
LENPENS = [k / 10 for k in range(21)]
DEFAULT = (5, 1.0)  # beam and length penalty of fairseq-generate
RESAMPLES = 1000

Pair = tuple[int, float]

LENGTHS = Metric(
    "ratio of lengths",
    1,
    lambda text, reference: (len(text.split()), len(reference.split())),
    lambda sums: sums[0] / sums[1],
)


class Lists:
    """The n-best lists of one model for one text and one beam."""

    def __init__(self, path: Path, references: list[str]) -> None:
        self._lists = [line["hypotheses"] for line in json.loads(read_text(path))["lines"]]
        check_count(
            str(path), self._lists, "the references", references, ": remove it and translate again"
        )
        self._lengths = [np.array([one["tokens"] for one in own]) for own in self._lists]
        self._log_probs = [np.array([one["log_prob"] for one in own]) for own in self._lists]
        self._references = references

    def sums(self, metric: Metric, lenpen: float) -> np.ndarray:
        """The statistics (U, S) of the hypotheses that are the best with a length penalty."""
        scores = zip(self._log_probs, self._lengths, strict=True)
        best = [int(np.argmax(log_probs / lengths**lenpen)) for log_probs, lengths in scores]
        return np.array([self._statistics(metric, u, place) for u, place in enumerate(best)])

    @cache  # noqa: B019 - kept until the end
    def _statistics(self, metric: Metric, sentence: int, place: int) -> list[float]:
        text = self._lists[sentence][place]["text"]
        return list(metric.statistics(text, self._references[sentence]))


def main(
    texts: str, folder: str, target: str, seeds: str, metrics: str, splits: str, *systems: str
) -> None:
    """Print the table of settings, then the tables of each test set."""
    first, *others = [metric_of(name, target) for name in metrics.split()]
    valid, *tests = splits.split()
    read = {text: list(text_lines(f"{texts}/{text}.{target}")) for text in (valid, *tests)}

    @cache
    def lists(system: str, seed: int, text: str, beam: int) -> Lists:
        return Lists(Path(folder) / f"{system}-seed{seed}" / f"{text}.beam{beam}.json", read[text])

    def sums(system: str, text: str, pair: Pair, metric: Metric = first) -> np.ndarray:
        """The statistics (R, U, S) of a system's best hypotheses."""
        of_seeds = [lists(system, seed + 1, text, pair[0]) for seed in range(int(seeds))]
        return np.stack([own.sums(metric, pair[1]) for own in of_seeds])

    print_row("system", "beam", "length penalty", f"{first.name} on {valid}", "default settings")
    print_row(*["---"] * 5)
    tuned = {}
    for system in systems:
        grid = itertools.product(BEAMS, LENPENS)
        found = {pair: statistics.mean(values(first, sums(system, valid, pair))) for pair in grid}
        tuned[system] = pair = first.best(found)
        print_row(f"`{system}`", *pair, f"{found[pair]:.2f}", f"{found[DEFAULT]:.2f}")

    for text, default in itertools.product(tests, (False, True)):
        print(f"\n{text}, {'beam 5, length penalty 1' if default else 'tuned'}\n")
        names = [LENGTHS.name, *(metric.name for metric in others)]
        print_row("system", first.name, *names, f"{first.name}, from the first", "95 %")
        print_row(*["---"] * (len(names) + 4))
        base = None
        for system in systems:
            pair = DEFAULT if default else tuned[system]
            own = sums(system, text, pair)
            cells = [f"`{system}`", spread(values(first, own))]
            cells += [f"{statistics.mean(values(LENGTHS, sums(system, text, pair, LENGTHS))):.3f}"]
            cells += [spread(values(one, sums(system, text, pair, one))) for one in others]
            print_row(*cells, *(("", "") if base is None else distance(first, own, base)))
            base = own if base is None else base


def print_row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |")


def values(metric: Metric, sums: np.ndarray) -> list[float]:
    """The metric of each seed, from (R, U, S)."""
    return [metric.value(own) for own in sums.sum(1)]


def spread(of_seeds: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {statistics.stdev(of_seeds):.2f}" if len(of_seeds) > 1 else ""
    return f"{statistics.mean(of_seeds):.2f}{deviation}"


def distance(metric: Metric, own: np.ndarray, first: np.ndarray) -> tuple[str, str]:
    """The difference of two means with its standard error over seeds, and its 95 % interval by a
    bootstrap in which sentences, the same of both systems, and each system's seeds are drawn with
    replacement: R - 1 seeds, since the mean of R drawn from R varies too little. With one seed the
    interval is over sentences alone."""
    ours, theirs = values(metric, own), values(metric, first)
    error = ""
    if len(ours) > 1:
        error = f" ± {math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / len(ours)):.2f}"
    rng = np.random.default_rng(1)
    n_seeds, n_sentences, _ = own.shape
    drawn = []
    for _ in range(RESAMPLES):
        weights = rng.multinomial(n_sentences, [1 / n_sentences] * n_sentences)
        means = []
        for sums in (own, first):
            of_seeds = np.einsum("u,rus->rs", weights, sums)
            chosen = rng.integers(n_seeds, size=max(1, n_seeds - 1))
            means.append(statistics.mean(metric.value(of_seeds[k]) for k in chosen))
        drawn.append(means[0] - means[1])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return (
        f"{statistics.mean(ours) - statistics.mean(theirs):+.2f}{error}",
        f"{low:+.2f} to {high:+.2f}",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
