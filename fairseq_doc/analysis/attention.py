"""Attention of a translation model from output words to source words.

Axes: T output time, S source time, both with their end mark.
"""

from collections.abc import Sequence
from typing import Any

from fairseq_doc.evaluation.translation import SearchOptions, Translator


def attend(translator: Translator, symbols: Sequence[str], beam: int = 5) -> dict[str, Any]:
    """Translate one sentence, given by its symbols without an end mark.

    Returns ``source``, S symbols as the models read them, <unk> among them; ``output``, T symbols;
    ``weights``, (T, S), whose rows sum to one, of an ensemble the mean; and ``log_prob`` of the
    output, natural logarithm. The last symbol of both sides is </s>.
    """
    source = translator.source(symbols)
    generator = translator.generator(SearchOptions(beam=beam))
    best = translator.generate([source], generator)[0][0]
    reading, writing = translator.task.source_dictionary, translator.task.target_dictionary
    return {
        "source": [reading[index] for index in source.indices.tolist()],
        "output": [writing[index] for index in best["tokens"].tolist()],
        "weights": best["attention"].t().float().tolist(),  # (T, S)
        "log_prob": best["positional_scores"].sum().item(),
    }
