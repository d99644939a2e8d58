"""evaluate: log-probabilities of plain text, one sentence a line."""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import (
    AdaptationOptions,
    bits_a_character,
    ensemble_of,
    progress_of,
)
from fairseq_doc.cli.text_arguments import TextOptions, unknown_words
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.evaluation.scoring import NEEDS_CARRIED, TextScore, encoded_text, score_text
from fairseq_doc.options import option
from fairseq_doc.preparation.byte_tokens import BYTE

EXAMPLE = 'echo "the company said it will" | fairseq-doc score data-bin/ptb --path a.pt'
COLUMNS = ("line", "position", "word", "surprisal", "entropy", "unknown")


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions, AdaptationOptions):
    """Options of this command."""

    output_word_probs: bool = option("print the log-probability of each word too", False)
    tsv: bool = option(
        "print a table instead, a row a word: line, position, word, surprisal and entropy in bits, "
        "whether the word is unknown",
        False,
    )
    json: bool = option("print one JSON object", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.state == "fresh" and (self.cache or self.dynamic):
            raise FairseqDocError(NEEDS_CARRIED)
        if self.tsv and (self.output_word_probs or self.json):
            raise FairseqDocError(
                "--tsv cannot be combined with --json or --output-word-probs: expected one of them"
            )


def run(settings: Options) -> dict[str, Any]:
    """``log_prob``, natural logarithm, and ``tokens`` over all lines; ``bits_per_character`` if a
    token is a byte; ``unknown``, counts of words outside the dictionary; ``seconds`` without
    loading; ``sentences``, each with ``text``, ``log_prob``, ``tokens`` and ``unknown``. With
    --output-word-probs also ``words`` and ``word_log_probs``, the end mark last (0 for an unscored
    first word); with --tsv also ``word_entropies``, in nats, ``is_unknown`` and ``scored``."""
    tokenized, form = settings.sentences(settings.data)
    unit = form.unit
    ensemble = ensemble_of(settings)
    # Raises its errors before gradient statistics are gathered.
    encoded_text(ensemble.dictionary, tokenized, settings.state, settings.max_tokens)
    start = time.perf_counter()
    scored = score_text(
        ensemble,
        tokenized,
        settings.state,
        settings.max_tokens,
        progress_of(settings),
        settings.scorer_of(ensemble),
        entropies=settings.tsv,
    )
    seconds = time.perf_counter() - start
    sentences = []
    for words, sentence in zip(tokenized, scored.sentences, strict=True):
        entry: dict[str, Any] = {
            "text": form.text(words),
            "log_prob": sentence.log_prob,
            "tokens": sentence.tokens,
            "unknown": sentence.unknown,
        }
        if settings.output_word_probs or settings.tsv:
            entry["words"] = sentence.words
            entry["word_log_probs"] = sentence.word_log_probs
        if settings.tsv:
            entry["word_entropies"] = sentence.word_entropies
            # Of the first line of a carried text the first word is not scored.
            unscored = len(sentence.words) - sentence.tokens
            entry["scored"] = [i >= unscored for i in range(len(sentence.words))]
            dictionary = ensemble.dictionary
            entry["is_unknown"] = [dictionary.index(w) == dictionary.unk() for w in sentence.words]
        sentences.append(entry)
    total = Evaluation(-scored.log_prob, scored.tokens)
    _report(scored, total, unit, seconds)
    return {
        "log_prob": scored.log_prob,
        "tokens": scored.tokens,
        **bits_a_character(unit, total.bits),
        "unknown": dict(scored.unknown),
        "seconds": seconds,
        "sentences": sentences,
    }


def _report(scored: TextScore, total: Evaluation, unit: str, seconds: float) -> None:
    bits = f", {total.bits:.4f} bits a character" if unit == BYTE else ""
    lines = [
        f"{len(scored.sentences):,} sentences, {scored.tokens:,} tokens, log-probability "
        f"{scored.log_prob:.4f}, perplexity {total.perplexity:.2f}{bits}; {seconds:.1f} s"
    ]
    if scored.unknown:
        lines.append(unknown_words(scored.unknown, unit))
    for line in lines:
        print(f"fairseq-doc score: {line}", file=sys.stderr)


def as_text(result: dict[str, Any]) -> str:
    """A line a sentence: its log-probability, a tab, and its text or its words with their own."""
    if any("word_entropies" in sentence for sentence in result["sentences"]):
        return _table(result["sentences"])
    lines = [f"{sentence['log_prob']:.4f}\t{_words(sentence)}" for sentence in result["sentences"]]
    return "\n".join(lines)


def _table(sentences: Sequence[dict[str, Any]]) -> str:
    """Rows of words and end marks, tab-separated; NA where the first word is not scored."""
    rows = ["\t".join(COLUMNS)]
    for line, sentence in enumerate(sentences, start=1):
        names = ("words", "word_log_probs", "word_entropies", "scored", "is_unknown")
        columns = zip(*(sentence[name] for name in names), strict=True)
        for position, (word, log_prob, entropy, scored, unknown) in enumerate(columns, start=1):
            bits = ["NA", "NA"]
            if scored:
                bits = [f"{-log_prob / math.log(2):.6f}", f"{entropy / math.log(2):.6f}"]
            rows.append("\t".join([str(line), str(position), word, *bits, str(int(unknown))]))
    return "\n".join(rows)


def _words(sentence: dict[str, Any]) -> str:
    if "words" not in sentence:
        return sentence["text"]
    scored = zip(sentence["words"], sentence["word_log_probs"], strict=True)
    return " ".join(f"{word} [{log_prob:.4f}]" for word, log_prob in scored)
