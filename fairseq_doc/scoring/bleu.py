"""BLEU and chrF by sacrebleu, with its confidence intervals, p-values and signatures."""

from collections.abc import Sequence
from typing import Any

from fairseq_doc.scoring.hypotheses import System, best_possible
from fairseq_doc.scoring.metrics import bleu_of


def score_bleu(
    systems: Sequence[System],
    references: list[str],
    language: str,
    lowercase: bool = False,
    resamples: int = 1000,
) -> dict[str, dict[str, Any]]:
    """Score systems, the first of which is the baseline. The language of the references decides
    sacrebleu's tokenizer.

    Returns:
        {metric: {"signature": ..., "systems": [{"score", "mean", "interval", "p", "ceiling"}]}}:
        the mean of the resamples, half the width of their 95 % interval, the p-value of the
        difference from the baseline (None for the baseline itself), and the score of
        :func:`best_possible` (None without targets).
    """
    from sacrebleu.significance import PairedTest

    metrics = _metrics(language, lowercase, references)
    ceilings: list[list[float]] = []
    for system in systems:
        targets, own = best_possible(system, references) or ([], [])
        scorers = _metrics(language, lowercase, own).values() if own else ()
        ceilings.append([scorer.corpus_score(targets, None).score for scorer in scorers])
    named: Any = [(system.name, system.hypotheses) for system in systems]
    test: Any = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    scores = {}
    for number, (metric, signature) in enumerate(signatures.items()):
        rows = [
            {"score": r.score, "mean": float(r.mean), "interval": float(r.ci), "p": r.p_value}
            for r in results[metric]
        ]
        for row, ceiling in zip(rows, ceilings, strict=True):
            row["ceiling"] = min(100.0, ceiling[number]) if ceiling else None
        for row in rows[1:]:
            if row["score"] == rows[0]["score"]:  # sacrebleu would return the smallest p here
                row["p"] = 1.0
        scores[metric] = {"signature": str(signature), "systems": rows}
    return scores


def _metrics(language: str, lowercase: bool, references: list[str]) -> dict[str, Any]:
    """sacrebleu's metrics for these references, which they cache."""
    from sacrebleu.metrics import CHRF

    return {
        "BLEU": bleu_of(language, lowercase=lowercase, references=[references]),
        "chrF": CHRF(lowercase=lowercase, references=[references]),
    }
