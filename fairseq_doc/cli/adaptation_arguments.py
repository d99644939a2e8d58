"""Arguments of caches and dynamic evaluation, and the settings they give."""

import argparse
from collections.abc import Sequence
from typing import Any

from fairseq.utils import split_paths

from fairseq_doc.cli.arguments import positive, progress_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import SIMILARITIES, CacheSettings
from fairseq_doc.evaluation.dynamic import ADAPTED, USUAL_SEGMENT, DynamicSettings
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.gradient_statistics import GatheringSettings, statistics_of

# The published cache of AWD-LSTM on Penn Treebank.
USUAL_THETA, USUAL_LAMBDA = 1.0, 0.1


def add_cache_arguments(parser: argparse.ArgumentParser) -> None:
    """``--cache-window`` and what goes with it."""
    parser.add_argument(
        "--cache-window",
        type=int,
        metavar="N",
        help="mix in a cache of the words that followed the last N states (default: no cache)",
    )
    parser.add_argument(
        "--cache-theta",
        type=float,
        help="factor of the states' similarities; the larger, the more the most similar states count "
        f"(default: {USUAL_THETA})",
    )
    parser.add_argument(
        "--cache-similarity",
        choices=SIMILARITIES,
        help=f"of states: their dot product, as published, or their cosine (default: {SIMILARITIES[0]})",
    )
    parser.add_argument(
        "--cache-lambda",
        type=float,
        help=f"share of the cache in P, from 0 to below 1 (default: {USUAL_LAMBDA})",
    )


def add_dynamic_arguments(parser: argparse.ArgumentParser) -> None:
    """``--dynamic`` and what goes with it."""
    usual, gathering = DynamicSettings([]), GatheringSettings()
    add = parser.add_argument
    add(
        "--dynamic",
        action="store_true",
        help="dynamic evaluation: the model learns from each segment after it was scored; in float32",
    )
    add(
        "--dynamic-segment",
        type=positive,
        metavar="T",
        help=f"tokens between updates; more are faster (default: {USUAL_SEGMENT})",
    )
    add("--dynamic-rate", type=float, help=f"learning rate eta (default: {usual.rate} T / 5)")
    add(
        "--dynamic-decay",
        type=float,
        help=f"lambda, how fast weights return to the trained ones (default: {usual.decay} T / 5)",
    )
    add("--dynamic-epsilon", type=float, help=f"epsilon (default: {usual.epsilon})")
    add(
        "--dynamic-adapt",
        choices=ADAPTED,
        help="which weights learn; output-weights: W_pi and the output's bias (default: all)",
    )
    add(
        "--dynamic-statistics",
        metavar="FILE",
        help="root mean squares of the gradients on the split train: read, or gathered once and written "
        "there; a.npz:b.npz for an ensemble (default: CHECKPOINT.BxT.npz)",
    )
    add(
        "--dynamic-columns",
        type=positive,
        metavar="B",
        help=f"columns of the batches of these gradients (default: {gathering.columns})",
    )
    add(
        "--dynamic-batches",
        type=positive,
        metavar="N",
        help="batches of these gradients at most; the fewer, the smaller the rate must be (default: the "
        "whole text)",
    )


def cache_settings(
    args: argparse.Namespace, points: Sequence[tuple[float, float]] | None = None
) -> CacheSettings | None:
    """The cache that the arguments name, or with these points of theta and lambda."""
    if args.cache_window is None:
        unused = ("cache_theta", "cache_lambda", "cache_similarity")
        _check_unused(args, unused, "--cache-window N")
        return None
    theta = USUAL_THETA if args.cache_theta is None else args.cache_theta
    share = USUAL_LAMBDA if args.cache_lambda is None else args.cache_lambda
    similarity = args.cache_similarity or SIMILARITIES[0]
    return CacheSettings(args.cache_window, points or [(theta, share)], similarity)


def check_dynamic(args: argparse.Namespace) -> None:
    """Check the arguments of dynamic evaluation before any work, and choose float32 for it."""
    names = ("segment", "rate", "decay", "epsilon", "adapt", "statistics", "columns", "batches")
    if not args.dynamic:
        _check_unused(args, [f"dynamic_{name}" for name in names], "--dynamic")
        return
    if args.matmul_precision not in (None, "float32"):
        raise FairseqDocError(
            f"--dynamic computes in float32: expected no --matmul-precision; got {args.matmul_precision}"
        )
    args.matmul_precision = "float32"
    _of_arguments(args, [])
    models, files = split_paths(args.path), _statistics_files(args)
    if len(set(models)) != len(models):
        raise FairseqDocError(
            f"--dynamic gives every model statistics of its own: expected different models; got {args.path}"
        )
    if len(set(files)) != len(models):
        raise FairseqDocError(
            f"--dynamic-statistics: expected {len(models)} different files, one a model; got "
            f"{args.dynamic_statistics}"
        )


def dynamic_settings(args: argparse.Namespace, ensemble: Ensemble) -> DynamicSettings | None:
    """The dynamic evaluation that the arguments name; gathers the statistics that are not there."""
    if not args.dynamic:
        return None
    statistics, gathering = [], gathering_settings(args)
    for model, path in zip(ensemble.models, _statistics_files(args), strict=True):
        single = Ensemble([model], ensemble.task)
        statistics.append(statistics_of(single, path, gathering, progress=progress_of(args)))
    return _of_arguments(args, statistics)


def _of_arguments(args: argparse.Namespace, statistics: Any) -> DynamicSettings:
    usual = DynamicSettings([])
    segment = args.dynamic_segment or USUAL_SEGMENT
    scale = segment / USUAL_SEGMENT

    def given(name: str, default: float) -> float:
        value = getattr(args, f"dynamic_{name}")
        return default if value is None else value

    return DynamicSettings(
        statistics,
        segment,
        given("rate", usual.rate * scale),
        given("decay", min(1.0, usual.decay * scale)),
        given("epsilon", usual.epsilon),
        args.dynamic_adapt or usual.adapt,
    )


def gathering_settings(args: argparse.Namespace) -> GatheringSettings:
    """How ``--dynamic`` gathers its statistics."""
    usual = GatheringSettings()
    return GatheringSettings(
        args.dynamic_columns or usual.columns,
        args.dynamic_segment or USUAL_SEGMENT,
        args.dynamic_batches,
    )


def _statistics_files(args: argparse.Namespace) -> list[str]:
    if args.dynamic_statistics is not None:
        return split_paths(args.dynamic_statistics)
    settings = gathering_settings(args)
    ending = f"{settings.columns}x{settings.segment}.npz"
    return [f"{path}.{ending}" for path in split_paths(args.path)]


def _check_unused(args: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    for name in names:
        if getattr(args, name) is not None:
            raise FairseqDocError(f"--{name.replace('_', '-')}: expected {needed} beside it")
