"""``fairseq-doc score``."""

import argparse
import sys
import time
from typing import Any

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    bits_a_character,
    ensemble_of,
    positive,
    progress_of,
    read_lines,
    unit_of_data,
)
from fairseq_doc.errors import shown
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.evaluation.scoring import (
    MAX_TOKENS,
    MAX_WORDS,
    STATES,
    TextScore,
    check_sentences,
    score_text,
)
from fairseq_doc.preparation.byte_tokens import BYTE, text_of

NAME = "score"
HELP = "log-probabilities of plain text, one sentence a line"
EXAMPLE = 'echo "the company said it will" | fairseq-doc score data-bin/ptb --path a.pt'
SHOWN = 10  # unknown words listed on standard error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser)
    parser.add_argument("--input", default="-", help="file to read (default: standard input)")
    parser.add_argument(
        "--state",
        choices=STATES,
        default=STATES[0],
        help="fresh: each sentence starts after </s> from zeros; carried: the lines are one text, as "
        "eval-lm reads it, and its first word is not scored (default: fresh)",
    )
    parser.add_argument(
        "--output-word-probs",
        action="store_true",
        help="print the log-probability of each word too",
    )
    parser.add_argument(
        "--empty-lines",
        action="store_true",
        help="score the end mark of an empty line (default: an error)",
    )
    parser.add_argument(
        "--max-words",
        type=positive,
        default=MAX_WORDS,
        help=f"most words, or bytes, of a line (default: {MAX_WORDS:,})",
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=MAX_TOKENS,
        help=f"tokens scored at once; changes memory and speed, not results (default: {MAX_TOKENS:,})",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``log_prob``, natural logarithm, and ``tokens`` over all lines; where a token is a byte, their
    ``bits_per_character``; ``unknown``, words outside the
    dictionary with their counts; ``seconds``, without loading the models; ``sentences``, each with
    its ``text``, ``log_prob``, ``tokens`` and ``unknown`` words. With --output-word-probs also their
    ``words`` and ``word_log_probs``, the end mark last (0 for an unscored first word)."""
    at = "" if args.input == "-" else f"{args.input}: "
    unit = unit_of_data(args)
    lines = read_lines(args.input, "surrogateescape" if unit == BYTE else "strict")
    tokenized = check_sentences(lines, args.state, args.empty_lines, args.max_words, at, unit)
    ensemble = ensemble_of(args)
    start = time.perf_counter()
    scored = score_text(ensemble, tokenized, args.state, args.max_tokens, progress_of(args))
    seconds = time.perf_counter() - start
    sentences = []
    for words, sentence in zip(tokenized, scored.sentences, strict=True):
        entry: dict[str, Any] = {
            "text": text_of(words, unit) if unit == BYTE else " ".join(words),
            "log_prob": sentence.log_prob,
            "tokens": sentence.tokens,
            "unknown": sentence.unknown,
        }
        if args.output_word_probs:
            entry["words"] = sentence.words
            entry["word_log_probs"] = sentence.word_log_probs
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
    """Print the totals and the unknown words on standard error."""
    bits = f", {total.bits:.4f} bits a character" if unit == BYTE else ""
    lines = [
        f"{len(scored.sentences):,} sentences, {scored.tokens:,} tokens, log-probability "
        f"{scored.log_prob:.4f}, perplexity {total.perplexity:.2f}{bits}; {seconds:.1f} s"
    ]
    if scored.unknown:
        words = [word if len(word) < 80 else shown(word) for word in list(scored.unknown)[:SHOWN]]
        if len(scored.unknown) > SHOWN:
            words.append("...")
        lines.append(
            f"{unit}s outside the dictionary, scored as <unk>: {scored.unknown.total():,}, of "
            f"{len(scored.unknown):,} types: {', '.join(words)}"
        )
    for line in lines:
        print(f"fairseq-doc score: {line}", file=sys.stderr)


def as_text(result: dict[str, Any]) -> str:
    """One line for each sentence: its log-probability, a tab, its text, or where --output-word-probs
    asks for them its words with their own log-probabilities."""
    lines = [f"{sentence['log_prob']:.4f}\t{_words(sentence)}" for sentence in result["sentences"]]
    return "\n".join(lines)


def _words(sentence: dict[str, Any]) -> str:
    if "words" not in sentence:
        return sentence["text"]
    scored = zip(sentence["words"], sentence["word_log_probs"], strict=True)
    return " ".join(f"{word} [{log_prob:.4f}]" for word, log_prob in scored)
