"""Sampling text from a language model, word by word.

Axes: S samples, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fairseq_doc.errors import require
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import track
from fairseq_doc.evaluation.scorer import scorer


def sample_text(
    ensemble: Ensemble,
    prompt: Sequence[str],
    length: int,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 1,
    top_p: float | None = None,
    allow_unknown: bool = False,
) -> list[list[str]]:
    """The tokens of each sample that continues a prompt, without the prompt. The model reads it as
    the beginning of a text, after ``</s>``. ``<s>`` and ``<pad>`` are never drawn, and ``<unk>``
    only if it is allowed: the probabilities of the others are renormalised.

    Args:
        length: number of tokens to draw, end marks included.
        temperature: T > 0; each model draws from P^(1/T), renormalised.
        top_k: draw from the k most probable words only; None: from all.
        top_p: nucleus sampling: of the words that ``top_k`` keeps, renormalised, draw from the
            smallest set of the most probable ones with at least this total probability; None: from
            all.
        allow_unknown: ``<unk>`` may be drawn too.
        seed: sample i depends on (seed, i) and the other settings, not on ``samples``.
    """
    require(temperature > 0, "temperature", "above 0", temperature)
    require(top_k is None or top_k >= 1, "top_k", "at least 1", top_k)
    require(top_p is None or 0 < top_p <= 1, "top_p", "above 0 and at most 1", top_p)
    dictionary, device = ensemble.dictionary, ensemble.device
    numbers = np.stack([np.random.default_rng((seed, i)).random(length) for i in range(samples)])
    uniform = torch.from_numpy(numbers).to(device)  # (S, length)
    start = [dictionary.eos()] + [dictionary.index(word) for word in prompt]
    context = torch.tensor(start, device=device).repeat(samples, 1)  # (S, prompt + 1)
    never = [dictionary.bos(), dictionary.pad()] + [dictionary.unk()] * (not allow_unknown)
    drawn = []
    with scorer(ensemble) as one:
        for step in track(range(length), "generate"):
            log_probs = one.next_log_probs(context, step, temperature)  # (S, V)
            log_probs[:, never] = -torch.inf
            context = draw(log_probs, uniform[:, step], top_k, top_p).unsqueeze(1)  # (S, 1)
            drawn.append(context)
    texts = torch.cat(drawn, dim=1).tolist()
    return [[dictionary[word] for word in text] for text in texts]


def draw(
    log_probs: torch.Tensor,
    uniform: torch.Tensor,
    top_k: int | None = None,
    top_p: float | None = None,
) -> torch.Tensor:
    """Draw one word per row, (S,), by the inverse of the cumulative distribution in float64, from
    ``log_probs`` (S, V), normalised or not, and ``uniform`` (S,) in [0, 1). Of equally probable
    words ``top_k`` and ``top_p`` prefer the one with the smaller index."""
    order = log_probs.argsort(dim=-1, descending=True, stable=True)[:, :top_k]  # (S, k)
    probs = log_probs.gather(1, order).double().softmax(-1)
    if top_p is not None:
        before = probs.cumsum(-1) - probs  # the probability of all more probable words
        probs = probs.masked_fill(before >= top_p, 0.0)
    cumulative = probs.cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    thresholds = uniform.double().unsqueeze(1).contiguous()  # (S, 1)
    rank = torch.searchsorted(cumulative, thresholds, right=True)  # (S, 1)
    return order.gather(1, rank).squeeze(1)
