"""BLEU and chrF of fairseq-generate's output against raw references, by sacrebleu.

    python scripts/score_bleu.py OUTPUT [OUTPUT ...] --reference RAW --lang de

An OUTPUT is fairseq-generate's standard output or its file under --results-path. BPE and
tokenisation are undone before. Each score comes with its 95 % interval by bootstrap resampling of
the sentences, and, from the second system on, with the p value of its difference from the first by
paired bootstrap; both are sacrebleu's own, as are the signatures.
"""

import argparse
import sys

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from score_outputs import run


def score(systems, references, args):
    """{"scores": {metric: {"signature": ..., "systems": [{score, mean, interval, p}]}}}, the first
    system the baseline; an interval is the half-width around the mean of the resamples, as sacrebleu
    tells it."""
    metrics = {
        "BLEU": BLEU(lowercase=args.lowercase, trg_lang=args.lang, references=[references]),
        "chrF": CHRF(lowercase=args.lowercase, references=[references]),
    }
    named = [(system.name, system.hypotheses) for system in systems]
    signatures, results = PairedTest(
        named, metrics, None, test_type="bs", n_samples=args.bootstrap
    )()
    scores = {}
    for metric, signature in signatures.items():
        rows = [
            {"score": r.score, "mean": float(r.mean), "interval": float(r.ci), "p": r.p_value}
            for r in results[metric]
        ]
        for row in rows[1:]:
            if row["score"] == rows[0]["score"]:  # sacrebleu's formula gives the smallest p here
                row["p"] = 1.0
        scores[metric] = {"signature": str(signature), "systems": rows}
    return {"scores": scores}


def as_text(result, systems):
    """The scores as a table, then the signatures."""
    scores = result["scores"]
    width = max(len(system.name) for system in systems)
    lines = []
    for number, system in enumerate(systems):
        cells = []
        for metric, of_metric in scores.items():
            own = of_metric["systems"][number]
            p = "" if own["p"] is None else f" p {own['p']:.4f}"
            cells.append(
                f"{metric} {own['score']:.2f} ({own['mean']:.2f} \u00b1 {own['interval']:.2f}){p}"
            )
        lines.append("  ".join([f"{system.name:{width}}", *cells]))
    return [*lines, *(f"{metric}|{own['signature']}" for metric, own in scores.items())]


def main(arguments=None):
    """Score as told; the exit status."""
    parser = argparse.ArgumentParser(prog="score_bleu.py", description=__doc__.splitlines()[0])
    parser.add_argument("--lang", required=True, help="language of the references, such as de")
    parser.add_argument("--lowercase", action="store_true", help="case makes no difference")
    return run(parser, arguments, score, as_text)


if __name__ == "__main__":
    sys.exit(main())
