"""``fairseq-doc score``."""

import sys
import time

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    ensemble_of,
    positive,
    progress_of,
    read_lines,
)
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.evaluation.scoring import (
    MAX_TOKENS,
    MAX_WORDS,
    STATES,
    check_sentences,
    score_text,
)

NAME = "score"
HELP = "log-probabilities of plain text, one sentence a line"
EXAMPLE = 'echo "the company said it will" | fairseq-doc score data-bin/ptb --path a.pt'
SHOWN = 10  # unknown words named on standard error


def add_arguments(parser):
    """Add this subcommand's own."""
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
        "--output-word-probs", action="store_true", help="each word's log-probability too"
    )
    parser.add_argument(
        "--empty-lines", action="store_true", help="score an empty line's end mark; else an error"
    )
    parser.add_argument(
        "--max-words", type=positive, default=MAX_WORDS, help=f"in a line (default: {MAX_WORDS:,})"
    )
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=MAX_TOKENS,
        help=f"scored at once; memory and speed, not results (default: {MAX_TOKENS:,})",
    )


def run(args):
    """``log_prob``, natural logarithm, and ``tokens`` over all lines; ``unknown``, words outside the
    dictionary with their counts; ``seconds``, without loading the models; ``sentences``, each with
    its ``text``, ``log_prob``, ``tokens``, ``unknown`` words and, where asked for, ``words`` and
    ``word_log_probs``, the end mark last (0 for an unscored first word)."""
    at = "" if args.input == "-" else f"{args.input}: "
    lines = read_lines(args.input)
    tokenized = check_sentences(lines, args.state, args.empty_lines, args.max_words, at)
    ensemble = ensemble_of(args)
    start = time.perf_counter()
    scored = score_text(ensemble, tokenized, args.state, args.max_tokens, progress_of(args))
    seconds = time.perf_counter() - start
    sentences = []
    for words, sentence in zip(tokenized, scored.sentences, strict=True):
        entry = {
            "text": " ".join(words),
            "log_prob": sentence.log_prob,
            "tokens": sentence.tokens,
            "unknown": sentence.unknown,
        }
        if args.output_word_probs:
            entry["words"] = sentence.words
            entry["word_log_probs"] = sentence.word_log_probs
        sentences.append(entry)
    _report(scored, seconds)
    return {
        "log_prob": scored.log_prob,
        "tokens": scored.tokens,
        "unknown": dict(scored.unknown),
        "seconds": seconds,
        "sentences": sentences,
    }


def _report(scored, seconds):
    """In all, and what was unknown, on standard error."""
    perplexity = Evaluation(-scored.log_prob, scored.tokens).perplexity
    told = [
        f"{len(scored.sentences):,} sentences, {scored.tokens:,} tokens, log-probability "
        f"{scored.log_prob:.4f}, perplexity {perplexity:.2f}; {seconds:.1f} s"
    ]
    if scored.unknown:
        named = ", ".join(list(scored.unknown)[:SHOWN]) + ", ..." * (len(scored.unknown) > SHOWN)
        told.append(
            f"scored as unknown, being outside the dictionary: {scored.unknown.total():,} words, of "
            f"{len(scored.unknown):,} types: {named}"
        )
    for line in told:
        print(f"fairseq-doc score: {line}", file=sys.stderr)


def as_text(result):
    """A line a sentence: its log-probability, a tab, the words, each with its own where asked."""
    return "\n".join(f"{s['log_prob']:.4f}\t{_words(s)}" for s in result["sentences"])


def _words(sentence):
    if "words" not in sentence:
        return sentence["text"]
    scored = zip(sentence["words"], sentence["word_log_probs"], strict=True)
    return " ".join(f"{word} [{log_prob:.4f}]" for word, log_prob in scored)
