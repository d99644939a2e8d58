"""What each component of a mixture contributes to the words of a text.

At every word w, a component of P = sum_j pi_j P_j has a weight pi_j before w is known, a posterior
r_j = pi_j P_j(w) / P(w) after it, log P_j(w), and the words with the largest P_j. The components of
a layer n are also combined:

    pi_n = sum_(j in n) pi_j,    P_n = sum_(j in n) pi_j P_j / pi_n,    P = sum_n pi_n P_n

A posterior above the weight means P_n(w) > P(w): the layer knew this word better than the others.

Axes: N tokens of the text, c of them in a chunk, J components, L layers that have some, G = J + L
parts of a mixture (its components, then its layers), V vocabulary, K words listed for a part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import torch
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import track
from fairseq_doc.evaluation.scoring import MAX_TOKENS, encoded_text
from fairseq_doc.modules.mixture import MixtureOutput, check_finite
from fairseq_doc.ops.matmul import linear
from fairseq_doc.ops.mixture import sum_dtype
from fairseq_doc.ops.mixture_chunks import even_chunk_size

# Kinds of words by their rank in the training text: 1 to 10, 11 to 100, and so on.
FREQUENCY_RANKS = (10, 100, 1000)


@dataclass(frozen=True)
class Parts:
    """Parts of a mixture: all G at all N tokens, or some, ``parts[tokens, parts]``."""

    weights: torch.Tensor  # pi_g, (N, G), float64; sum to one over components, and over layers
    posteriors: torch.Tensor  # r_g, (N, G), float64, with the same sums
    log_probs: torch.Tensor  # log P_g of the token, (N, G), float64, natural logarithm
    words: torch.Tensor  # indices of the K largest P_g, (N, G, K), the most probable first

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def __getitem__(self, at: Any) -> "Parts":
        return Parts(*(tensor[at] for tensor in self.tensors))

    @property
    def log_prob(self) -> torch.Tensor:
        """log P of each token, (N,); the parts must be all components, or all layers."""
        return (self.weights.log() + self.log_probs).logsumexp(1)


def _joined(pieces: Sequence[Parts]) -> Parts:
    """Concatenate consecutive pieces, on the CPU."""
    tensors = zip(*(piece.tensors for piece in pieces), strict=True)
    return Parts(*(torch.cat([tensor.cpu() for tensor in several]) for several in tensors))


@dataclass(frozen=True)
class SentenceComponents:
    """A sentence and its mixture at n tokens."""

    words: list[str]  # those with a mixture (not the first of a carried text), then </s>
    first: int  # the place of words[0] in the sentence, from 1
    parts: Parts  # (n, G)


@dataclass(frozen=True)
class TextComponents:
    """The result of :func:`text_components`."""

    component_layers: list[int]  # the layer that each component comes from, (J,)
    sentences: list[SentenceComponents]
    tokens: torch.Tensor  # indices of the words that have a mixture, (N,)
    parts: Parts  # (N, G)
    dictionary: Dictionary

    @property
    def layer_numbers(self) -> list[int]:
        """The layers that have components, (L,)."""
        return list(dict.fromkeys(self.component_layers))

    @property
    def log_prob(self) -> float:
        """log P of the text."""
        return self.parts[:, : len(self.component_layers)].log_prob.sum().item()


@torch.no_grad()
def text_components(
    ensemble: Ensemble,
    tokenized: Sequence[Sequence[str]],
    state: str = "fresh",
    n_words: int = 0,
    max_tokens: int = MAX_TOKENS,
) -> TextComponents:
    """The components of one model at each word; arguments and errors as of
    :func:`fairseq_doc.evaluation.scoring.score_text`. ``n_words`` is K."""
    dictionary = ensemble.dictionary
    encoded = encoded_text(dictionary, tokenized, state)
    model = ensemble.single
    output = model.decoder.output
    if output.n_components == 1:
        raise FairseqDocError(
            "expected a model with several components; got one whose only component has all the "
            "weight"
        )
    carried = state == "carried"
    # A stream is read up to its last token and predicted from its second.
    after_eos = torch.tensor([dictionary.eos()])
    streams = [torch.cat(encoded)] if carried else [torch.cat([after_eos, x]) for x in encoded]
    windows = [
        (number, stream[start : start + max_tokens + 1].to(ensemble.device))
        for stream in streams
        for number, start in enumerate(range(0, len(stream) - 1, max_tokens))
    ]
    pieces = []
    for number, tokens in track(windows, "components"):
        params = model(tokens[None, :-1], window=number)[0]
        pieces.append(mixture_parts(output, params, tokens[1:], n_words))
    parts = _joined(pieces)
    sentences: list[SentenceComponents] = []
    start = 0
    for line in tokenized:
        unscored = int(carried and not sentences)  # a carried text's first word
        words = [*line, dictionary.eos_word][unscored:]
        stop = start + len(words)
        sentences.append(SentenceComponents(words, unscored + 1, parts[start:stop]))
        start = stop
    predicted = torch.cat([stream[1:] for stream in streams])
    return TextComponents(_layers_of(model), sentences, predicted, parts, dictionary)


@torch.no_grad()
def mixture_parts(
    output: MixtureOutput,
    mixture_params: torch.Tensor,
    target: torch.Tensor,
    n_words: int = 0,
    chunk_bytes: int | None = None,
) -> Parts:
    """The parts (N, G), on the CPU, at targets (N,), for ``mixture_params`` (..., N, J d + J + 1).
    Logits are computed in chunks of ``chunk_bytes``; None: as in training."""
    mixture = output.unpack(mixture_params)
    chunk = even_chunk_size(mixture, chunk_bytes)
    pieces = [
        _of_chunk(output, *tensors, n_words)
        for tensors in zip(
            mixture.components.split(chunk),  # (c, J, d)
            mixture.log_weights.split(chunk),  # (c, J)
            target.split(chunk),  # (c,)
            strict=True,
        )
    ]
    parts = _joined(pieces)
    check_finite(parts[:, : output.n_components].log_prob)
    return parts


def _of_chunk(
    output: MixtureOutput,
    vectors: torch.Tensor,
    log_weights: torch.Tensor,
    target: torch.Tensor,
    n_words: int,
) -> Parts:
    counts = [count for count in output.components if count > 0]  # of each layer
    rows = linear(vectors.flatten(0, 1), output.weight, output.bias, output.precision)  # (c J, V)
    rows = rows.unflatten(0, log_weights.shape).to(sum_dtype(rows.dtype))  # (c, J, V)
    normaliser = rows.logsumexp(2)  # (c, J)
    of_target = rows.gather(2, target[:, None, None].expand(-1, rows.size(1), 1)).squeeze(2)
    log_probs = of_target.double() - normaliser.double()  # (c, J)
    log_weights = log_weights.double().log_softmax(1)  # their sum is one in float64 too
    layer_weights = _sum_by_layer(log_weights, counts)  # (c, L)
    layer_log_probs = _sum_by_layer(log_weights + log_probs, counts) - layer_weights
    # The order of logits is that of probabilities, and the order of pi_n P_n that of P_n.
    n_words = min(n_words, rows.size(2))
    words = rows.topk(n_words, 2).indices  # (c, J, K)
    layer_words = words[:, : len(counts)]
    if n_words:
        rows += (log_weights - normaliser).to(rows.dtype).unsqueeze(2)  # log pi_j P_j
        layer_words = _sum_by_layer(rows, counts).topk(n_words, 2).indices  # (c, L, K)
    posteriors = (log_weights + log_probs).softmax(1)
    layer_posteriors = (layer_weights + layer_log_probs).softmax(1)
    return Parts(
        torch.cat([log_weights, layer_weights], dim=1).exp(),
        torch.cat([posteriors, layer_posteriors], dim=1),
        torch.cat([log_probs, layer_log_probs], dim=1),
        torch.cat([words, layer_words], dim=1).int(),
    )


def _sum_by_layer(logs: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """log of the sum over each layer's components: (c, J, ...) -> (c, L, ...)."""
    return torch.stack([part.logsumexp(1) for part in logs.split(counts, dim=1)], dim=1)


