"""Log-probabilities of plain text, sentence by sentence.

With ``state="fresh"`` every sentence starts from a state of zeros after ``</s>``, and its words and
its end mark are scored. With ``state="carried"`` the sentences are one text, with ``</s>`` after
each, read as eval-lm reads a split: nothing comes before the first word, which counts as certain.

Axes: B sentences, T tokens of the longest, R = 2 rows with entropies, else 1.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from fairseq.data import Dictionary
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.scorer import USUAL, Scorer, ScorerSettings, scorer
from fairseq_doc.preparation.text_form import WORDS, TextForm

STATES = ("fresh", "carried")
MAX_TOKENS = 4000  # targets scored at once: changes memory and speed, not results
NEEDS_CARRIED = (
    "a cache and dynamic evaluation read one text in its order: expected state carried; got fresh",
    "state",
)
MAX_WORDS = 20_000  # a longer line is probably not a sentence


@dataclass(frozen=True)
class SentenceScore:
    """The scores of one sentence. The first word of a carried text counts as certain: its log P and
    entropy are 0."""

    words: list[str]  # with the end mark
    word_log_probs: list[float]  # log P of each, natural logarithm
    tokens: int  # number of scored words and end marks
    unknown: list[str]  # words outside the dictionary, scored as <unk>
    word_entropies: list[float] | None = None  # of each word's distribution, in nats

    @property
    def log_prob(self) -> float:
        """log P of the sentence with its end mark."""
        return sum(self.word_log_probs)


@dataclass(frozen=True)
class TextScore:
    """The result of :func:`score_text`."""

    sentences: list[SentenceScore]  # in the order of the input
    unknown: Counter[str]  # words outside the dictionary, the most frequent first

    @property
    def tokens(self) -> int:
        return sum(sentence.tokens for sentence in self.sentences)

    @property
    def log_prob(self) -> float:
        return sum(sentence.log_prob for sentence in self.sentences)


def check_sentences(
    sentences: Sequence[str],
    state: str = "fresh",
    empty_sentences: bool = False,
    max_words: int | None = MAX_WORDS,
    at: str = "",
    form: TextForm = WORDS,
) -> list[list[str]]:
    """Split sentences into words or bytes. Raises ``FairseqDocError`` for no sentence, and for one
    that is empty, is too long or holds fairseq's own symbols, with its number.

    Args:
        sentences: strings of words separated by blanks, or of anything where a token is a byte.
        empty_sentences: allow them with ``state`` ``fresh`` too.
        max_words: in a sentence, or bytes; None: any number.
        at: beginning of an error message, such as the name of a file.
    """
    if not sentences:
        raise FairseqDocError(f"{at}expected at least one sentence, got none")
    tokenized = []
    for number, sentence in enumerate(sentences, start=1):
        words = form.sentence(sentence, f"{at}line {number}: ")
        if not words and not empty_sentences and state == "fresh":
            raise FairseqDocError(
                f"{at}line {number} is empty: expected a sentence a line; give "
                "empty_sentences to score the end mark alone",
                "empty_sentences",
            )
        if max_words is not None and len(words) > max_words:
            raise FairseqDocError(
                f"{at}line {number} has {len(words):,} {form.unit}s: expected one sentence, at most "
                f"{max_words:,}; is it a text without line ends? If not, give max_words",
                "max_words",
            )
        tokenized.append(words)
    return tokenized


def encoded_text(
    dictionary: Dictionary, tokenized: Sequence[Sequence[str]], state: str, max_tokens: int
) -> list[torch.Tensor]:
    """The indices of each sentence's words and end mark; arguments and errors as of
    :func:`score_text`."""
    if state not in STATES:
        raise FairseqDocError(f"state: expected {' or '.join(STATES)}; got {state!r}", "state")
    if max_tokens < 1:
        raise FairseqDocError(f"max_tokens must be at least 1; got {max_tokens}", "max_tokens")
    encoded = [
        torch.tensor([dictionary.index(word) for word in words] + [dictionary.eos()])
        for words in tokenized
    ]
    if state == "carried" and sum(map(len, encoded)) < 2:
        raise FairseqDocError("expected a text of at least 2 tokens with its end mark, got 1")
    return encoded


def score_text(
    ensemble: Ensemble,
    tokenized: Sequence[Sequence[str]],
    state: str = "fresh",
    max_tokens: int = MAX_TOKENS,
    progress: Progress = no_progress,
    settings: ScorerSettings = USUAL,
    entropies: bool = False,
) -> TextScore:
    """Score sentences, ``fresh`` or ``carried`` (see above). Raises ``FairseqDocError`` for another
    state, ``max_tokens`` below 1, a carried text of one token, a setting that does not apply, and a
    score that is not finite.

    Args:
        tokenized: lists of words, see :func:`check_sentences`.
        max_tokens: targets scored at once. Neither it nor the order of the sentences changes a
            score beyond rounding.
        settings: a cache or dynamic evaluation, which need a carried text.
    """
    if settings.samples or settings.temperature != 1.0:
        raise FairseqDocError("expected scores without samples of dropout and at temperature 1")
    if state == "fresh" and (settings.cache or settings.dynamic):
        raise FairseqDocError(*NEEDS_CARRIED)
    dictionary = ensemble.dictionary
    encoded = encoded_text(dictionary, tokenized, state, max_tokens)
    score = _score_carried if state == "carried" else _score_fresh
    steps = settings.window_length(ensemble) or max_tokens
    with scorer(ensemble, settings) as one:
        tables = score(one, encoded, steps, progress, entropies)
    sentences: list[SentenceScore] = []
    for words, table in zip(tokenized, tables, strict=True):
        log_probs, *rest = table.tolist()
        first_is_certain = state == "carried" and not sentences
        sentences.append(
            SentenceScore(
                words=[*words, dictionary.eos_word],
                word_log_probs=log_probs,
                tokens=len(log_probs) - first_is_certain,
                unknown=[word for word in words if word not in dictionary],
                word_entropies=rest[0] if rest else None,
            )
        )
    counts = Counter(word for sentence in sentences for word in sentence.unknown)
    return TextScore(sentences, Counter(dict(counts.most_common())))


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of sentences in batches of similar lengths: at most ``max_tokens`` tokens with the
    padding, or one sentence; equal lengths keep their order."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def _score_fresh(
    one: Scorer, encoded: list[torch.Tensor], max_tokens: int, progress: Progress, entropies: bool
) -> Sequence[torch.Tensor]:
    """(R, tokens) for each sentence, from a state of zeros: log P, and the entropies."""
    results: list[torch.Tensor] = [torch.empty(0)] * len(encoded)
    batches = batches_by_length([len(sentence) for sentence in encoded], max_tokens)
    for batch in progress(batches, "score"):
        sentences = [encoded[index] for index in batch]
        target = pad_sequence(sentences, batch_first=True)  # (B, T)
        # The end mark, their last token, comes before them.
        source = pad(target, (1, 0), value=int(sentences[0][-1]))[:, :-1]  # (B, T)
        counted = pad_sequence([torch.ones_like(s) for s in sentences], batch_first=True).bool()
        steps = max(1, max_tokens // len(batch))
        table = _score_windows(one, steps, entropies, source, target, counted)
        for index, row in zip(batch, table.unbind(1), strict=True):
            results[index] = row[:, : len(encoded[index])]
    return results


def _score_carried(
    one: Scorer, encoded: list[torch.Tensor], steps: int, progress: Progress, entropies: bool
) -> Sequence[torch.Tensor]:
    """(R, tokens) for each sentence of one text: log P, and the entropies."""
    stream = torch.cat(encoded).unsqueeze(0)
    source, target = stream[:, :-1], stream[:, 1:]
    table = _score_windows(one, steps, entropies, source, target, progress=progress)
    table = pad(table[:, 0], (1, 0))  # the first word counts as certain
    ends = list(accumulate(len(sentence) for sentence in encoded))
    return table.tensor_split(ends[:-1], dim=1)


def _score_windows(
    one: Scorer,
    steps: int,
    entropies: bool,
    source: torch.Tensor,
    target: torch.Tensor,
    counted: torch.Tensor | None = None,
    progress: Progress = no_progress,
) -> torch.Tensor:
    """log P of the targets (B, T), and the entropies, in windows of ``steps`` steps: (R, B, T).
    Where ``counted`` is false, log P is not computed."""
    table = torch.zeros(2 if entropies else 1, *target.shape, dtype=torch.float64)
    starts = range(0, target.size(1), steps)
    for number, start in enumerate(progress(starts, "score")):
        window = slice(start, start + steps)
        x, y, scores = source[:, window], target[:, window], table[:, :, window]
        if entropies:
            scores.copy_(torch.stack(one.with_entropies(x, y, number)))
        elif counted is None:
            scores.copy_(one.log_probs(x, y, number))
        else:
            at = counted[:, window].nonzero(as_tuple=True)
            scores[0][at] = one.log_probs(x, y[at], number, at)[0]
    return table
