"""``fairseq-doc eval-lm``."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fairseq_doc.cli.adaptation_arguments import (
    add_cache_arguments,
    add_dynamic_arguments,
    cache_settings,
    check_dynamic,
    dynamic_settings,
    gathering_settings,
)
from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_split_arguments,
    bits_a_character,
    ensemble_of,
    positive,
    progress_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import GRIDS as GRIDS_OF_CACHE
from fairseq_doc.evaluation.cache import SIMILARITIES
from fairseq_doc.evaluation.dynamic import USUAL_SEGMENT, grid
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.gradient_statistics import GatheringSettings
from fairseq_doc.evaluation.monte_carlo import AVERAGES
from fairseq_doc.evaluation.perplexity import check_columns, check_text, evaluate_at
from fairseq_doc.evaluation.search import (
    Search,
    search_cache,
    search_dynamic,
    search_temperature,
    shown,
)
from fairseq_doc.evaluation.stream_scorer import SAMPLES_ALONE, StreamSettings
from fairseq_doc.evaluation.temperature import check_temperatures

EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"
SEARCH, SEARCHED_SPLIT = "search", "valid"
SHOWN = 5  # of the settings that a search tried; --json has all
SEARCHED_TOKENS = 30_000  # as in benkrause/dynamic-evaluation's fast grid


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
    add_cache_arguments(parser)
    parser.add_argument(
        "--cache-search",
        action="store_true",
        help=f"use the theta and lambda that are best on {SEARCHED_SPLIT}, of {len(GRIDS_OF_CACHE[SIMILARITIES[0]])} pairs",
    )
    add_dynamic_arguments(parser)
    parser.add_argument(
        "--dynamic-search",
        action="store_true",
        help=f"use the learning rate and decay that are best on {SEARCHED_SPLIT}, of "
        f"{len(grid(USUAL_SEGMENT))} pairs",
    )
    parser.add_argument(
        "--dynamic-search-tokens",
        type=positive,
        metavar="N",
        help=f"tokens of {SEARCHED_SPLIT} that each pair is tried on (default: {SEARCHED_TOKENS:,})",
    )


def _temperature(text: str) -> float | str:
    try:
        return text if text == SEARCH else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or {SEARCH}; got {text!r}") from None


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``perplexity``; ``nll``, the sum in nats; ``bits``, the mean of a token, and where a token is a
    byte the same as ``bits_per_character``; ``tokens``, the number of scored ones; ``left_out``, the
    number of others; ``models``, their number; ``split``; ``columns``; ``temperature``; ``samples``, 0
    without Monte-Carlo evaluation; ``cache`` and ``dynamic``, their settings, or null; ``searched``,
    {setting: perplexity on the searched split}; ``given_up``, {setting that fell behind: tokens scored};
    ``at_ends``, {part of the best setting: "smallest" or "largest" of those tried}; ``seconds``, without
    loading the models; ``seconds_before``, the part of them that went into statistics and searches."""
    check_dynamic(args)
    _check(args)
    cache = cache_settings(args)
    ensemble = ensemble_of(args)
    for split in {args.gen_subset, SEARCHED_SPLIT if _searches(args) else args.gen_subset}:
        check_text(ensemble, split, cache, args.batch_size)
    start = time.perf_counter()
    torch.manual_seed(1 if args.seed is None else args.seed)
    settings = StreamSettings(
        [1.0 if args.temperature == SEARCH else args.temperature],
        args.samples or 0,
        args.average or AVERAGES[0],
        cache,
        dynamic_settings(args, ensemble),
    )
    search = _search(args, ensemble, settings)
    settings = search.settings if search else settings
    before = time.perf_counter() - start
    if search and not args.dynamic_search and args.gen_subset == SEARCHED_SPLIT:
        result = search.best  # of the whole split
    else:
        columns, progress = args.batch_size, progress_of(args)
        (result,) = evaluate_at(ensemble, args.gen_subset, settings, columns, progress)
    (temperature,) = settings.temperatures
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
        "samples": settings.samples,
        "cache": _cache_as_json(settings),
        "dynamic": _dynamic_as_json(settings, gathering_settings(args)),
        "searched": {name: one.perplexity for name, one in search.tried.items()} if search else {},
        "given_up": search.given_up if search else {},
        "at_ends": search.at_ends if search else {},
        "seconds": time.perf_counter() - start,
        "seconds_before": before,
    }


