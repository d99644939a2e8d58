"""Scores of tokens -> scores of the words of a text as it was written, or of spans of words.

A word's surprisal is the sum of its tokens'. A table of reading times has one row for each word
between blanks, with its punctuation; a model reads tokens, which may be parts of such a word.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.scoring import SentenceScore
from fairseq_doc.preparation.text_form import TextForm

COLUMNS = ("line", "position", "word", "surprisal", "entropy", "unknown", "tokens")
Span = tuple[str, int]  # the text of some words or of an end mark, and how many tokens it has


@dataclass(frozen=True)
class SpanScore:
    """The score of a word, of several or of an end mark."""

    text: str
    surprisal: float | None  # -log2 P, in bits; None: it has no token, or one that is not scored
    entropy: float | None  # of the distribution of its first token, in bits
    unknown: bool  # whether one of its tokens is read as <unk>
    tokens: int


def score_spans(
    spans: Sequence[Span], score: SentenceScore, dictionary: Dictionary
) -> Iterator[SpanScore]:
    """Yield the score of each span of one sentence, then of its end mark. The first token of a
    carried text has no score. ``score`` must have entropies."""
    assert score.word_entropies is not None
    unscored = len(score.words) - score.tokens
    spans = [*spans, (score.words[-1], 1)]
    ends = accumulate((tokens for _, tokens in spans), initial=0)
    for (text, tokens), (start, end) in zip(spans, pairwise(ends), strict=True):
        words = score.words[start:end]
        is_scored = unscored <= start < end
        surprisal = max(0.0, -sum(score.word_log_probs[start:end]) / math.log(2))  # not -0.0
        yield SpanScore(
            text=text,
            surprisal=surprisal if is_scored else None,
            entropy=score.word_entropies[start] / math.log(2) if is_scored else None,
            unknown=any(dictionary.index(word) == dictionary.unk() for word in words),
            tokens=tokens,
        )


def without_marks(lines: Sequence[str], mark: str) -> tuple[list[str], list[list[int]]]:
    """The lines without the marks between their spans, and how many words each span has. A span
    without words, between two marks, keeps its place. Raises ``FairseqDocError`` for a mark that is
    in no line, or is a part of a word."""
    plain, counts = [], []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        wrong = next((word for word in words if mark in word and word != mark), None)
        if wrong is not None:
            raise FairseqDocError(
                f"mark: line {number}: expected {mark} between blanks; got {shown(wrong)}: put "
                "blanks around it, or choose a mark that no word contains",
                "mark",
            )
        places = [place for place, word in enumerate(words) if word == mark]
        counts.append([b - a - 1 for a, b in pairwise([-1, *places, len(words)])])
        kept = words and not places  # with its blanks, which bytes keep
        plain.append(line if kept else " ".join(word for word in words if word != mark))
    if all(len(own) == 1 for own in counts):
        raise FairseqDocError(f"mark: expected {mark} between spans; no line has it", "mark")
    return plain, counts


def spans_of(
    form: TextForm | None,
    lines: Sequence[str],
    tokenized: Sequence[Sequence[str]],
    counts: Sequence[Sequence[int]] | None = None,
) -> list[list[Span]]:
    """The words of each line as written, or with ``counts`` (how many words each span has) its
    spans; without a ``form`` its tokens. Errors as of :meth:`TextForm.word_spans`."""
    if form is None:
        return [[(token, 1) for token in tokens] for tokens in tokenized]
    written = [form.word_spans(*both) for both in zip(lines, tokenized, strict=True)]
    if counts is None:
        return written
    spans = []
    for words, own_counts in zip(written, counts, strict=True):
        ends = accumulate(own_counts, initial=0)
        parts = [words[start:end] for start, end in pairwise(ends)]
        spans.append([(" ".join(w for w, _ in own), sum(n for _, n in own)) for own in parts])
    return spans


def table(lines: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The fields of ``SpanScore``s, line by line, as tab-separated values; NA for None."""
    rows = ["\t".join(COLUMNS)]
    for line, spans in enumerate(lines, start=1):
        for position, span in enumerate(spans, start=1):
            bits = [span["surprisal"], span["entropy"]]
            written = ["NA" if value is None else f"{value:.6f}" for value in bits]
            cells = [line, position, span["text"], *written, int(span["unknown"]), span["tokens"]]
            rows.append("\t".join(map(str, cells)))
    return "\n".join(rows)
