"""BLEU and chrF by sacrebleu, with its intervals, p values and signatures."""

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
    """Score systems, of which the first is the baseline; the references' language decides
    sacrebleu's tokenizer. Returns {metric: {"signature": ..., "systems": [{"score", "mean",
    "interval", "p", "ceiling"}]}}: mean of the resamples, half-width of their 95 % interval, p of
    the difference from the baseline (None for the baseline itself), score of
    :func:`best_possible` (None without targets)."""
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    metrics = {
        "BLEU": bleu_of(language, lowercase=lowercase, references=[references]),
        "chrF": CHRF(lowercase=lowercase, references=[references]),
    }
    named: Any = [(system.name, system.hypotheses) for system in systems]
    test: Any = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    scores = {}
    for (metric, signature), own in zip(signatures.items(), metrics.values(), strict=True):
        rows = [
            {"score": r.score, "mean": float(r.mean), "interval": float(r.ci), "p": r.p_value}
            for r in results[metric]
        ]
        for row, system in zip(rows, systems, strict=True):
            best = best_possible(system, references)
            row["ceiling"] = None
            if best is not None:  # the metric keeps the references
                row["ceiling"] = min(100.0, own.corpus_score(best, None).score)
        for row in rows[1:]:
            if row["score"] == rows[0]["score"]:  # sacrebleu would give the smallest p here
                row["p"] = 1.0
        scores[metric] = {"signature": str(signature), "systems": rows}
    return scores
