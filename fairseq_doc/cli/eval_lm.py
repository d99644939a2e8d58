"""``fairseq-doc eval-lm``."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_split_arguments,
    bits_a_character,
    ensemble_of,
    positive,
    progress_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.monte_carlo import AVERAGES
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate_at
from fairseq_doc.evaluation.temperature import GRID, check_temperatures

NAME = "eval-lm"
HELP = "perplexity of a model or an ensemble, with the state carried over the whole text"
EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"
SEARCH, SEARCHED_SPLIT = "search", "valid"


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
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=1.0,
        metavar="T",
        help=f"P becomes P^(1/T), renormalised; {SEARCH}: the best on {SEARCHED_SPLIT} of 1 / T = 1.06, "
        "1.04, ..., .8 (default: 1)",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        metavar="K",
        help="Monte-Carlo evaluation: average K passes with dropout as in training, its masks drawn anew "
        "every --bptt steps of the (first) model's training (default: one pass without dropout)",
    )
    parser.add_argument(
        "--average",
        choices=AVERAGES,
        help="mean of the samples' probabilities; geometric: for one softmax, the mean of the logits "
        "(default: arithmetic)",
    )
    parser.add_argument(
        "--dropout-scale",
        type=float,
        metavar="F",
        help="factor of all dropout rates of the samples (default: 1)",
    )
    parser.add_argument("--seed", type=int, help="of the samples' masks (default: 1)")


def _temperature(text: str) -> float | str:
    try:
        return text if text == SEARCH else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or {SEARCH}; got {text!r}") from None


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``perplexity``; ``nll``, the sum in nats; ``bits``, the mean of a token, and where a token is a
    byte the same as ``bits_per_character``; ``tokens``, the number of scored ones; ``left_out``, the
    number of others; ``models``, their number; ``split``; ``columns``; ``temperature``; ``searched``,
    {temperature: perplexity on the searched split}; ``samples``, 0 without Monte-Carlo evaluation;
    ``seconds``, without loading the models."""
    _check(args)
    ensemble = ensemble_of(args)
    start = time.perf_counter()
    torch.manual_seed(1 if args.seed is None else args.seed)
    searched: dict[float, Evaluation] = {}
    temperature = args.temperature
    if temperature == SEARCH:
        found = _evaluations(args, ensemble, SEARCHED_SPLIT, GRID)
        searched = dict(zip(GRID, found, strict=True))
        temperature = min(searched, key=lambda t: searched[t].nll)
    if searched and args.gen_subset == SEARCHED_SPLIT:
        result = searched[temperature]
    else:
        (result,) = _evaluations(args, ensemble, args.gen_subset, [temperature])
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
        "temperature": temperature,
        "searched": {f"{t:.4f}": evaluation.perplexity for t, evaluation in searched.items()},
        "samples": args.samples or 0,
        "seconds": time.perf_counter() - start,
    }


def _check(args: argparse.Namespace) -> None:
    if args.temperature != SEARCH:
        check_temperatures([args.temperature])
    if args.samples:
        if args.eval_window is not None:
            raise FairseqDocError(
                "--samples draws dropout masks every --bptt steps of the training: expected no "
                f"--eval-window; got {args.eval_window}"
            )
        if args.dropout_scale is not None and args.dropout_scale < 0:
            raise FairseqDocError(f"--dropout-scale must be at least 0; got {args.dropout_scale}")
        return
    for name in ("average", "dropout_scale", "seed"):
        if getattr(args, name) is not None:
            raise FairseqDocError(
                f"--{name.replace('_', '-')} is of the samples of Monte-Carlo evaluation: expected "
                "--samples K beside it"
            )


def _evaluations(
    args: argparse.Namespace, ensemble: Ensemble, split: str, temperatures: Sequence[float]
) -> list[Evaluation]:
    return evaluate_at(
        ensemble,
        split,
        temperatures,
        args.samples or 0,
        args.average or AVERAGES[0],
        args.batch_size,
        progress_of(args),
    )


def as_text(result: dict[str, Any]) -> str:
    """One line, and one more for each setting beyond the usual evaluation."""
    token = "character" if "bits_per_character" in result else "token"
    lines = [
        "{split}: perplexity {perplexity:.2f}, {bits:.4f} bits a {token}, NLL {nll:.2f} nats over "
        "{tokens:,} tokens; {left_out:,} left out; models: {models}; {seconds:.1f} s".format(
            token=token, **result
        )
    ]
    if result["samples"]:
        lines.append(f"mean of {result['samples']} samples of dropout masks")
    if result["searched"]:
        tried = ", ".join(f"{t}: {ppl:.2f}" for t, ppl in result["searched"].items())
        lines.append(f"perplexity on {SEARCHED_SPLIT} by temperature: {tried}")
    if result["temperature"] != 1.0:
        lines.append(f"temperature {result['temperature']:.4f}")
    return "\n".join(lines)