def _searches(args: argparse.Namespace) -> list[str]:
    asked = {
        "--temperature search": args.temperature == SEARCH,
        "--cache-search": args.cache_search,
        "--dynamic-search": args.dynamic_search,
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _check(args: argparse.Namespace) -> None:
    if args.temperature != SEARCH:
        check_temperatures([args.temperature])
    searches = _searches(args)
    if len(searches) > 1:
        raise FairseqDocError(
            f"expected one search at a time, the others' settings given; got {' and '.join(searches)}"
        )
    for name, needs, missing in (
        ("--cache-search", "--cache-window N", args.cache_search and args.cache_window is None),
        ("--dynamic-search", "--dynamic", args.dynamic_search and not args.dynamic),
        (
            "--dynamic-search-tokens",
            "--dynamic-search",
            args.dynamic_search_tokens is not None and not args.dynamic_search,
        ),
    ):
        if missing:
            raise FairseqDocError(f"{name}: expected {needs} beside it")
    _check_not_searched(args, "cache_search", ("cache_theta", "cache_lambda"))
    _check_not_searched(args, "dynamic_search", ("dynamic_rate", "dynamic_decay"))
    if args.dynamic:
        check_columns(args.batch_size)
    if args.dynamic and args.eval_window is not None:
        raise FairseqDocError(
            "--dynamic reads windows of --dynamic-segment tokens: expected no --eval-window; got "
            f"{args.eval_window}"
        )
    if args.samples:
        if args.eval_window is not None:
            raise FairseqDocError(
                "--samples draws dropout masks every --bptt steps of the training: expected no "
                f"--eval-window; got {args.eval_window}"
            )
        if args.dropout_scale is not None and args.dropout_scale < 0:
            raise FairseqDocError(f"--dropout-scale must be at least 0; got {args.dropout_scale}")
        if args.cache_window is not None or args.dynamic:
            raise FairseqDocError(SAMPLES_ALONE)
        return
    for name in ("average", "dropout_scale", "seed"):
        if getattr(args, name) is not None:
            raise FairseqDocError(
                f"--{name.replace('_', '-')} is of the samples of Monte-Carlo evaluation: expected "
                "--samples K beside it"
            )


def _check_not_searched(args: argparse.Namespace, search: str, names: Sequence[str]) -> None:
    for name in names:
        if getattr(args, search) and getattr(args, name) is not None:
            raise FairseqDocError(
                f"--{search.replace('_', '-')} chooses --{name.replace('_', '-')}: expected one of "
                "the two; got both"
            )


def _search(
    args: argparse.Namespace, ensemble: Ensemble, settings: StreamSettings
) -> Search | None:
    if args.dynamic_search:
        tokens = args.dynamic_search_tokens or SEARCHED_TOKENS
        return search_dynamic(
            ensemble, SEARCHED_SPLIT, settings, tokens, progress_of(args), _remark_of(args)
        )
    columns, progress = args.batch_size, progress_of(args)
    if args.temperature == SEARCH:
        return search_temperature(ensemble, SEARCHED_SPLIT, settings, columns, progress)
    if args.cache_search:
        return search_cache(ensemble, SEARCHED_SPLIT, settings, columns, progress)
    return None


def _remark_of(args: argparse.Namespace) -> Callable[[str], None]:
    def remark(text: str) -> None:
        if not args.no_progress_bar:
            print(f"fairseq-doc eval-lm: {text}", file=sys.stderr)

    return remark


def _cache_as_json(settings: StreamSettings) -> dict[str, Any] | None:
    if settings.cache is None:
        return None
    ((theta, share),) = settings.cache.points
    window, similarity = settings.cache.window, settings.cache.similarity
    return {"window": window, "similarity": similarity, "theta": theta, "lambda": share}


def _dynamic_as_json(
    settings: StreamSettings, gathering: GatheringSettings
) -> dict[str, Any] | None:
    if settings.dynamic is None:
        return None
    names = ("segment", "rate", "decay", "epsilon", "adapt")
    found = {name: getattr(settings.dynamic, name) for name in names}
    return found | {"columns": gathering.columns, "batches": gathering.batches or "all"}


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
        searched = result["searched"]
        best = sorted(searched, key=searched.__getitem__)[:SHOWN]
        tried = "; ".join(f"{name}: {shown(searched[name])}" for name in best)
        number, lost = len(searched) + len(result["given_up"]), len(result["given_up"])
        ending = f" ({lost} fell behind and were given up)" if lost else ""
        lines.append(f"perplexity on {SEARCHED_SPLIT}, the best of {number}{ending}: {tried}")
    for name, end in result["at_ends"].items():
        lines.append(f"the best {name} is the {end} that was tried; others may be better")
    if result["temperature"] != 1.0:
        lines.append(f"temperature {result['temperature']:.4f}")
    for name in ("cache", "dynamic"):
        if result[name]:
            lines.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in result[name].items()))
    return "\n".join(lines)
