"""Log-probabilities of plain text, sentence by sentence.

With ``state="fresh"`` every sentence starts from a state of zeros after ``</s>``, and its words and
its end mark are scored. With ``state="carried"`` the sentences are one text, ``</s>`` after each, as
the evaluator reads a split: its first word has nothing before it and counts as certain.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

import torch
from fairseq.tokenizer import tokenize_line

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import unchanged

STATES = ("fresh", "carried")
MAX_TOKENS = 4000  # targets scored at once: memory, not results
MAX_WORDS = 20_000  # a longer line is hardly a sentence


@dataclass(frozen=True)
class SentenceScore:
    """One sentence.

    Attributes:
        words: its words and the end mark.
        word_log_probs: log P of each, natural logarithm; 0 for a text's first word, which counts as
            certain where the state is carried.
        tokens: how many of them were scored: all, but for such a first word.
        unknown: those of its words that are outside the dictionary and were scored as unknown.
    """

    words: list
    word_log_probs: list
    tokens: int
    unknown: list

    @property
    def log_prob(self):
        """log P of the sentence with its end mark."""
        return sum(self.word_log_probs)


@dataclass(frozen=True)
class TextScore:
    """What :func:`score_text` gives.

    Attributes:
        sentences: in the order they came.
        unknown: words outside the dictionary with their counts, the most frequent first.
    """

    sentences: list
    unknown: Counter

    @property
    def tokens(self):
        """The number of words and end marks scored."""
        return sum(sentence.tokens for sentence in self.sentences)

    @property
    def log_prob(self):
        """The sum over all sentences."""
        return sum(sentence.log_prob for sentence in self.sentences)


def check_state(state):
    """Raise ``FairseqDocError`` unless ``fresh`` or ``carried``."""
    if state not in STATES:
        raise FairseqDocError(f"--state: expected {' or '.join(STATES)}; got {state!r}")


def check_sentences(sentences, state="fresh", empty_sentences=False, max_words=MAX_WORDS, at=""):
    """Split sentences into words; with a state carried, empty ones are part of the text.

    Returns:
        A list of lists of words.

    Raises:
        FairseqDocError: no sentence, an empty one (unless allowed), or one too long, by number.
    """
    check_state(state)
    if not sentences:
        raise FairseqDocError(f"{at}expected at least one sentence, got none")
    tokenized = []
    for number, sentence in enumerate(sentences, start=1):
        words = tokenize_line(sentence)
        if not words and not empty_sentences and state == "fresh":
            raise FairseqDocError(
                f"{at}line {number} is empty: expected a sentence a line; give --empty-lines (in Python, "
                "empty_sentences=True) to score the end mark alone"
            )
        if max_words is not None and len(words) > max_words:
            raise FairseqDocError(
                f"{at}line {number} has {len(words):,} words: expected one sentence, at most "
                f"{max_words:,}; is it a text without line ends? Else give --max-words"
            )
        tokenized.append(words)
    return tokenized


def score_text(ensemble, tokenized, state="fresh", max_tokens=MAX_TOKENS, progress=unchanged):
    """Score sentences.

    Args:
        ensemble: see :class:`fairseq_doc.evaluation.ensemble.Ensemble`.
        tokenized: lists of words, see :func:`check_sentences`.
        state: ``fresh`` or ``carried``, see above.
        max_tokens: targets scored at once; neither it nor the order of sentences changes a score
            beyond rounding.
        progress: (iterable with a length, name) -> iterable.

    Returns:
        :class:`TextScore`.

    Raises:
        FairseqDocError: another state, no room for a token, a carried text without a second token,
            or a score that is not finite.
    """
    check_state(state)
    if max_tokens < 1:
        raise FairseqDocError(f"--max-tokens must be at least 1; got {max_tokens}")
    dictionary = ensemble.dictionary
    encoded = [
        torch.tensor([dictionary.index(word) for word in words] + [dictionary.eos()])
        for words in tokenized
    ]
    if state == "carried" and sum(map(len, encoded)) < 2:
        raise FairseqDocError("expected a text of at least 2 tokens with its end mark, got 1")
    log_probs = (_carried if state == "carried" else _fresh)(
        ensemble, encoded, max_tokens, progress
    )
    sentences, counts = [], Counter()
    for number, (words, scores) in enumerate(zip(tokenized, log_probs, strict=True)):
        unknown = [word for word in words if word not in dictionary]
        counts.update(unknown)
        tokens = len(scores) - (state == "carried" and number == 0)
        sentences.append(
            SentenceScore([*words, dictionary.eos_word], scores.tolist(), tokens, unknown)
        )
    return TextScore(sentences, Counter(dict(counts.most_common())))


def batches_by_length(lengths, max_tokens):
    """Indices of sentences in batches of like lengths, each at most ``max_tokens`` with its
    padding, or one sentence; ties keep their order."""
    batches, batch = [], []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else []


def _fresh(ensemble, encoded, max_tokens, progress):
    results = [None] * len(encoded)
    for batch in progress(batches_by_length([len(s) for s in encoded], max_tokens), "score"):
        target = torch.nn.utils.rnn.pad_sequence([encoded[i] for i in batch], batch_first=True)
        lengths = torch.tensor([len(encoded[i]) for i in batch])
        real = torch.arange(target.size(1)) < lengths.unsqueeze(1)  # (B, T)
        after_eos = target.new_full((len(batch), 1), ensemble.dictionary.eos())
        source = torch.cat([after_eos, target[:, :-1]], dim=1)
        log_probs = torch.zeros(target.shape, dtype=torch.float64)
        window = max(1, max_tokens // len(batch))
        for number, start in enumerate(range(0, target.size(1), window)):
            at = slice(start, start + window)
            parts = [x[:, at].to(ensemble.device) for x in (source, target, real)]
            scores = ensemble.token_log_probs(parts[0], parts[1], number, parts[2])
            log_probs[:, at][real[:, at]] = scores.cpu()
        for row, index in enumerate(batch):
            results[index] = log_probs[row, : lengths[row]]
    return results


def _carried(ensemble, encoded, max_tokens, progress):
    stream = torch.cat(encoded).to(ensemble.device)
    scores = [torch.zeros(1, dtype=torch.float64)]  # the first word's
    windows = range(0, len(stream) - 1, max_tokens)
    for number, start in enumerate(progress(windows, "score")):
        stop = min(start + max_tokens, len(stream) - 1)
        source, target = stream[None, start:stop], stream[None, start + 1 : stop + 1]
        scores.append(ensemble.token_log_probs(source, target, number).cpu())
    ends = list(accumulate(len(sentence) for sentence in encoded))
    return torch.cat(scores).tensor_split(ends[:-1])
