"""Log-probabilities of plain text, sentence by sentence.

With ``state="fresh"`` every sentence starts from a state of zeros after ``</s>``, and its words and
its end mark are scored. With ``state="carried"`` the sentences are one text, with ``</s>`` after
each, read as eval-lm reads a split: nothing comes before the first word, which counts as certain.

Axes: B sentences, T tokens of the longest, R = 2 rows with entropies, else 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from fairseq.data import Dictionary
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import track
from fairseq_doc.evaluation.scorer import USUAL, Scorer, ScorerSettings, scorer
from fairseq_doc.preparation.text_form import WORDS, TextForm

STATES = ("fresh", "carried")
MAX_TOKENS = 4000  # targets scored at once: changes memory and speed, not results
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
        empty_sentences: allow empty sentences with ``state`` ``fresh`` too.
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
                f"{at}line {number} is empty: expected one sentence per line; give "
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
    dictionary: Dictionary,
    tokenized: Sequence[Sequence[str]],
    state: str,
    settings: ScorerSettings = USUAL,
) -> list[torch.Tensor]:
    """The indices of each sentence's words and end mark. Raises ``FairseqDocError`` for an unknown
    ``state``, one in which the settings cannot be used, and a carried text of one token."""
    require(state in STATES, "state", " or ".join(STATES), state)
    if state == "fresh" and (settings.cache or settings.dynamic):
        raise FairseqDocError(
            "a cache and dynamic evaluation read one text in its order: expected state carried; "
            "got fresh",
            "state",
        )
    encoded = [
        torch.tensor([*map(dictionary.index, words), dictionary.eos()]) for words in tokenized
    ]
    if state == "carried" and sum(map(len, encoded)) < 2:
        raise FairseqDocError("expected a text of at least 2 tokens with its end mark, got 1")
    return encoded


def score_text(
    ensemble: Ensemble,
    tokenized: Sequence[Sequence[str]],
    state: str = "fresh",
    max_tokens: int = MAX_TOKENS,
    settings: ScorerSettings = USUAL,
    entropies: bool = False,
) -> list[SentenceScore]:
    """Score sentences, ``fresh`` or ``carried`` (see above). Errors as of :func:`encoded_text`, and
    ``FairseqDocError`` for a score that is not finite.

    Args:
        tokenized: lists of words, see :func:`check_sentences`.
        max_tokens: targets scored at once. Neither it nor the order of the sentences changes a
            score beyond rounding.
        settings: a cache or dynamic evaluation, which need a carried text.
    """
    if settings.samples or settings.temperature != 1.0:
        raise FairseqDocError("expected scores without samples of dropout and at temperature 1")
    dictionary, carried = ensemble.dictionary, state == "carried"
    encoded = encoded_text(dictionary, tokenized, state, settings)
    steps = settings.window_length(ensemble) or max_tokens
    # What is read after the first token: each sentence, or the rest of the text.
    first, sequences = torch.tensor([dictionary.eos()]), encoded
    if carried:
        first, rest = torch.cat(encoded).tensor_split([1])
        sequences = [rest]
    with scorer(ensemble, settings) as one:
        tables = _tables(one, first, sequences, steps, entropies)
    if carried:
        ends = list(accumulate(map(len, encoded)))
        tables = pad(tables[0], (1, 0)).tensor_split(ends[:-1], dim=1)
    sentences: list[SentenceScore] = []
    for words, table in zip(tokenized, tables, strict=True):
        log_probs, *rows = table.tolist()
        sentences.append(
            SentenceScore(
                words=[*words, dictionary.eos_word],
                word_log_probs=log_probs,
                tokens=len(log_probs) - (carried and not sentences),
                unknown=[word for word in words if word not in dictionary],
                word_entropies=rows[0] if rows else None,
            )
        )
    return sentences


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of sentences in batches of similar lengths: at most ``max_tokens`` tokens with the
    padding, or one sentence; equal lengths keep their order."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[index] > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def _tables(
    one: Scorer,
    first: torch.Tensor,
    sequences: Sequence[torch.Tensor],
    max_tokens: int,
    entropies: bool,
) -> Sequence[torch.Tensor]:
    """For each sequence of n tokens after ``first``, (R, n): log P, and the entropies."""
    sources = [torch.cat([first, tokens[:-1]]) for tokens in sequences]
    tables = [torch.zeros(1 + entropies, len(x), dtype=torch.float64) for x in sequences]
    windows = []
    for batch in batches_by_length(list(map(len, sequences)), max_tokens):
        starts = range(0, len(sequences[batch[-1]]), max_tokens)  # the last one is the longest
        windows += [(batch, number, slice(t, t + max_tokens)) for number, t in enumerate(starts)]
    for batch, number, window in track(windows, "score"):
        targets = [sequences[index][window] for index in batch]
        source = pad_sequence([sources[index][window] for index in batch], batch_first=True)
        target = pad_sequence(targets, batch_first=True)  # (B, T)
        if entropies:
            rows = torch.stack(one.with_entropies(source, target, number))  # (2, B, T)
        elif len(batch) == 1:  # a cache reads whole windows
            rows = one.log_probs(source, target, number)  # (1, 1, T)
        else:
            counted = pad_sequence([torch.ones_like(x) for x in targets], batch_first=True).bool()
            rows = torch.zeros(1, *target.shape, dtype=torch.float64)
            rows[0, counted] = one.log_probs(
                source, target[counted], number, at=counted.nonzero(as_tuple=True)
            )[0]
        for row, index in enumerate(batch):
            tables[index][:, window] = rows[:, row, : len(targets[row])]
    return tables
