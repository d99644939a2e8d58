"""Metrics as functions of statistics that are summed over sentences, so that many selections from
the same candidates can be scored without reading them again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fairseq_doc.errors import FairseqDocError, require

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

    def ceiling(self, targets: Iterable[str | None], references: Iterable[str]) -> float | None:
        """The value of the targets after undoing BPE and tokenisation, which a perfect output would
        have too. Targets that are None are left out; None if all are, and for an error rate."""
        pairs = zip(targets, references, strict=True)
        known = [self.statistics(target, own) for target, own in pairs if target is not None]
        return min(100.0, self.value(np.sum(known, axis=0))) if known and self.sign > 0 else None


def metric_of(name: str, language: str = "") -> Metric:
    """``wer``: substitutions, deletions and insertions per 100 words of the references, without
    normalisation. ``bleu``, ``chrf``: sacrebleu's, BLEU with its tokenizer for the language.
    ``rouge1``, ``rouge2``, ``rougeL``: see :func:`rouge_of`."""
    require(name in METRICS, "metric", f"one of {', '.join(METRICS)}", name)
    if name == "wer":
        return Metric("WER", -1, _errors, _ratio)
    if name in ROUGES:
        return rouge_of(name)
    from sacrebleu.metrics import CHRF

    if name == "bleu":
        return sacrebleu_metric("BLEU", bleu_of(language))
    return sacrebleu_metric("chrF", CHRF())


def bleu_of(language: str, **settings: Any) -> Any:
    """sacrebleu's BLEU with its tokenizer for the language. Raises ``FairseqDocError`` if the
    packages of that tokenizer are missing."""
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(trg_lang=language, **settings)
    except RuntimeError as error:  # MeCab, for Japanese and Korean
        raise FairseqDocError(" ".join(str(error).split())) from None


def sacrebleu_metric(name: str, scorer: Any) -> Metric:
    """The metric of a scorer of sacrebleu, by the two methods with which sacrebleu scores
    bootstrap samples."""
    return Metric(
        name,
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
