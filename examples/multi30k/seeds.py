"""Choose each system's beam and length penalty on valid, over its seeds together, and print tables of BLEU and chrF.

python seeds.py TEXTS FOLDER TARGET SEEDS SYSTEM..., with n-best lists of ``fairseq-doc translate --json`` in
FOLDER/SYSTEM-seedN/TEXT.beamK.json. Axes: R seeds, U sentences, S sums of a metric.
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
VALID, TESTS = "val", ("test_2016_flickr", "test_2017_flickr")
RESAMPLES = 1000

Pair = tuple[int, float]


class Lists:
    """The n-best lists of one model for one text and one beam."""

    def __init__(self, path: Path, references: list[str]) -> None:
        self._lists = [line["hypotheses"] for line in json.loads(read_text(path))["lines"]]
        check_count(str(path), self._lists, "the references", references, ": translate again")
        self._lengths = [np.array([one["tokens"] for one in own]) for own in self._lists]
        self._log_probs = [np.array([one["log_prob"] for one in own]) for own in self._lists]
        self._references = references

    def sums(self, metric: Metric, lenpen: float) -> np.ndarray:
        """(U, S) of the hypotheses that are the best with a length penalty."""
        scores = zip(self._log_probs, self._lengths, strict=True)
        best = [int(np.argmax(log_probs / lengths**lenpen)) for log_probs, lengths in scores]
        return np.array([self._statistics(metric, u, place) for u, place in enumerate(best)])

    @cache  # noqa: B019 - kept until the end
    def _statistics(self, metric: Metric, sentence: int, place: int) -> list[float]:
        text = self._lists[sentence][place]["text"]
        return list(metric.statistics(text, self._references[sentence]))


def main(texts: str, folder: str, target: str, seeds: int, systems: list[str]) -> None:
    """Print the table of settings, then the tables of each test set."""
    metrics = [metric_of(name, target) for name in ("bleu", "chrf")]
    bleu = metrics[0]
    read = {text: list(text_lines(f"{texts}/{text}.{target}")) for text in (VALID, *TESTS)}

    @cache
    def lists(system: str, seed: int, text: str, beam: int) -> Lists:
        return Lists(Path(folder) / f"{system}-seed{seed}" / f"{text}.beam{beam}.json", read[text])

    def sums(system: str, text: str, pair: Pair, metric: Metric = bleu) -> np.ndarray:
        """(R, U, S)"""
        of_seeds = [lists(system, seed, text, pair[0]) for seed in range(1, seeds + 1)]
        return np.stack([own.sums(metric, pair[1]) for own in of_seeds])

    print(
        "| system | beam | length penalty | BLEU on valid | default settings |",
        "|---" * 5 + "|",
        sep="\n",
    )
    tuned = {}
    for system in systems:
        grid = itertools.product(BEAMS, LENPENS)
        found = {pair: statistics.mean(values(bleu, sums(system, VALID, pair))) for pair in grid}
        tuned[system] = pair = max(found, key=lambda pair: found[pair])
        print(f"| `{system}` | {pair[0]} | {pair[1]} | {found[pair]:.2f} | {found[DEFAULT]:.2f} |")

    for text, default in itertools.product(TESTS, (False, True)):
        print(f"\n{text}, {'beam 5, length penalty 1' if default else 'tuned'}\n")
        print(
            "| system | BLEU | ratio of lengths | chrF | BLEU, from the first | 95 % |",
            "|---" * 6 + "|",
            sep="\n",
        )
        first = sums(systems[0], text, DEFAULT if default else tuned[systems[0]])
        for system in systems:
            pair = DEFAULT if default else tuned[system]
            own = sums(system, text, pair)
            ratio = (
                own[..., 0].sum() / own[..., 1].sum()
            )  # of a BLEU: units of output, of reference
            chrf = spread(values(metrics[1], sums(system, text, pair, metrics[1])))
            cells = [
                f"`{system}`",
                spread(values(bleu, own)),
                f"{ratio:.3f}",
                chrf,
                *distance(bleu, own, first),
            ]
            print(f"| {' | '.join(cells if system != systems[0] else [*cells[:4], '', ''])} |")


def values(metric: Metric, sums: np.ndarray) -> list[float]:
    """The metric of each seed, from (R, U, S)."""
    return [metric.value(own) for own in sums.sum(1)]


def spread(of_seeds: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {statistics.stdev(of_seeds):.2f}" if len(of_seeds) > 1 else ""
    return f"{statistics.mean(of_seeds):.2f}{deviation}"


def distance(metric: Metric, own: np.ndarray, first: np.ndarray) -> tuple[str, str]:
    """The distance of two means with its standard error over seeds, and its 95 % interval by a bootstrap in which
    sentences, the same of both systems, and each system's seeds are drawn with replacement."""
    ours, theirs = values(metric, own), values(metric, first)
    error = ""
    if len(ours) > 1:
        error = f" ± {math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / len(ours)):.2f}"
    random, (count, length, _) = np.random.default_rng(1), own.shape
    drawn = []
    for _ in range(RESAMPLES):
        weights = random.multinomial(length, [1 / length] * length)
        means = []
        for sums in (own, first):
            of_seeds = np.einsum("u,rus->rs", weights, sums)
            means.append(
                statistics.mean(
                    metric.value(of_seeds[k]) for k in random.integers(count, size=count)
                )
            )
        drawn.append(means[0] - means[1])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return (
        f"{statistics.mean(ours) - statistics.mean(theirs):+.2f}{error}",
        f"{low:+.2f} to {high:+.2f}",
    )


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5:])
