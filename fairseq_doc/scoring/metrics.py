"""Metrics as functions of statistics that are summed over sentences, so that many selections from
the same candidates can be scored without reading them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fairseq_doc.errors import FairseqDocError

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

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


def bleu_of(language: str, **settings: Any) -> "BLEU":
    """sacrebleu's BLEU with its tokenizer for a language. Raises ``FairseqDocError`` if the
    tokenizer is not installed."""
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(trg_lang=language, **settings)
    except (RuntimeError, ImportError) as error:  # possible for ja and ko
        reason = " ".join(str(error).split())
        raise FairseqDocError(f"--lang {language}: sacrebleu has no tokenizer: {reason}") from None


def metric_of(name: str, language: str = "") -> Metric:
    """``wer``: substitutions, deletions and insertions per 100 words of the references, without
    normalisation. ``bleu``, ``chrf``: sacrebleu's, BLEU with its tokenizer for the language.
    ``rouge1``, ``rouge2``, ``rougeL``: mean over sentences of rouge-score's F1 without stemming."""
    if name == "wer":
        return Metric("WER", -1, _errors, lambda sums: 100 * sums[0].item() / sums[1].item())
    if name in ROUGES:
        return rouge_of(name)
    if name == "bleu":
        return _of_sacrebleu("BLEU", bleu_of(language))
    from sacrebleu.metrics import CHRF

    return _of_sacrebleu("chrF", CHRF())


def _of_sacrebleu(name: str, metric: Any) -> Metric:
    """A metric that uses the two methods with which sacrebleu itself scores resamples."""

    def statistics(hypothesis: str, reference: str) -> list[float]:
        return metric._extract_corpus_statistics([hypothesis], [[reference]])[0]

    def value(sums: np.ndarray) -> float:
        return metric._aggregate_and_compute([sums.tolist()]).score

    return Metric(name, 1, statistics, value)


def rouge_of(name: str, stemmed: bool = False) -> Metric:
    """The mean over sentences of rouge-score's F1, with or without Porter's stemming."""
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    scorer = RougeScorer([name], use_stemmer=stemmed)

    def statistics(hypothesis: str, reference: str) -> tuple[float, int]:
        return scorer.score(reference, hypothesis)[name].fmeasure, 1

    return Metric(ROUGES[name], 1, statistics, lambda sums: 100 * sums[0].item() / sums[1].item())


def _errors(hypothesis: str, reference: str) -> tuple[int, int]:
    from rapidfuzz.distance import Levenshtein

    words = reference.split()
    return Levenshtein.distance(words, hypothesis.split()), len(words)
