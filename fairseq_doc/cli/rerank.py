"""parse: n-best parse trees, reranked by a language model."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of, progress_of
from fairseq_doc.cli.outputs import check_outputs, named_outputs, output_lines
from fairseq_doc.cli.tree_arguments import (
    TreeOptions,
    are_tagged,
    report_roots,
    trees_of,
    warn,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.prefix_tree import MAX_SEQUENCES
from fairseq_doc.files import check_input, write_files
from fairseq_doc.options import REQUIRED, option, parse_grid
from fairseq_doc.parsing.bracketing import EXCLUDED, bracketing_f1
from fairseq_doc.parsing.reranking import TreeLists, read_tree_lists, scored_lines
from fairseq_doc.preparation.trees import Tree, without_traces
from fairseq_doc.scoring.metrics import Metric
from fairseq_doc.scoring.nbest_lists import NBestList, best_lines
from fairseq_doc.scoring.rescoring import (
    LANGUAGE_MODEL,
    Judge,
    Weights,
    choose,
    score,
    search,
    totals,
)

NAME = "rerank"
EXAMPLE = "fairseq-doc rerank data-bin/wsj dev.nbest.gz --path a.pt --score-base 2 --tune dev.mrg"
BASES = {"e": math.e, "2": 2, "10": 10}
GRID = "0:5:0.05"
OUTPUTS = ("output", "output_nbest")


@dataclass(frozen=True, kw_only=True)
class Options(TreeOptions, ProgressOptions, ModelOptions):
    nbest: str = option(
        "n-best file of a parser, gzipped or not", REQUIRED, positional=True, reads=True
    )
    weight: float = option(
        "weight of the parser's score, which is added to that of the language model", 0.0, least=0
    )
    score_base: str = option(
        "base of the logarithms in the parser's scores", "e", choices=list(BASES)
    )
    tune: str | None = option(
        "find the weight with the best F1 against these trees", metavar="GOLD", reads=True
    )
    weights: str = option(
        "weights to try with --tune; the smallest of the best wins", GRID, metavar="FROM:TO:STEP"
    )
    output: str | None = option("file for the best tree of each sentence")
    output_nbest: str | None = option(
        "file for all candidates that do not differ only in tags, best first: score, ln P of the "
        "language model, parser's score, tree"
    )
    max_candidates: int = option(
        "candidates scored at once; changes memory and speed, not results",
        MAX_SEQUENCES,
        least=1,
    )
    overwrite: bool = option("replace existing outputs", False)

    def __post_init__(self) -> None:
        if not (self.tune or self.output or self.output_nbest):
            raise FairseqDocError("nothing to do: expected --tune, --output or --output-nbest")
        if self.tune and self.weight:
            raise FairseqDocError("--weight cannot be combined with --tune, which finds the weight")
        _ = self.grid

    @property
    def grid(self) -> list[Weights]:
        """The weights to try, the smallest first."""
        return [Weights(weight, 1.0) for weight in parse_grid("--weights", self.weights, least=0)]


def run(settings: Options) -> dict[str, Any]:
    """Result: ``sentences``; ``candidates``; ``distinct``, those that do not differ only in tags;
    ``unknown``, symbols outside the dictionary; ``scored``, distinct candidates without failed
    parses; ``seconds`` of scoring; ``weight``; and the files ``output`` and ``output_nbest``. With
    ``--tune`` also ``errors`` (sentences excluded at that weight), ``f1``, ``parser_f1`` (first
    candidates), ``lm_f1`` (weight 0), ``oracle_f1`` and ``tuning``, F1 by weight."""
    _check_files(settings)
    metric = bracketing_f1(settings.parameters)
    gold, sentences = _without_traces(settings.tune), _without_traces(settings.sentences)
    tagged = are_tagged(settings.nbest, settings.sentences, NAME)
    ensemble, base = ensemble_of(settings), BASES[settings.score_base]
    read = read_tree_lists(
        settings.nbest, ensemble.dictionary, base, metric, gold, sentences, tagged
    )
    failed = [n for n, own in enumerate(read.encoded, start=1) if not any(own)]
    warn(NAME, failed, len(read.lists), "keep their failed parse, (())")
    judge = None if gold is None else _judge_of(settings, read, metric, gold)
    start = time.perf_counter()
    rows = score(
        ensemble,
        read.lists,
        read.encoded,
        progress=progress_of(settings),
        at_once=settings.max_candidates,
    )
    log_probs = list(map(totals, rows))
    result: dict[str, Any] = {
        "sentences": len(read.lists),
        "candidates": read.candidates,
        "distinct": sum(map(len, read.encoded)),
        "unknown": read.unknown,
        "weight": settings.weight,
        "seconds": time.perf_counter() - start,
        "scored": sum(map(bool, chain(*read.encoded))),
    }
    if judge is not None:
        result |= _tune(settings, judge, read.lists, log_probs)
    written: dict[str, Iterable[str]] = {}
    if settings.output:
        chosen = choose(read.lists, log_probs, Weights(result["weight"], 1.0))
        written[settings.output] = best_lines(read.lists, chosen)
    if settings.output_nbest:
        written[settings.output_nbest] = scored_lines(read.lists, log_probs, result["weight"])
    write_files(written, settings.overwrite)
    return result | named_outputs(settings, *OUTPUTS)


def _check_files(settings: Options) -> None:
    check_outputs(settings, settings.output, settings.output_nbest, alone=[settings.nbest])
    # With --sentences the n-best file is read twice.
    check_input(settings.nbest, again=settings.sentences is not None)
    if settings.sentences:
        check_input(settings.sentences)


def _without_traces(path: str | None) -> list[Tree] | None:
    return list(map(without_traces, trees_of(path))) if path else None


def _judge_of(settings: Options, read: TreeLists, metric: Metric, gold: Sequence[Tree]) -> Judge:
    """Scores any selection of candidates by F1. Refuses gold trees for which EVALB excludes every
    candidate, and reports which roots count."""
    if all(rows[:, EXCLUDED].all() for rows in read.statistics):
        raise FairseqDocError(
            f"{settings.nbest}: EVALB excludes every candidate, since the words that it scores "
            "differ from those of the gold trees; if the tags of the lists do not mark punctuation, "
            "give --sentences TREES to use the tags of other trees"
        )
    roots = {tree.root for tree in gold} | read.roots
    report_roots(roots, settings.parameters.delete_label, NAME)
    return Judge(metric, read.statistics)


def _tune(
    settings: Options, judge: Judge, lists: Sequence[NBestList], log_probs: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The part of the result that ``--tune`` adds."""
    found = search(judge, lists, log_probs, settings.grid)
    excluded = judge.chosen(choose(lists, log_probs, found.weights))[:, EXCLUDED]
    numbers = (np.flatnonzero(excluded) + 1).tolist()
    why = "the words that EVALB scores differ from those of the gold tree, or none are left"
    warn(NAME, numbers, len(lists), f"are excluded from the totals, since {why}")
    return {
        "weight": found.weights.first_pass,
        "f1": found.value,
        "parser_f1": judge([0] * len(lists)),
        "lm_f1": judge(choose(lists, log_probs, LANGUAGE_MODEL)),
        "oracle_f1": judge(judge.oracle),
        "tuning": {str(weights.first_pass): value for weights, value in found.tried.items()},
        "errors": len(numbers),
    }


def as_text(result: dict[str, Any]) -> str:
    """A summary, one fact per line."""
    lines = [
        f"{result['sentences']:,} sentences, {result['candidates']:,} candidates, "
        f"{result['distinct']:,} distinct without tags, {result['unknown']:,} of their symbols "
        f"outside the dictionary; {result['scored']:,} scored in {result['seconds']:.1f} s"
    ]
    if "f1" in result:
        tried = [float(weight) for weight in result["tuning"]]
        lines += [
            "parser alone F1 {parser_f1:.2f}, language model alone {lm_f1:.2f}, best possible "
            "{oracle_f1:.2f}".format(**result),
            f"weight {result['weight']:g} F1 {result['f1']:.2f}, the best of {len(tried)} weights "
            f"from {tried[0]:g} to {tried[-1]:g}",
        ]
        if result["weight"] == tried[-1] > 0:
            lines[-1] += ", and the last one: try larger --weights"
        if result["f1"] <= result["parser_f1"]:
            advice = "keep the parser's order"
            lines.append(f"none of these weights is better than the parser alone: {advice}")
    return "\n".join(lines + output_lines(result, *OUTPUTS))
