"""BLEU, chrF and ROUGE of systems, and whether they differ from the first: confidence intervals and
p-values by bootstrap resampling (Koehn, 2004)."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fairseq_doc.scoring.hypotheses import System
from fairseq_doc.scoring.metrics import ROUGES, Metric, bleu_of, rouge_of, sacrebleu_metric

# rouge-score keeps only a-z and 0-9: it drops other letters, and # in place of a digit.
LOST = re.compile(r"[^\W_a-z0-9]|#")
SEED = 12345  # as sacrebleu's


def score_bleu(
    systems: Sequence[System],
    references: list[str],
    language: str,
    lowercase: bool = False,
    resamples: int = 1000,
) -> dict[str, dict[str, Any]]:
    """BLEU and chrF by sacrebleu, which also gives intervals, p-values and signatures. The language
    of the references decides its tokenizer.

    Returns:
        {metric: {"signature": ..., "systems": [{"score", "mean", "interval", "p", "ceiling"}]}}:
        the mean of the resamples, half the width of their 95 % interval, the p-value of the
        difference from the first system (None for this one itself), and :meth:`Metric.ceiling`.
    """
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    metrics: dict[str, Any] = {
        "BLEU": bleu_of(language, lowercase=lowercase, references=[references]),
        "chrF": CHRF(lowercase=lowercase, references=[references]),
    }
    named: Any = [(system.name, system.hypotheses) for system in systems]
    test: Any = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    scores = {}
    for (name, signature), scorer in zip(signatures.items(), metrics.values(), strict=True):
        metric, rows = sacrebleu_metric(name, scorer), list[dict[str, Any]]()
        for result, system in zip(results[name], systems, strict=True):
            row = {"score": result.score, "mean": float(result.mean), "interval": float(result.ci)}
            row["p"] = result.p_value
            if rows and row["score"] == rows[0]["score"]:
                row["p"] = 1.0  # sacrebleu would return the smallest p here
            row["ceiling"] = metric.ceiling(system.targets, references)
            rows.append(row)
        scores[name] = {"signature": str(signature), "systems": rows}
    return scores


def score_rouge(
    systems: Sequence[System], references: list[str], resamples: int = 1000
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """ROUGE F1 by rouge-score, with and without Porter's stemming, as means over sentences.

    Returns:
        {"unstemmed" and "stemmed": {type: [{"f1", "low", "high", "p", "ceiling"} for each
        system]}}: F1 times 100, its 95 % interval, the p-value of the difference from the first
        system (None for this one itself), F1 of the undone targets (None without them).
    """
    result: dict[str, dict[str, list[dict[str, Any]]]] = {"unstemmed": {}, "stemmed": {}}
    for name, scores in result.items():
        for kind in ROUGES:
            metric = rouge_of(kind, stemmed=name == "stemmed")
            pairs = (zip(system.hypotheses, references, strict=True) for system in systems)
            scores[kind] = compare_systems([_f1(metric, own) for own in pairs], resamples)
            for row, system in zip(scores[kind], systems, strict=True):
                row["ceiling"] = metric.ceiling(system.targets, references)
    return result


def _f1(metric: Metric, pairs: Iterable[tuple[str, str]]) -> np.ndarray:
    """F1 of each sentence, (N,), from pairs of a text and its reference."""
    return np.array([metric.statistics(*pair)[0] for pair in pairs])


def compare_systems(systems: Sequence[np.ndarray], resamples: int) -> list[dict[str, Any]]:
    """Compare systems, given as F1 of each sentence (N,), with the first; see
    :func:`score_rouge`. The p-value is two-sided: the share of resampled differences that are at
    least as far from the measured difference as that is from zero; at least 1 / (resamples + 1)."""
    rows: list[dict[str, Any]] = []
    rng, count = np.random.default_rng(SEED), len(systems[0])
    drawn = (rng.integers(count, size=count) for _ in range(resamples))
    # The comparison is paired: the same sentences are drawn for each system.
    means = np.array([[values[own].mean() for values in systems] for own in drawn]).T
    for values, resampled in zip(systems, means, strict=True):
        low, high = (100 * np.percentile(resampled, (2.5, 97.5))).tolist()
        difference = values.mean() - systems[0].mean()
        beyond = np.abs(resampled - means[0] - difference) >= abs(difference)
        p = (beyond.sum().item() + 1) / (resamples + 1)
        rows.append({"f1": 100 * values.mean().item(), "low": low, "high": high, "p": p})
    rows[0]["p"] = None
    return rows


def count_lost(references: Sequence[str]) -> tuple[int, int]:
    """(number of words in the references, number of those with a character that rouge-score drops:
    a letter, a digit or #)."""
    words = [word for line in references for word in line.split()]
    return len(words), sum(LOST.search(word.lower()) is not None for word in words)
