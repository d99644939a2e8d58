"""``fairseq-doc eval-lm``."""

import argparse
import time
from typing import Any

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_split_arguments,
    bits_a_character,
    ensemble_of,
    positive,
    progress_of,
)
from fairseq_doc.evaluation.perplexity import evaluate

NAME = "eval-lm"
HELP = "perplexity of a model or an ensemble, with the state carried over the whole text"
EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser)
    add_split_arguments(parser)
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=1,
        help="columns that the text is cut into; its remainder is left out (default: 1)",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``perplexity``; ``nll``, the sum in nats; ``bits``, the mean of a token, and where a token is a
    byte the same as ``bits_per_character``; ``tokens``, the number of scored ones; ``left_out``, the
    number of others; ``models``, their number; ``split``; ``columns``; ``seconds``, without loading
    the models."""
    ensemble = ensemble_of(args)
    start = time.perf_counter()
    result = evaluate(ensemble, args.gen_subset, args.batch_size, progress_of(args))
    return {
        "perplexity": result.perplexity,
        "nll": result.nll,
        "bits": result.bits,
        **bits_a_character(ensemble.unit, result.bits),
        "tokens": result.tokens,
        "left_out": result.left_out,
        "models": len(ensemble.models),
        "split": args.gen_subset,
        "columns": args.batch_size,
        "seconds": time.perf_counter() - start,
    }


def as_text(result: dict[str, Any]) -> str:
    """One line."""
    token = "character" if "bits_per_character" in result else "token"
    return (
        "{split}: perplexity {perplexity:.2f}, {bits:.4f} bits a {token}, NLL {nll:.2f} nats over "
        "{tokens:,} tokens; {left_out:,} left out; models: {models}; {seconds:.1f} s".format(
            token=token, **result
        )
    )
