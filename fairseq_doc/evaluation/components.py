"""What each component of a mixture contributes to the words of a text.

A model's P = sum_j pi_j P_j is seen at every word w of the text: the weight pi_j before w is known, the
posterior r_j = pi_j P_j(w) / P(w) after it, log P_j(w), and the words that P_j gives most probability.
The components of one layer n are also seen as one, with the weight pi_n, the sum of theirs, and

    P_n = sum_(j in n) pi_j P_j / pi_n,

so that P = sum_n pi_n P_n. A word's part of the posterior that exceeds the weight is what the layer knew
of this word better than the others did.

Axes: N tokens of the text, c of them in a chunk, J components, L layers that have some, G parts of a
mixture (its components or its layers), V vocabulary, K words listed for a part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import torch
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.scoring import MAX_TOKENS, encoded_text
from fairseq_doc.modules.mixture import MixtureOutput, check_finite
from fairseq_doc.ops.matmul import linear
from fairseq_doc.ops.mixture_chunks import even_chunk_size
from fairseq_doc.ops.reference import sum_dtype

# Words by their frequency in training: the first 10, those after them up to the 100th, and so on.
FREQUENCY_RANKS = (10, 100, 1000)


@dataclass(frozen=True)
class Parts:
    """G parts of a mixture, its components or its layers, at N tokens.

    Attributes:
        weights: pi_g, (N, G), float64; each token's sum to one.
        posteriors: r_g, (N, G), float64; each token's sum to one.
        log_probs: log P_g of the token, (N, G), float64, natural logarithm.
        words: the K words of the largest P_g, (N, G, K) indices, the most probable first.
    """

    weights: torch.Tensor
    posteriors: torch.Tensor
    log_probs: torch.Tensor
    words: torch.Tensor

    @property
    def log_prob(self) -> torch.Tensor:
        """log P of each token, (N,), natural logarithm."""
        return (self.weights.log() + self.log_probs).logsumexp(1)

    @classmethod
    def empty(cls, tokens: int, parts: int, words: int) -> "Parts":
        """Memory for so many; :meth:`put` fills it."""
        weights, posteriors, log_probs = torch.empty(3, tokens, parts, dtype=torch.float64)
        best = torch.empty(tokens, parts, words, dtype=torch.int32)
        return cls(weights, posteriors, log_probs, best)

    def put(self, start: int, piece: "Parts") -> None:
        """Copy a piece to the tokens from ``start`` on."""
        for field in fields(self):
            tensor = getattr(piece, field.name)
            getattr(self, field.name)[start : start + len(tensor)] = tensor

    def split(self, counts: Sequence[int]) -> list["Parts"]:
        """The parts at the first ``counts[0]`` tokens, at the next ``counts[1]``, and so on."""
        tensors = [getattr(self, field.name).split(list(counts)) for field in fields(self)]
        return [Parts(*of_some) for of_some in zip(*tensors, strict=True)]


@dataclass(frozen=True)
class SentenceComponents:
    """A sentence and its mixture.

    Attributes:
        words: its words and the end mark.
        unscored: words at its start without a mixture: 1 for the first sentence of a carried text,
            whose first word counts as certain; else 0.
        components, layers: at the other words.
    """

    words: list[str]
    unscored: int
    components: Parts
    layers: Parts


@dataclass(frozen=True)
class TextComponents:
    """The result of :func:`text_components`.

    Attributes:
        component_layers: the layer that each component comes from, (J,).
        sentences: in the order of the input.
        tokens: the words that have a mixture, (N,) indices.
        components, layers: at these.
        dictionary: the model's.
    """

    component_layers: list[int]
    sentences: list[SentenceComponents]
    tokens: torch.Tensor
    components: Parts
    layers: Parts
    dictionary: Dictionary

    @property
    def layer_numbers(self) -> list[int]:
        """The layers that have components, (L,)."""
        return list(dict.fromkeys(self.component_layers))


@torch.no_grad()
def text_components(
    ensemble: Ensemble,
    tokenized: Sequence[Sequence[str]],
    state: str = "fresh",
    n_words: int = 0,
    max_tokens: int = MAX_TOKENS,
    progress: Progress = no_progress,
) -> TextComponents:
    """The components at each word of sentences.

    Args:
        ensemble: one model.
        tokenized: lists of words, see :func:`fairseq_doc.evaluation.scoring.check_sentences`.
        state: ``fresh`` or ``carried``, see :mod:`fairseq_doc.evaluation.scoring`.
        n_words: K, the words listed for each component and layer at each token; V at most.
        max_tokens: tokens that the layers read at once. The logits are computed for fewer at once.
        progress: see :mod:`fairseq_doc.evaluation.progress`.

    Raises:
        FairseqDocError: several models, a model with one component, another state, ``max_tokens``
            below 1, a carried text of one token, or a score that is not finite.
    """
    dictionary = ensemble.dictionary
    encoded = encoded_text(dictionary, tokenized, state, max_tokens)
    model = ensemble.single
    output = model.decoder.output
    if output.n_components == 1:
        raise FairseqDocError(
            "expected a model with several components; got one whose only component has all the weight"
        )
    carried = state == "carried"
    # What is read, and from its second token on what is predicted.
    after_eos = torch.tensor([dictionary.eos()])
    streams = [torch.cat(encoded)] if carried else [torch.cat([after_eos, x]) for x in encoded]
    windows = [
        (number, stream[start : start + max_tokens + 1].to(ensemble.device))
        for stream in streams
        for number, start in enumerate(range(0, len(stream) - 1, max_tokens))
    ]
    predicted = torch.cat([stream[1:] for stream in streams])
    # All memory that stays is taken first. Small pieces of it between large temporary ones would keep
    # these from being used again.
    components, layers = _memory_for(output, len(predicted), n_words)
    done = 0
    for number, tokens in progress(windows, "components"):
        mixture_params = model(tokens[None, :-1], window=number)[0]
        pieces = mixture_parts(output, mixture_params, tokens[1:], n_words)
        for whole, piece in zip((components, layers), pieces, strict=True):
            whole.put(done, piece)
        done += len(tokens) - 1
    unscored = [int(carried and number == 0) for number in range(len(encoded))]
    counts = [len(words) - left for words, left in zip(encoded, unscored, strict=True)]
    of_sentences = zip(
        tokenized, unscored, components.split(counts), layers.split(counts), strict=True
    )
    sentences = [
        SentenceComponents([*words, dictionary.eos_word], left, own_components, own_layers)
        for words, left, own_components, own_layers in of_sentences
    ]
    of_layers = [layer for layer, count in enumerate(output.components) for _ in range(count)]
    return TextComponents(of_layers, sentences, predicted, components, layers, dictionary)


@torch.no_grad()
def mixture_parts(
    output: MixtureOutput,
    mixture_params: torch.Tensor,
    target: torch.Tensor,
    n_words: int = 0,
    chunk_bytes: int | None = None,
) -> tuple[Parts, Parts]:
    """The components and the layers at N tokens, in chunks: memory holds the logits of one.

    Args:
        output: the mixture.
        mixture_params: (..., N, J d + J + 1), what ``output`` returned.
        target: (N,) the words that came.
        n_words: K, or V where there are fewer words.
        chunk_bytes: memory for one chunk of logits; None: as in training.

    Returns:
        (components, layers), on the CPU.

    Raises:
        FairseqDocError: a score that is not finite.
    """
    mixture = output.unpack(mixture_params)
    vectors, log_weights = mixture.components, mixture.log_weights  # (N, J, d), (N, J)
    components, layers = _memory_for(output, len(target), n_words)
    chunk = even_chunk_size(mixture, chunk_bytes)
    for start in range(0, len(target), chunk):
        at = slice(start, start + chunk)
        pieces = _of_chunk(output, vectors[at], log_weights[at], target[at], n_words)
        for whole, piece in zip((components, layers), pieces, strict=True):
            whole.put(start, piece)
    check_finite(components.log_prob)
    return components, layers


def _memory_for(output: MixtureOutput, tokens: int, n_words: int) -> tuple[Parts, Parts]:
    """(components, layers), empty."""
    n_layers = sum(count > 0 for count in output.components)
    n_words = min(n_words, len(output.weight))
    return (
        Parts.empty(tokens, output.n_components, n_words),
        Parts.empty(tokens, n_layers, n_words),
    )


def _of_chunk(
    output: MixtureOutput,
    vectors: torch.Tensor,
    log_weights: torch.Tensor,
    target: torch.Tensor,
    n_words: int,
) -> tuple[Parts, Parts]:
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
    return (
        _parts(log_weights, log_probs, words),
        _parts(layer_weights, layer_log_probs, layer_words),
    )


def _sum_by_layer(logs: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """log of the sum over each layer's components: (c, J, ...) -> (c, L, ...)."""
    return torch.stack([part.logsumexp(1) for part in logs.split(counts, dim=1)], dim=1)


