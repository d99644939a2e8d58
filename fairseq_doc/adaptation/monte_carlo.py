"""Monte-Carlo evaluation: means over samples of dropout masks; probabilities at temperatures.

Each of K samples is a pass over the whole text with dropout as in training and its own carried
state. Masks that last for a window are drawn anew every --bptt steps, as in training. The samples'
probabilities are averaged at each token: their arithmetic mean, or their geometric mean,
renormalised, which for one softmax is the mean of the logits (Melis et al., 2018; deepmind/lamb
carries the state of the pass without dropout instead).

Axes: K samples, B columns, T time, N tokens, V vocabulary, R temperatures, C mixture parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fairseq_doc.evaluation.ensemble import average_log_probs

AVERAGES = ("arithmetic", "geometric")
# Bytes of log P that are in memory at once; glibc maps new pages for every block above 32 MiB.
BLOCK_BYTES = 2**24


@contextmanager
def sampled(model: Any, samples: int) -> Iterator[Callable[[torch.Tensor, int], tuple]]:
    """Yield a function (tokens (B, T), window number) -> (mixture parameters (K, B, T, C), the
    model's extra outputs; {} with samples). With K = ``samples`` > 0 the model applies dropout as
    in training; 0 gives K = 1 without dropout."""
    decoder = model.decoder
    side_by_side = decoder.masks_of_each_stream
    states: list[Any] = [{} for _ in range(samples)]

    def without_dropout(source, window):
        params, extra = model(source, window=window)
        return params[None], extra

    def forward(source, window):
        if side_by_side:
            params, _ = model(source.repeat(samples, 1), window=window)
            return params.unflatten(0, (samples, -1)), {}
        parts = []
        for k in range(samples):
            decoder.evaluation_states = states[k]
            parts.append(model(source, window=window)[0])
            states[k] = decoder.evaluation_states
        return torch.stack(parts), {}

    if not samples:
        yield without_dropout
        return
    decoder.sample_dropout(True)
    try:
        yield forward
    finally:
        decoder.sample_dropout(False)


def mean_log_probs(
    model: Any,
    params: torch.Tensor,
    target: torch.Tensor,
    temperatures: Sequence[float] = (1.0,),
    average: str = "arithmetic",
) -> torch.Tensor:
    """log of the mean over samples of P^(1/T)(target), (R, N), float64; ``params`` (K, N, C),
    ``target`` (N,). Temperatures apply to each sample before an arithmetic mean, and to a geometric
    mean itself."""
    samples, output = len(params), model.decoder.output
    if list(temperatures) == [1.0] and (average == "arithmetic" or samples == 1):
        nll = model.token_nll((params,), target.repeat(samples), -100, reduction="none")
        return average_log_probs([*-nll.double().view(samples, 1, -1)])
    block = max(1, BLOCK_BYTES // (4 * len(output.weight)))
    parts = []
    for some, words in zip(params.split(block, dim=1), target.split(block), strict=True):
        of_samples: Any = map(output.log_probs, some)
        if average == "geometric" and samples > 1:
            of_samples = [(sum(of_samples) / samples).log_softmax(-1)]
        rows = [at_temperatures(log_probs, words, temperatures) for log_probs in of_samples]
        parts.append(average_log_probs(rows))
    return torch.cat(parts, dim=1)


def at_temperatures(
    log_probs: torch.Tensor, target: torch.Tensor, temperatures: Sequence[float]
) -> torch.Tensor:
    """log P^(1/T)(target), renormalised, (R, N), float64; ``log_probs`` (N, V), ``target`` (N,).
    For the targets alone it takes a third of the time of
    :func:`fairseq_doc.modules.mixture.at_temperature`."""
    chosen = log_probs.gather(1, target[:, None])[:, 0].double()
    rows = [
        chosen if t == 1.0 else chosen / t - (log_probs / t).logsumexp(1).double()
        for t in temperatures
    ]
    return torch.stack(rows)
