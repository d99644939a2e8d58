"""``fairseq-doc eval-lm``."""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fairseq_doc.cli.adaptation_arguments import (
    add_cache_arguments,
    add_dynamic_arguments,
    cache_settings,
    check_dynamic,
    dynamic_settings,
)
from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_split_arguments,
    add_threshold_argument,
    bits_a_character,
    ensemble_of,
    positive,
    progress_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import GRID as GRID_OF_CACHE
from fairseq_doc.evaluation.dynamic import USUAL_SEGMENT, grid
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.monte_carlo import AVERAGES
from fairseq_doc.evaluation.perplexity import Evaluation, check_columns, check_text, evaluate_at
from fairseq_doc.evaluation.stream_scorer import SAMPLES_ALONE, StreamSettings
from fairseq_doc.evaluation.temperature import GRID, check_temperatures
from fairseq_doc.modules.mixture import NotFiniteError

NAME = "eval-lm"
HELP = "perplexity of a model or an ensemble, with the state carried over the whole text"
EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"
SEARCH, SEARCHED_SPLIT = "search", "valid"
SHOWN = 5  # of the settings that a search tried; --json has all
SEARCHED_TOKENS = 30_000  # as in benkrause/dynamic-evaluation's fast grid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser)
    add_threshold_argument(parser)
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
        help=f"use the theta and lambda that are best on {SEARCHED_SPLIT}, of {len(GRID_OF_CACHE)} pairs",
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
    {setting: perplexity on the searched split}; ``at_ends``, {setting: "smallest" or "largest"} where
    the best one is at an end of what was tried; ``seconds``, without loading the models;
    ``seconds_before``, the part of them that went into statistics and searches."""
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
    searched: dict[str, Evaluation] = {}
    at_ends: dict[str, str] = {}
    if args.dynamic_search:
        settings, searched, at_ends = _search_dynamic(args, ensemble, settings)
    known: Evaluation | None = None  # of the split, where the search has scored the whole of it
    if args.temperature == SEARCH or args.cache_search:
        settings, searched, at_ends, known = _search_points(args, ensemble, settings)
    before = time.perf_counter() - start
    result = known or _evaluations(args, ensemble, args.gen_subset, settings)[0]
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
        "dynamic": _dynamic_as_json(settings),
        "searched": {name: evaluation.perplexity for name, evaluation in searched.items()},
        "at_ends": at_ends,
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


def _evaluations(
    args: argparse.Namespace, ensemble: Ensemble, split: str, settings: StreamSettings
) -> list[Evaluation]:
    return evaluate_at(ensemble, split, settings, args.batch_size, progress_of(args))


def _at_ends(
    names: Sequence[str], tried: Sequence[tuple[float, ...]], best: tuple[float, ...]
) -> dict[str, str]:
    """Which of the best settings are the smallest or the largest that a search tried."""
    ends = {}
    for name, values, value in zip(names, zip(*tried, strict=True), best, strict=True):
        if value in (min(values), max(values)):
            ends[name] = "smallest" if value == min(values) else "largest"
    return ends


def _search_points(
    args: argparse.Namespace, ensemble: Ensemble, settings: StreamSettings
) -> tuple[StreamSettings, dict[str, Evaluation], dict[str, str], Evaluation | None]:
    """The best temperature or point of the cache, found in one pass: settings with it, all evaluations by
    their names, :func:`_at_ends`, and the best one where it is of the split that is asked for."""
    names: Sequence[str]
    points: Sequence[tuple[float, ...]]
    candidates: list[tuple[str, StreamSettings]]
    if args.temperature == SEARCH:
        names, points = ["temperature"], [(t,) for t in GRID]
        everything = replace(settings, temperatures=GRID)
        candidates = [(f"{t:.4f}", replace(settings, temperatures=[t])) for t in GRID]
    else:
        names, points = ["theta", "lambda"], GRID_OF_CACHE
        everything = replace(settings, cache=cache_settings(args, GRID_OF_CACHE))
        candidates = [
            (f"theta {point[0]:g}, lambda {point[1]:g}",
             replace(settings, cache=cache_settings(args, [point])))
            for point in GRID_OF_CACHE
        ]  # fmt: skip
    found = _evaluations(args, ensemble, SEARCHED_SPLIT, everything)
    best = min(range(len(found)), key=lambda i: found[i].nll)
    searched = {name: one for (name, _), one in zip(candidates, found, strict=True)}
    known = found[best] if args.gen_subset == SEARCHED_SPLIT else None
    return candidates[best][1], searched, _at_ends(names, points, points[best]), known


def _search_dynamic(
    args: argparse.Namespace, ensemble: Ensemble, settings: StreamSettings
) -> tuple[StreamSettings, dict[str, Evaluation], dict[str, str]]:
    """The best learning rate and decay: settings with them, all evaluations by their names, and
    :func:`_at_ends`."""
    assert settings.dynamic is not None
    points = grid(settings.dynamic.segment)
    tokens = args.dynamic_search_tokens or SEARCHED_TOKENS
    searched: dict[str, Evaluation] = {}
    best = settings
    start = time.perf_counter()
    for number, (rate, decay) in enumerate(points, start=1):
        tried = replace(settings, dynamic=replace(settings.dynamic, rate=rate, decay=decay))
        try:
            (found,) = evaluate_at(
                ensemble, SEARCHED_SPLIT, tried, progress=progress_of(args), tokens=tokens
            )
        except NotFiniteError:  # the weights ran away
            found = Evaluation(math.inf, tokens)
        if found.nll < min([one.nll for one in searched.values()], default=math.inf):
            best = tried
        searched[f"rate {rate:g}, decay {decay:g}"] = found
        if not args.no_progress_bar:
            left = (time.perf_counter() - start) / number * (len(points) - number)
            print(
                f"fairseq-doc eval-lm: pair {number} of {len(points)}: rate {rate:g}, decay {decay:g}: "
                f"perplexity {_shown(found.perplexity)}; about {left / 60:.0f} min left",
                file=sys.stderr,
            )
    if all(one.nll == math.inf for one in searched.values()):
        raise FairseqDocError(
            "no pair of --dynamic-search gave finite scores: expected statistics of more batches, or a "
            "larger --dynamic-epsilon; or has the training diverged?"
        )
    assert best.dynamic is not None
    chosen = (best.dynamic.rate, best.dynamic.decay)
    return best, searched, _at_ends(["rate", "decay"], points, chosen)


def _cache_as_json(settings: StreamSettings) -> dict[str, Any] | None:
    if settings.cache is None:
        return None
    ((theta, share),) = settings.cache.points
    return {"window": settings.cache.window, "theta": theta, "lambda": share}


def _dynamic_as_json(settings: StreamSettings) -> dict[str, Any] | None:
    if settings.dynamic is None:
        return None
    names = ("segment", "rate", "decay", "epsilon", "adapt")
    return {name: getattr(settings.dynamic, name) for name in names}


def _shown(perplexity: float) -> str:
    return f"{perplexity:.2f}" if perplexity < 1e6 else f"{perplexity:.3g}"


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
        tried = "; ".join(f"{name}: {_shown(searched[name])}" for name in best)
        lines.append(f"perplexity on {SEARCHED_SPLIT}, the best of {len(searched)}: {tried}")
    for name, end in result["at_ends"].items():
        lines.append(f"the best {name} is the {end} that was tried; others may be better")
    if result["temperature"] != 1.0:
        lines.append(f"temperature {result['temperature']:.4f}")
    for name in ("cache", "dynamic"):
        if result[name]:
            lines.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in result[name].items()))
    return "\n".join(lines)