def _parts(log_weights: torch.Tensor, log_probs: torch.Tensor, words: torch.Tensor) -> Parts:
    posteriors = (log_weights + log_probs).softmax(1)
    return Parts(log_weights.exp(), posteriors, log_probs, words)


# ---- over a text ----


@dataclass(frozen=True)
class WordShare:
    """How much of a word is due to a part of the mixture.

    Attributes:
        word: the word.
        count: how often it occurs.
        weight: mean weight of the part where it occurs.
        posterior: mean posterior of the part there.
    """

    word: str
    count: int
    weight: float
    posterior: float


@dataclass(frozen=True)
class PartSummary:
    """A part of the mixture over a text.

    Attributes:
        weight: mean weight.
        posterior: mean posterior: the part of the text's words that is due to this part.
        log_prob: mean log P_g, natural logarithm: how well this part alone predicts the text.
        words: those whose mean posterior exceeds the mean weight over the text most.
    """

    weight: float
    posterior: float
    log_prob: float
    words: list[WordShare]


def summarise(
    text: TextComponents, parts: Parts, min_count: int, n_words: int
) -> list[PartSummary]:
    """Each of the G parts over a text.

    Args:
        text: the text.
        parts: its ``components`` or its ``layers``.
        min_count: how often a word must occur to be listed.
        n_words: words listed for a part, at most.
    """
    counts = torch.bincount(text.tokens, minlength=len(text.dictionary))  # (V,)
    frequent = (counts >= max(1, min_count)).nonzero().squeeze(1)  # (F,)
    weights, posteriors = (
        _mean_by_word(values, text.tokens, counts)[frequent]
        for values in (parts.weights, parts.posteriors)
    )  # (F, G)
    summaries = []
    for part, (weight, posterior, log_prob) in enumerate(
        zip(
            parts.weights.mean(0).tolist(),
            parts.posteriors.mean(0).tolist(),
            parts.log_probs.mean(0).tolist(),
            strict=True,
        )
    ):
        order = posteriors[:, part].sort(descending=True, stable=True).indices[:n_words].tolist()
        shares = [
            WordShare(
                text.dictionary[int(frequent[row])],
                int(counts[frequent[row]]),
                weights[row, part].item(),
                posteriors[row, part].item(),
            )
            for row in order
        ]
        listed = [share for share in shares if share.posterior > weight]
        summaries.append(PartSummary(weight, posterior, log_prob, listed))
    return summaries


