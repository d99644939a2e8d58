"""BLEU and chrF by sacrebleu, with sacrebleu's own intervals, p values and signatures."""

from collections.abc import Sequence
from typing import Any

from fairseq_doc.scoring.hypotheses import System


def score_bleu(
    systems: Sequence[System],
    references: list[str],
    language: str,
    lowercase: bool = False,
    resamples: int = 1000,
) -> dict[str, dict[str, Any]]:
    """Score systems, of which the first is the baseline, against references, a line a sentence.

    Args:
        language: of the references, which decides sacrebleu's tokenizer.
        lowercase: ignore case.
        resamples: of the bootstrap.

    Returns:
        {metric: {"signature": ..., "systems": [{"score", "mean", "interval", "p"}]}}: the score,
        the mean of the resamples and the half-width of their 95 % interval, and the p value of the
        difference from the baseline (None for the baseline).
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    metrics = {
        "BLEU": BLEU(lowercase=lowercase, trg_lang=language, references=[references]),
        "chrF": CHRF(lowercase=lowercase, references=[references]),
    }
    named: Any = [(system.name, system.hypotheses) for system in systems]
    test: Any = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    scores = {}
    for metric, signature in signatures.items():
        rows = [
            {"score": r.score, "mean": float(r.mean), "interval": float(r.ci), "p": r.p_value}
            for r in results[metric]
        ]
        for row in rows[1:]:
            if row["score"] == rows[0]["score"]:  # sacrebleu would give the smallest p here
                row["p"] = 1.0
        scores[metric] = {"signature": str(signature), "systems": rows}
    return scores