# ---- over a text ----


def summarise(text: TextComponents, min_count: int, n_words: int) -> list[dict[str, Any]]:
    """For each of the G parts the means of ``weight``, ``posterior`` and ``log_prob`` over the
    text, and ``words``: up to ``n_words`` words, those with the largest mean posterior among the
    ones that occur at least ``min_count`` times and whose mean posterior exceeds ``weight``. Each
    has its ``count`` and the mean ``weight`` and ``posterior`` where it occurs."""
    parts = text.parts
    counts = torch.bincount(text.tokens, minlength=len(text.dictionary))  # (V,)
    frequent = (counts >= max(1, min_count)).nonzero().squeeze(1)  # (F,)
    weights, posteriors = (
        (values.new_zeros(len(counts), values.size(1)).index_add_(0, text.tokens, values)[frequent])
        / counts[frequent].unsqueeze(1)
        for values in (parts.weights, parts.posteriors)
    )  # (F, G)
    summaries = []
    means = zip(*(x.mean(0).tolist() for x in parts.tensors[:3]), strict=True)
    for part, (weight, posterior, log_prob) in enumerate(means):
        order = posteriors[:, part].sort(descending=True, stable=True).indices[:n_words].tolist()
        words = [
            {
                "word": text.dictionary[int(frequent[row])],
                "count": int(counts[frequent[row]]),
                "weight": weights[row, part].item(),
                "posterior": posteriors[row, part].item(),
            }
            for row in order
            if posteriors[row, part] > weight
        ]
        summary = {"weight": weight, "posterior": posterior, "log_prob": log_prob, "words": words}
        summaries.append(summary)
    return summaries