def _mean_by_word(values: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """(N, G) -> the mean over the occurrences of each word, (V, G); not a number where it has none."""
    sums = values.new_zeros(len(counts), values.size(1)).index_add_(0, tokens, values)
    return sums / counts.unsqueeze(1)


@dataclass(frozen=True)
class KindShare:
    """How much of one kind of words is due to each part of the mixture.

    Attributes:
        kind: such as ``words 11 to 100``, by their frequency in training.
        tokens: how many of the text's tokens are of this kind.
        weights, posteriors: their means over these, (G,).
    """

    kind: str
    tokens: int
    weights: list[float]
    posteriors: list[float]


def by_frequency(text: TextComponents, parts: Parts) -> list[KindShare]:
    """The kinds of words that occur: the end mark, unknown words, and the others by their rank in the
    dictionary's counts, which are those of the training text."""
    dictionary = text.dictionary
    ranks = torch.full((len(dictionary),), len(dictionary))  # of fairseq's own symbols
    own = dictionary.nspecial
    order = torch.tensor(dictionary.count[own:]).sort(descending=True, stable=True).indices
    ranks[own + order] = torch.arange(1, len(order) + 1)
    kinds = [
        (f"end mark {dictionary.eos_word}", text.tokens == dictionary.eos()),
        (f"unknown {dictionary.unk_word}", text.tokens == dictionary.unk()),
    ]
    is_word = ~(kinds[0][1] | kinds[1][1])
    rank = ranks[text.tokens]
    for below, last in pairwise((0, *FREQUENCY_RANKS)):
        inside = is_word & (rank > below) & (rank <= last)
        kinds.append((f"words {below + 1:,} to {last:,}", inside))
    kinds.append((f"words after {last:,}", is_word & (rank > last)))
    return [
        KindShare(
            kind,
            int(inside.sum()),
            parts.weights[inside].mean(0).tolist(),
            parts.posteriors[inside].mean(0).tolist(),
        )
        for kind, inside in kinds
        if inside.any()
    ]
