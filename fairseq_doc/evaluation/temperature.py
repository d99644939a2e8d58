"""Perplexity at other temperatures, and the best one on a validation split.

At temperature T a model's P becomes P^(1/T), renormalised; for one softmax, logits divided by T. Melis et
al. (2018) search a factor of the logits, 1 / T, from 1.06 down to .8 in steps of .02.

Axes: N tokens, V vocabulary, S temperatures.
"""

from collections.abc import Sequence

import torch

from fairseq_doc.errors import FairseqDocError

GRID = tuple(1 / (factor / 100) for factor in range(106, 78, -2))


def check_temperatures(temperatures: Sequence[float]) -> None:
    """Raise ``FairseqDocError`` for a temperature outside [.01, 100]: beyond it P is the same for all
    words, or one for a single word, in the numbers that there are."""
    for temperature in temperatures:
        if not 0.01 <= temperature <= 100:
            raise FairseqDocError(f"--temperature: expected .01 to 100; got {temperature}")


def at_temperatures(
    log_probs: torch.Tensor, target: torch.Tensor, temperatures: Sequence[float]
) -> torch.Tensor:
    """log P^(1/T)(target), renormalised.

    Args:
        log_probs: log P of every word, (N, V).
        target: (N,) words.
        temperatures: T, S of them.

    Returns:
        (S, N), float64.
    """
    chosen = log_probs.gather(1, target[:, None])[:, 0].double()
    rows = []
    for temperature in temperatures:
        if temperature == 1.0:
            rows.append(chosen)
        else:
            total = (log_probs / temperature).logsumexp(1).double()
            rows.append(chosen / temperature - total)
    return torch.stack(rows)
