"""Metrics as functions of statistics that are summed over sentences, so that many selections from
the same candidates can be scored without reading them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

ROUGES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
METRICS = ("wer", "bleu", "chrf", *ROUGES)
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Metric:
    """A metric, in percent, that follows from the sums of S numbers per sentence."""

    name: str
    sign: int  # 1: larger is better; -1: smaller is better
    statistics: Callable[[Any, Any], Sequence[float]]  # (hypothesis, reference) -> (S,)
    value: Callable[[np.ndarray], float]  # (S,) sums over sentences -> percent

    def best(self, values: Mapping[_Key, float]) -> _Key:
        """The key of the best value; the first among equals."""
        return max(values, key=lambda key: self.sign * values[key])


def metric_of(name: str, language: str = "") -> Metric:
    """``wer``: substitutions, deletions and insertions per 100 words of the references, without
    normalisation. ``bleu``, ``chrf``: sacrebleu's, BLEU with its tokenizer for the language.
    ``rouge1``, ``rouge2``, ``rougeL``: see :func:`rouge_of`."""
    if name == "wer":
        return Metric("WER", -1, _errors, _ratio)
    if name in ROUGES:
        return rouge_of(name)
    from sacrebleu.metrics import BLEU, CHRF

    scorer: Any = BLEU(trg_lang=language) if name == "bleu" else CHRF()
    # The two methods with which sacrebleu itself scores resamples
    return Metric(
        "BLEU" if name == "bleu" else "chrF",
        1,
        lambda text, reference: scorer._extract_corpus_statistics([text], [[reference]])[0],
        lambda sums: scorer._aggregate_and_compute([sums.tolist()]).score,
    )


def rouge_of(name: str, stemmed: bool = False) -> Metric:
    """The mean over sentences of rouge-score's F1, with or without Porter's stemming."""
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    scorer = RougeScorer([name], use_stemmer=stemmed)
    return Metric(
        ROUGES[name],
        1,
        lambda text, reference: (scorer.score(reference, text)[name].fmeasure, 1),
        _ratio,
    )


def _ratio(sums: np.ndarray) -> float:
    return 100 * sums[0].item() / sums[1].item()


def _errors(hypothesis: str, reference: str) -> tuple[int, int]:
    from rapidfuzz.distance import Levenshtein

    words = reference.split()
    return Levenshtein.distance(words, hypothesis.split()), len(words)
