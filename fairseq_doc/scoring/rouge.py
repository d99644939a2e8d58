"""ROUGE of fairseq-generate's output against references, by rouge-score.

    python scripts/score_rouge.py OUTPUT [OUTPUT ...] --reference RAW

An OUTPUT is fairseq-generate's standard output or its file under --results-path. BPE and
tokenisation are undone before. ROUGE-1, -2 and -L F1, times 100, with and without Porter's stemming,
each the mean over sentences, with its 95 % interval by bootstrap resampling of the sentences, and,
from the second system on, with the p value of its difference from the first by paired bootstrap.
"""

import argparse
import re
import sys

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from score_outputs import run

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
SEED = 12345
# What a reader would count, and rouge-score, which keeps a-z and 0-9, does not: other letters, and #
# where it stands for a digit.
LOST = re.compile(r"[^\W_a-z0-9]|#")


def f_scores(texts, references, stemmed):
    """F1 of every sentence, {type: (N,) array in [0, 1]}."""
    scorer = RougeScorer(list(TYPES), use_stemmer=stemmed)
    scores = [scorer.score(*pair) for pair in zip(references, texts, strict=True)]
    return {kind: np.array([score[kind].fmeasure for score in scores]) for kind in TYPES}


def resampled_means(values, resamples, seed=SEED):
    """Means over sentences drawn with replacement, (resamples,); for one number of sentences and one
    seed always the same sentences, so systems are compared pairwise."""
    rng = np.random.default_rng(seed)
    return np.array(
        [values[rng.integers(len(values), size=len(values))].mean() for _ in range(resamples)]
    )


def p_value(difference, resampled):
    """How often a difference between resamples is as far from the one measured as that is from
    zero, two-sided; at least 1 / (resamples + 1)."""
    beyond = np.abs(resampled - difference) >= abs(difference)
    return (beyond.sum().item() + 1) / (len(resampled) + 1)


def score(systems, references, args):
    """{"scores": {"unstemmed" and "stemmed": {type: [{f1, low, high, p} a system]}}}, F1 times 100,
    the first system the baseline; and how many words of the references are scored in part."""
    result = {}
    for name, stemmed in (("unstemmed", False), ("stemmed", True)):
        of_systems = [f_scores(system.hypotheses, references, stemmed) for system in systems]
        result[name] = {kind: [] for kind in TYPES}
        for kind in TYPES:
            means = [resampled_means(scores[kind], args.bootstrap) for scores in of_systems]
            for number, scores in enumerate(of_systems):
                low, high = np.percentile(means[number], [2.5, 97.5])
                own = {"f1": scores[kind].mean(), "low": low, "high": high}
                own = {key: 100 * value.item() for key, value in own.items()}
                difference = scores[kind].mean() - of_systems[0][kind].mean()
                own["p"] = p_value(difference, means[number] - means[0]) if number else None
                result[name][kind].append(own)
    words, lost = count_lost(references)
    return {"scores": result, "reference words": words, "with characters left out": lost}


def count_lost(references):
    """Words of the references, and those of them with a letter, digit or # that rouge-score leaves
    out or takes for a gap between words."""
    words = [word for line in references for word in line.split()]
    return len(words), sum(LOST.search(word.lower()) is not None for word in words)


def as_text(result, systems):
    """What is left out, then the scores as a table."""
    scores, lost = result["scores"], result["with characters left out"]
    width = max(len(system.name) for system in systems)
    lines = [
        f"{lost:,} of {result['reference words']:,} words of the references hold letters outside "
        "a-z, or # for a digit: rouge-score leaves these out"
    ] * (lost > 0)
    for number, system in enumerate(systems):
        for name, kinds in scores.items():
            cells = []
            for kind, title in TYPES.items():
                own = kinds[kind][number]
                p = "" if own["p"] is None else f" p {own['p']:.4f}"
                cells.append(f"{title} {own['f1']:.2f} [{own['low']:.2f}, {own['high']:.2f}]{p}")
            lines.append("  ".join([f"{system.name:{width}}", f"{name:9}", *cells]))
    return lines


def main(arguments=None):
    """Score as told; the exit status."""
    parser = argparse.ArgumentParser(prog="score_rouge.py", description=__doc__.splitlines()[0])
    parser.add_argument("--lang", default="en", help="language, for --tokenizer (default: en)")
    return run(parser, arguments, score, as_text)


if __name__ == "__main__":
    sys.exit(main())
