"""Metrics as functions of statistics that add up over sentences, so that many choices among the same
candidates are scored without reading them again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_doc.errors import FairseqDocError

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

ROUGES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
METRICS = ("wer", "bleu", "chrf", *ROUGES)


@dataclass(frozen=True)
class Metric:
    """S numbers for each sentence; the metric, in percent, follows from their sums."""

    name: str
    sign: int  # 1: the larger the better; -1: the smaller
    statistics: Callable[[Any, Any], Sequence[float]]  # (hypothesis, reference) -> (S,)
    value: Callable[[np.ndarray], float]  # (S,) sums over sentences -> percent

    def table(self, candidates: Sequence[Any], reference: Any) -> np.ndarray:
        """(n, S) the statistics of each of n candidates for a reference."""
        return np.array([self.statistics(one, reference) for one in candidates])


def bleu_of(language: str, **settings: Any) -> "BLEU":
    """sacrebleu's BLEU with its tokenizer of a language. Raises ``FairseqDocError`` for a language
    whose tokenizer is not installed."""
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(trg_lang=language, **settings)
    except (RuntimeError, ImportError) as error:  # of ja and ko
        reason = " ".join(str(error).split())
        raise FairseqDocError(f"--lang {language}: sacrebleu has no tokenizer: {reason}") from None


def metric_of(name: str, language: str = "") -> Metric:
    """``wer``: substitutions, deletions and insertions for 100 words of the references, words as
    they are. ``bleu``, ``chrf``: sacrebleu's, BLEU with its tokenizer of the language. ``rouge1``,
    ``rouge2``, ``rougeL``: rouge-score's F1 without stemming, the mean over sentences."""
    if name == "wer":
        return Metric("WER", -1, _errors, lambda sums: 100 * sums[0].item() / sums[1].item())
    if name in ROUGES:
        return _rouge(name)
    if name == "bleu":
        return _of_sacrebleu("BLEU", bleu_of(language))
    from sacrebleu.metrics import CHRF

    return _of_sacrebleu("chrF", CHRF())


def _of_sacrebleu(name: str, metric: Any) -> Metric:
    """By the two methods that sacrebleu's own metrics and resampling share."""

    def statistics(hypothesis: str, reference: str) -> list[float]:
        return metric._extract_corpus_statistics([hypothesis], [[reference]])[0]

    def value(sums: np.ndarray) -> float:
        return metric._aggregate_and_compute([sums.tolist()]).score

    return Metric(name, 1, statistics, value)


def _rouge(name: str) -> Metric:
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    scorer = RougeScorer([name], use_stemmer=False)

    def statistics(hypothesis: str, reference: str) -> tuple[float, int]:
        return scorer.score(reference, hypothesis)[name].fmeasure, 1

    return Metric(ROUGES[name], 1, statistics, lambda sums: 100 * sums[0].item() / sums[1].item())


def _errors(hypothesis: str, reference: str) -> tuple[int, int]:
    from rapidfuzz.distance import Levenshtein

    words = reference.split()
    return Levenshtein.distance(words, hypothesis.split()), len(words)
