"""ROUGE-1, -2 and -L F1 by rouge-score, with and without Porter's stemming, as means over sentences,
with confidence intervals and p-values by bootstrap resampling (Koehn, 2004)."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.scoring.hypotheses import System, best_possible

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
WORD = re.compile("[a-z0-9]+")
MAX_WORDS = 5_000  # maximal number per line; time and memory of ROUGE-L grow with its square
# rouge-score keeps only a-z and 0-9: it drops other letters, and # in place of a digit.
LOST = re.compile(r"[^\W_a-z0-9]|#")
SEED = 12345
INTERVAL = (2.5, 97.5)  # percentiles of a 95 % interval


def score_rouge(
    systems: Sequence[System], references: Sequence[str], resamples: int = 1000
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Score systems, the first of which is the baseline.

    Returns:
        {"unstemmed" and "stemmed": {type: [{"f1", "low", "high", "p", "ceiling"} for each
        system]}}: F1 times 100, its 95 % interval, the p-value of the difference from the baseline
        (None for the baseline), F1 of :func:`best_possible` (None without targets).
    """
    check_lengths("the references", references)
    for system in systems:
        check_lengths(system.name, system.hypotheses)
    result: dict[str, dict[str, list[dict[str, Any]]]] = {}
    targets = [best_possible(system, references) for system in systems]
    for name, stemmed in (("unstemmed", False), ("stemmed", True)):
        scores = [f_scores(system.hypotheses, references, stemmed) for system in systems]
        result[name] = {
            kind: compare_systems([of_system[kind] for of_system in scores], resamples)
            for kind in TYPES
        }
        for number, best in enumerate(targets):
            of_best = {} if best is None else f_scores(*best, stemmed)
            for kind, rows in result[name].items():
                rows[number]["ceiling"] = 100 * of_best[kind].mean().item() if of_best else None
    return result


def check_lengths(name: str, lines: Sequence[str]) -> None:
    """Raise ``FairseqDocError`` for a line of more than ``MAX_WORDS``."""
    for number, line in enumerate(lines, start=1):
        words = len(WORD.findall(line.lower()))
        if words > MAX_WORDS:
            raise FairseqDocError(
                f"{name}: sentence {number} has {words:,} words; expected at most {MAX_WORDS:,}"
            )


def f_scores(
    texts: Sequence[str], references: Sequence[str], stemmed: bool
) -> dict[str, np.ndarray]:
    """F1 of each sentence, {type: (N,) array in [0, 1]}."""
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    scorer = RougeScorer(list(TYPES), use_stemmer=stemmed)
    scores = [scorer.score(*pair) for pair in zip(references, texts, strict=True)]
    return {kind: np.array([score[kind].fmeasure for score in scores]) for kind in TYPES}


def compare_systems(systems: Sequence[np.ndarray], resamples: int) -> list[dict[str, Any]]:
    """Compare systems, given as F1 of each sentence (N,), with the first; see
    :func:`score_rouge`."""
    means = [resampled_means(values, resamples) for values in systems]
    results: list[dict[str, Any]] = []
    for values, resampled in zip(systems, means, strict=True):
        low, high = (100 * np.percentile(resampled, INTERVAL)).tolist()
        difference = values.mean() - systems[0].mean()
        p = p_value(difference, resampled - means[0]) if results else None
        results.append({"f1": 100 * values.mean().item(), "low": low, "high": high, "p": p})
    return results


def resampled_means(values: np.ndarray, resamples: int, seed: int = SEED) -> np.ndarray:
    """Means over sentences drawn with replacement, (resamples,). The same number of sentences and
    the same seed draw the same sentences, so the comparison of systems is paired."""
    rng = np.random.default_rng(seed)
    return np.array(
        [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
    )


def p_value(difference: float, resampled: np.ndarray) -> float:
    """The two-sided p-value: the share of resampled differences that are at least as far from the
    measured difference as that is from zero; at least 1 / (resamples + 1)."""
    beyond = np.abs(resampled - difference) >= abs(difference)
    return (beyond.sum().item() + 1) / (len(resampled) + 1)


def count_lost(references: Sequence[str]) -> tuple[int, int]:
    """(number of words in the references, number of those with a character that rouge-score drops:
    a letter, a digit or #)."""
    words = [word for line in references for word in line.split()]
    return len(words), sum(LOST.search(word.lower()) is not None for word in words)