def by_frequency(text: TextComponents) -> list[dict[str, Any]]:
    """The layers' weights and posteriors by kind of word: the end mark, unknown words, and the
    others by their frequency rank in the training text. Each has ``kind``, such as ``words 11 to
    100``; ``tokens``, their number in the text; and ``layers``, each with ``layer`` and the mean
    ``weight`` and ``posterior`` over these tokens."""
    dictionary = text.dictionary
    ranks = torch.full((len(dictionary),), len(dictionary))  # of fairseq's own symbols
    own = dictionary.nspecial
    order = torch.tensor(dictionary.count[own:]).sort(descending=True, stable=True).indices
    ranks[own + order] = torch.arange(1, len(order) + 1)
    is_end, is_unknown = text.tokens == dictionary.eos(), text.tokens == dictionary.unk()
    rank = ranks[text.tokens].masked_fill(is_end | is_unknown, 0)
    kinds = {
        f"end mark {dictionary.eos_word}": is_end,
        f"unknown {dictionary.unk_word}": is_unknown,
    }
    if len(set(dictionary.count[own:])) == 1:  # an imported dictionary: the ranks mean nothing
        kinds["other words"] = rank > 0
    else:
        for below, last in pairwise((0, *FREQUENCY_RANKS)):
            kinds[f"words {below + 1:,} to {last:,}"] = (rank > below) & (rank <= last)
        kinds[f"words after {last:,}"] = rank > last
    found = []
    for kind, inside in kinds.items():
        if inside.any():
            parts = text.parts[inside, len(text.component_layers) :]
            means = (parts.weights.mean(0).tolist(), parts.posteriors.mean(0).tolist())
            layers = [
                {"layer": layer, "weight": weight, "posterior": posterior}
                for layer, weight, posterior in zip(text.layer_numbers, *means, strict=True)
            ]
            found.append({"kind": kind, "tokens": int(inside.sum()), "layers": layers})
    return found


# ---- weights alone, over a split ----


@dataclass(frozen=True)
class MixtureWeights:
    """Mean weights of a mixture's components over a text (the paper's Table 4)."""

    layers: list[int]  # the layer n that each component comes from, (J,)
    weights: list[float]  # the mean of pi_j over the tokens, (J,); their sum is one
    tokens: int

    @property
    def by_layer(self) -> dict[int, float]:
        """{layer: sum of the weights of its components}."""
        totals = dict.fromkeys(self.layers, 0.0)
        for layer, weight in zip(self.layers, self.weights, strict=True):
            totals[layer] += weight
        return totals

    @property
    def coefficient_of_variation(self) -> float:
        """sqrt(beta) of Eq. 12-13: population standard deviation divided by mean."""
        return pstdev(self.weights) / fmean(self.weights)


@torch.no_grad()
def mixture_weights(ensemble: Ensemble, split: str) -> MixtureWeights:
    """Mean weights of one model over a split, with a carried state."""
    model = ensemble.single
    total, tokens = 0.0, 0
    for sample in track(windows_of(ensemble, split), f"weights {split}"):
        source = sample["net_input"]["src_tokens"].to(ensemble.device)
        _, extra = model(source, window=sample["net_input"]["window"])
        total = total + extra["log_weights"].double().exp().sum((0, 1))  # (J,)
        tokens += source.numel()
    mean = torch.as_tensor(total) / tokens
    check_finite(mean)
    return MixtureWeights(_layers_of(model), mean.tolist(), tokens)


def _layers_of(model: Any) -> list[int]:
    components = model.decoder.output.components  # number of components from each layer
    return [layer for layer, count in enumerate(components) for _ in range(count)]
