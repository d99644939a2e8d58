"""Attention of a translation model from output words to source words.

Axes: T output time, S source time, both with their end mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fairseq_doc.evaluation.translation import SearchOptions, Translator


@dataclass(frozen=True)
class Attention:
    """A sentence, its best output and the attention between them."""

    source: list[str]  # S symbols as the models read them, <unk> among them, the last </s>
    output: list[str]  # T symbols, the last </s>
    weights: torch.Tensor  # (T, S), rows sum to one; for an ensemble, the mean
    log_prob: float  # of the output, natural logarithm


def attend(translator: Translator, symbols: Sequence[str], beam: int = 5) -> Attention:
    """Translate one sentence, given by its symbols without an end mark."""
    source = translator.source(symbols)
    generator = translator.generator(SearchOptions(beam=beam))
    best = translator.generate([source], generator)[0][0]
    reading, writing = translator.task.source_dictionary, translator.task.target_dictionary
    return Attention(
        source=[reading[index] for index in source.indices.tolist()],
        output=[writing[index] for index in best["tokens"].tolist()],
        weights=best["attention"].t().float().cpu(),  # (T, S)
        log_prob=best["positional_scores"].sum().item(),
    )
