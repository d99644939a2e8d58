"""Metrics as functions of statistics that add up over sentences, so that many choices among the same
candidates are scored without reading them again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_doc.errors import FairseqDocError

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

METRICS = ("wer", "bleu")


@dataclass(frozen=True)
class Metric:
    """S numbers for each sentence; the metric, in percent, follows from their sums."""

    name: str
    sign: int  # 1: the larger the better; -1: the smaller
    statistics: Callable[[Any, Any], Sequence[int]]  # (hypothesis, reference) -> (S,)
    value: Callable[[np.ndarray], float]  # (S,) sums over sentences -> percent


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
    they are. ``bleu``: sacrebleu's, with its tokenizer of the language."""
    if name == "wer":
        return Metric("WER", -1, _errors, lambda sums: 100 * sums[0].item() / sums[1].item())
    # effective_order: no warning; of a sentence only the counts are used.
    metric = bleu_of(language, effective_order=True)
    orders = metric.max_ngram_order

    def statistics(hypothesis: str, reference: str) -> list[int]:
        one = metric.sentence_score(hypothesis, [reference])
        return [*one.counts, *one.totals, one.sys_len, one.ref_len]

    def value(sums: np.ndarray) -> float:
        numbers = sums.tolist()
        correct, total = numbers[:orders], numbers[orders : 2 * orders]
        hypothesis_words, reference_words = numbers[2 * orders :]
        return metric.compute_bleu(
            correct, total, hypothesis_words, reference_words, metric.smooth_method
        ).score

    return Metric("BLEU", 1, statistics, value)


def _errors(hypothesis: str, reference: str) -> tuple[int, int]:
    from rapidfuzz.distance import Levenshtein

    words = reference.split()
    return Levenshtein.distance(words, hypothesis.split()), len(words)
