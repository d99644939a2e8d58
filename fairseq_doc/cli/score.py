"""evaluate: log-probabilities of plain text, one sentence per line (n-best lists: rescore)."""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_doc.cli.arguments import (
    AdaptationOptions,
    TextOptions,
    ensemble_of,
    figures_of_lines,
    unknown_words,
    written_text,
)
from fairseq_doc.cli.outputs import remark
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.evaluation.scoring import encoded_text, score_text
from fairseq_doc.evaluation.surprisals import score_spans, spans_of, table, without_marks
from fairseq_doc.options import option

EXAMPLE = 'echo "the company said it will" | fairseq-doc score data-bin/ptb --path a.pt'


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions, AdaptationOptions):
    output_word_probs: bool = option("also print the log-probability of each word", False)
    tsv: bool = option(
        "print a table instead, with a row for each word of the raw text, split at whitespace: "
        "line, position, word, surprisal in bits, entropy of its first token in bits, whether a "
        "token is unknown, number of tokens",
        False,
        without=("output-word-probs", "json"),
    )
    units: bool = option(
        "print a row for each token instead: a subword, a word of Moses or a byte",
        False,
        needs="tsv",
        without=("spans",),
    )
    spans: str | None = option(
        "print a row for each span of words instead; MARK, such as |, between spaces, separates "
        "the spans, and the model does not read it",
        metavar="MARK",
        needs="tsv",
    )


def run(settings: Options) -> dict[str, Any]:
    """Result: ``log_prob``, natural logarithm, and ``tokens`` over all lines; the entries of
    :func:`written_figures`; ``unknown``, counts of words outside the dictionary; ``seconds`` of
    scoring; ``sentences``, each with ``text``, ``log_prob``, ``tokens`` and ``unknown``. With
    --output-word-probs also ``words`` and ``word_log_probs``, the end mark last
    (0 for a first word that is not scored); with --tsv also ``rows``, each a ``SpanScore``."""
    lines, form = settings.read(settings.data)
    counts = None
    if settings.spans is not None:
        lines, counts = without_marks(lines, settings.spans)
    tokenized = settings.sentences(lines, form)
    as_written = settings.tsv and not settings.units
    spans = spans_of(form if as_written else None, lines, tokenized, counts)
    ensemble = ensemble_of(settings)
    dictionary, state = ensemble.dictionary, settings.state
    encoded_text(dictionary, tokenized, state, settings.scorer)  # raises errors before slow work
    scorer, steps = settings.scorer_of(ensemble), settings.max_tokens
    start = time.perf_counter()
    scored = score_text(ensemble, tokenized, state, steps, scorer, settings.tsv)
    seconds = time.perf_counter() - start
    sentences = []
    names = ["log_prob", "tokens", "unknown"]
    names += ["words", "word_log_probs"] if settings.output_word_probs else []
    for words, own, sentence in zip(tokenized, spans, scored, strict=True):
        entry = {"text": form.text(words), **{name: getattr(sentence, name) for name in names}}
        if settings.tsv:
            entry["rows"] = list(map(asdict, score_spans(own, sentence, dictionary)))
        sentences.append(entry)
    unknown = Counter(word for sentence in scored for word in sentence.unknown)
    log_prob, tokens = sum(x.log_prob for x in scored), sum(x.tokens for x in scored)
    total = Evaluation(-log_prob, tokens)
    figures = figures_of_lines(lines, tokenized, form, total)
    remark(
        "score",
        f"{len(sentences):,} sentences, {tokens:,} tokens, log-probability {log_prob:.4f}, "
        f"perplexity {total.perplexity:.2f}; {seconds:.1f} s; as written: {written_text(figures)}",
    )
    if unknown:
        remark("score", unknown_words(unknown, form.unit))
    return {
        "log_prob": log_prob,
        "tokens": tokens,
        **figures,
        "unknown": dict(unknown.most_common()),
        "seconds": seconds,
        "sentences": sentences,
    }


def as_text(result: dict[str, Any]) -> str:
    """A line per sentence: its log-probability, a tab, and its text or its words with theirs."""
    sentences = result["sentences"]
    if "rows" in sentences[0]:
        return table([sentence["rows"] for sentence in sentences])
    lines = []
    for sentence in sentences:
        text = sentence["text"]
        if "words" in sentence:
            pairs = zip(sentence["words"], sentence["word_log_probs"], strict=True)
            text = " ".join(f"{word} [{log_prob:.4f}]" for word, log_prob in pairs)
        lines.append(f"{sentence['log_prob']:.4f}\t{text}")
    return "\n".join(lines)
