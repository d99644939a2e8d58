"""ROUGE by rouge-score: ROUGE-1, -2 and -L F1, with and without Porter's stemming, means over
sentences."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.scoring.hypotheses import System
from fairseq_doc.scoring.significance import compare_systems

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
# What a reader would count, and rouge-score, which keeps a-z and 0-9, does not: other letters, and
# # in place of a digit.
WORD = re.compile("[a-z0-9]+")
MAX_WORDS = 5_000  # of a line; ROUGE-L takes time and memory with its square
LOST = re.compile(r"[^\W_a-z0-9]|#")


def score_rouge(
    systems: Sequence[System], references: Sequence[str], resamples: int = 1000
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Score systems against references.

    Args:
        systems: the first is the baseline.
        references: a line a sentence.
        resamples: of the bootstrap.

    Returns:
        {"unstemmed" and "stemmed": {type: [{"f1", "low", "high", "p"} for each system]}}: F1 times
        100, its 95 % interval, and the p value of its difference from the baseline (None for the
        baseline).

    Raises:
        FairseqDocError: a line of more than ``MAX_WORDS``.
    """
    check_lengths("the references", references)
    for system in systems:
        check_lengths(system.name, system.hypotheses)
    result: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, stemmed in (("unstemmed", False), ("stemmed", True)):
        of_systems = [f_scores(system.hypotheses, references, stemmed) for system in systems]
        result[name] = {}
        for kind in TYPES:
            estimates = compare_systems([scores[kind] for scores in of_systems], resamples)
            result[name][kind] = [
                {"f1": 100 * e.mean, "low": 100 * e.low, "high": 100 * e.high, "p": e.p}
                for e in estimates
            ]
    return result


def check_lengths(name: str, lines: Sequence[str]) -> None:
    """Raise ``FairseqDocError`` for a line of more than ``MAX_WORDS``."""
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_WORDS:
            words = sum(1 for _ in WORD.finditer(line.lower()))
            if words > MAX_WORDS:
                raise FairseqDocError(
                    f"{name}: sentence {number} has {words:,} words; expected at most {MAX_WORDS:,}"
                )


def f_scores(
    texts: Sequence[str], references: Sequence[str], stemmed: bool
) -> dict[str, np.ndarray]:
    """F1 of every sentence, {type: (N,) array in [0, 1]}."""
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    scorer = RougeScorer(list(TYPES), use_stemmer=stemmed)
    scores = [scorer.score(*pair) for pair in zip(references, texts, strict=True)]
    return {kind: np.array([score[kind].fmeasure for score in scores]) for kind in TYPES}


def count_lost(references: Sequence[str]) -> tuple[int, int]:
    """(words of the references, those with a letter, digit or # that rouge-score leaves out or
    takes as a gap between words)."""
    words = [word for line in references for word in line.split()]
    return len(words), sum(LOST.search(word.lower()) is not None for word in words)
