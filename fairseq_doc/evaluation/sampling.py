"""Text drawn from a language model, word by word.

Axes: S samples, V vocabulary.
"""

import numpy as np
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import unchanged


def sample_text(
    ensemble,
    prompt,
    length,
    samples=1,
    temperature=1.0,
    top_k=None,
    seed=1,
    progress=unchanged,
):
    """Continue a prompt, which stands at the beginning of a text, after ``</s>``.

    Args:
        ensemble: see :class:`fairseq_doc.evaluation.ensemble.Ensemble`.
        prompt: words; none for a text of the model's own.
        length: how many words to draw, end marks among them.
        samples: how many texts.
        temperature: T > 0; each model draws from P^(1/T), renormalised. At T = 1 it is P.
        top_k: draw from the k most probable words alone; None: from all.
        seed: sample i is a function of (seed, i) and the other settings, however many there are.
        progress: (iterable with a length, name) -> iterable.

    Returns:
        One list of words a sample, without the prompt. ``<s>`` and ``<pad>`` are never drawn.

    Raises:
        FairseqDocError: a setting out of its range.
    """
    dictionary = ensemble.dictionary
    for name, value, least in (("length", length, 1), ("samples", samples, 1), ("seed", seed, 0)):
        if value < least:
            raise FairseqDocError(f"--{name} must be at least {least}; got {value}")
    if not 0 < temperature < float("inf"):
        raise FairseqDocError(f"--temperature must be positive; got {temperature}")
    if top_k is not None and top_k < 1:
        raise FairseqDocError(f"--sampling-topk must be at least 1; got {top_k}")

    uniform = np.stack([np.random.default_rng((seed, i)).random(length) for i in range(samples)])
    uniform = torch.from_numpy(uniform).to(ensemble.device)  # (S, length)
    context = [dictionary.eos()] + [dictionary.index(word) for word in prompt]
    context = torch.tensor(context, device=ensemble.device).repeat(samples, 1)  # (S, prompt + 1)
    drawn = []
    for step in progress(range(length), "generate"):
        log_probs = ensemble.next_log_probs(context, step, temperature)  # (S, V)
        log_probs[:, [dictionary.bos(), dictionary.pad()]] = -torch.inf
        context = draw(log_probs, uniform[:, step], top_k).unsqueeze(1)  # (S, 1)
        drawn.append(context)
    texts = torch.cat(drawn, dim=1).tolist()
    return [[dictionary[word] for word in text] for text in texts]


def draw(log_probs, uniform, top_k=None):
    """One word a row by the inverse of the cumulated probabilities, in float64.

    Args:
        log_probs: (S, V), up to a constant a row.
        uniform: (S,) numbers in [0, 1).
        top_k: keep the k most probable words of each row; ties at the edge go to the smaller index.

    Returns:
        (S,) word indices.
    """
    order = log_probs.argsort(dim=-1, descending=True, stable=True)[:, :top_k]  # (S, k)
    probs = log_probs.gather(1, order).double().softmax(-1)
    cumulated = probs.cumsum(-1)
    cumulated = cumulated / cumulated[:, -1:]
    place = torch.searchsorted(
        cumulated, uniform.double()[:, None].contiguous(), right=True
    )  # (S, 1)
    return order.gather(1, place).squeeze(1)
