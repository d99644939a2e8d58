"""``fairseq-doc rerank``."""

import argparse
import contextlib
import hashlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairseq.utils import split_paths

from fairseq_doc.checksums import sha256_of
from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of, progress_of
from fairseq_doc.cli.outputs import named_outputs, output_lines
from fairseq_doc.cli.tree_arguments import (
    add_tree_arguments,
    check_readable_again,
    parameters_of,
    report_roots,
    trees_of,
    warn_excluded,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.files import check_input, check_output, write_lines
from fairseq_doc.options import add_options, positive, read_options
from fairseq_doc.parsing.bracketing import Parameters
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.reranking import (
    MAX_CANDIDATES,
    Sentence,
    best_candidates,
    best_trees,
    corpus_f1,
    oracle,
    read_sentences,
    score_candidates,
    scored_lists,
    tune,
)
from fairseq_doc.preparation.trees import Tree, without_traces

NAME = "rerank"
EXAMPLE = "fairseq-doc rerank data-bin/wsj dev.nbest.gz --path a.pt --score-base 2 --tune dev.mrg"
BASES = {"e": math.e, "2": 2, "10": 10}
GRID = "0:5:0.05"
MAX_WEIGHTS = 10_000
OUTPUTS = ("output", "output_nbest")


@dataclass(frozen=True, kw_only=True)
class Models(ProgressOptions, ModelOptions):
    """The models."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's own."""
    add_options(parser, Models)
    parser.add_argument("nbest", help="n-best file of a parser, gzip or not")
    parser.add_argument(
        "--weight",
        type=float,
        default=0.0,
        help="weight of the parser's own score, beside the language model's (default: 0)",
    )
    parser.add_argument(
        "--score-base",
        choices=BASES,
        default="e",
        help="base of the logarithms that the parser's scores are (default: e)",
    )
    parser.add_argument("--tune", metavar="GOLD", help="find the weight by F1 against these trees")
    parser.add_argument(
        "--weights",
        default=GRID,
        metavar="FROM:TO:STEP",
        help="tried by --tune; the smallest of the best wins (default: %(default)s)",
    )
    add_tree_arguments(parser)
    parser.add_argument("--output", help="file for the best tree of each sentence")
    parser.add_argument(
        "--output-nbest",
        help="file for all candidates that differ in more than tags, best first: score, ln P of "
        "the language model, parser's score, tree",
    )
    parser.add_argument(
        "--scores",
        help="file that keeps the language model's scores: the same command, also with another "
        "weight, continues from it",
    )
    parser.add_argument(
        "--max-candidates",
        type=positive,
        default=MAX_CANDIDATES,
        help="scored at once; memory and speed, not results (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``sentences``, ``candidates``, ``distinct`` (those that differ in more than tags),
    ``unknown`` (their symbols outside the dictionary), ``scored`` (those not found in
    ``--scores``), ``seconds`` of scoring, without loading, ``weight``, and ``output``
    and ``output_nbest``, where they are written. With ``--tune`` also
    ``errors`` (sentences excluded at that weight), ``f1``, ``parser_f1`` (first candidates),
    ``lm_f1`` (weight 0), ``oracle_f1`` and ``tuning``, F1 by weight."""
    weights = _parse_grid(args.weights)
    _check(args)
    check_readable_again(args.nbest)
    parameters = parameters_of(args)
    gold = list(map(without_traces, trees_of(args.tune))) if args.tune else None
    word_trees = list(map(without_traces, trees_of(args.sentences))) if args.sentences else None
    ensemble = ensemble_of(read_options(Models, vars(args)))
    with contextlib.ExitStack() as stack:
        kept = None
        if args.scores:
            kept = stack.enter_context(KeptScores(args.scores, _stamp(args, ensemble)))
        base = BASES[args.score_base]
        sentences = read_sentences(
            args.nbest, ensemble.dictionary, base, gold, parameters, word_trees
        )
        if gold is not None:
            _check_gold(args, sentences, gold, parameters)
        start = time.perf_counter()
        lm_scores = score_candidates(
            ensemble,
            args.nbest,
            sentences,
            args.max_candidates,
            kept,
            progress_of(read_options(Models, vars(args))),
            word_trees,
        )
        seconds = time.perf_counter() - start
    distinct = sum(len(sentence.lines) for sentence in sentences)
    result: dict[str, Any] = {
        "sentences": len(sentences),
        "candidates": sum(sentence.candidates for sentence in sentences),
        "distinct": distinct,
        "unknown": sum(sentence.unknown for sentence in sentences),
        "weight": args.weight,
        "seconds": seconds,
        "scored": distinct - (kept.taken if kept else 0),
    }
    if gold is not None:
        result |= _tuned(sentences, lm_scores, weights)
    for path, lines in ((args.output, best_trees), (args.output_nbest, scored_lists)):
        if path:
            written = lines(args.nbest, sentences, lm_scores, result["weight"], word_trees)
            write_lines(path, written, args.overwrite)
    return result | named_outputs(args, *OUTPUTS)


def _check(args: argparse.Namespace) -> None:
    """Raise ``FairseqDocError``, before any work, where the arguments do not fit together."""
    outputs = [path for path in (args.output, args.output_nbest, args.scores) if path]
    if not (args.tune or outputs):
        raise FairseqDocError(
            "expected --tune, --output, --output-nbest or --scores; got none, so there is nothing "
            "to do"
        )
    if not (args.weight >= 0 and math.isfinite(args.weight)):
        raise FairseqDocError(f"--weight must be at least 0; got {args.weight}")
    if args.tune and args.weight:
        raise FairseqDocError("expected --weight or --tune, which finds the weight; got both")
    inputs = [args.nbest, args.tune, args.sentences, args.prm, *split_paths(args.path)]
    written = {os.path.realpath(path) for path in outputs}
    read = {os.path.realpath(path) for path in inputs if path}
    gold_is_list = args.tune and os.path.realpath(args.tune) == os.path.realpath(args.nbest)
    if len(written) < len(outputs) or written & read or gold_is_list:
        raise FairseqDocError("expected other files for every input and output; got one twice")
    if args.scores and args.sentences:
        check_input(args.sentences, again=True)  # its checksum is in the file of scores
    for path in outputs:
        check_output(path, args.overwrite or path == args.scores)


def _parse_grid(text: str) -> list[float]:
    """``0:2:0.05`` -> [0.0, 0.05, ..., 2.0], as rounded as they are written."""
    try:
        first, last, step = map(float, text.split(":"))
    except ValueError:
        first, last, step = 0.0, 0.0, 0.0
    if not (0 <= first <= last < math.inf and 0 < step < math.inf):
        raise FairseqDocError(
            f"--weights: expected FROM:TO:STEP with 0 <= FROM <= TO and STEP > 0, such as {GRID}; "
            f"got {text!r}"
        )
    if (last - first) / step > MAX_WEIGHTS:
        raise FairseqDocError(f"--weights: expected at most {MAX_WEIGHTS:,} weights; got {text!r}")
    return [round(first + i * step, 10) for i in range(int((last - first) / step + 1e-9) + 1)]


def _stamp(args: argparse.Namespace, ensemble: Ensemble) -> dict[str, Any]:
    """What the language model's scores depend on."""
    paths = [*split_paths(args.path), args.nbest]
    if args.sentences:
        paths.append(args.sentences)
    digests = [sha256_of(path) for path in paths]
    symbols = ensemble.dictionary.symbols
    dictionary = hashlib.sha256("\n".join(symbols).encode()).hexdigest()
    stamp = {"sha256": digests, "dictionary": dictionary}
    precisions = ensemble.matmul_precisions
    if set(precisions) != {"float32"}:
        stamp["matmul_precision"] = precisions
    return stamp


def _check_gold(
    args: argparse.Namespace,
    sentences: Sequence[Sentence],
    gold: Sequence[Tree],
    parameters: Parameters,
) -> None:
    """Raise ``FairseqDocError`` where EVALB excludes every candidate; report which roots count."""
    if not any(sentence.valid is not None and sentence.valid.any() for sentence in sentences):
        raise FairseqDocError(
            f"{args.nbest}: EVALB excludes every candidate, since the words that it scores differ "
            "from the gold trees'; if the tags of the lists do not mark punctuation, --sentences "
            "TREES uses those of other trees"
        )
    roots = {tree.root for tree in gold} | {sentence.root for sentence in sentences}
    report_roots(roots, parameters.delete_label, NAME)


def _tuned(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weights: Sequence[float]
) -> dict[str, Any]:
    """The best weight and the figures at it; warns about the sentences excluded at that weight."""
    weight, tuning = tune(sentences, lm_scores, weights)
    chosen = best_candidates(sentences, lm_scores, weight)
    excluded = [
        number
        for number, (sentence, index) in enumerate(zip(sentences, chosen, strict=True), start=1)
        if sentence.valid is not None and not sentence.valid[index]
    ]
    why = "the words that EVALB scores differ from the gold tree's, or there are none"
    warn_excluded(excluded, len(sentences), why, NAME)
    return {
        "weight": weight,
        "errors": len(excluded),
        "f1": max(tuning),
        "parser_f1": corpus_f1(sentences, [0] * len(sentences)),
        "lm_f1": corpus_f1(sentences, best_candidates(sentences, lm_scores, 0.0)),
        "oracle_f1": corpus_f1(sentences, oracle(sentences)),
        "tuning": dict(zip(map(str, weights), tuning, strict=True)),
    }


def as_text(result: dict[str, Any]) -> str:
    """What was done, a line a fact."""
    lines = [
        f"{result['sentences']:,} sentences, {result['candidates']:,} candidates, "
        f"{result['distinct']:,} distinct without tags, {result['unknown']:,} of their symbols "
        f"outside the dictionary; {result['scored']:,} scored in {result['seconds']:.1f} s"
    ]
    if "f1" in result:
        tried = [float(weight) for weight in result["tuning"]]
        lines.append(
            f"parser alone F1 {result['parser_f1']:.2f}, language model alone "
            f"{result['lm_f1']:.2f}, best possible {result['oracle_f1']:.2f}"
        )
        found = (
            f"weight {result['weight']:g} F1 {result['f1']:.2f}, the best of {len(tried)} weights "
            f"from {tried[0]:g} to {tried[-1]:g}"
        )
        if result["weight"] == tried[-1] > 0:
            found += "; it is the last of them: give --weights more"
        lines.append(found)
        if result["f1"] <= result["parser_f1"]:
            lines.append(
                "none of these weights is better than the parser alone: keep the parser's order"
            )
    return "\n".join(lines + output_lines(result, *OUTPUTS))
