"""parse: rerank n-best parse trees by a language model."""

import math
import time
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of
from fairseq_doc.cli.tree_arguments import IF_FAILED, TreeOptions, trees_of
from fairseq_doc.errors import FairseqDocError, check_count
from fairseq_doc.evaluation.prefix_tree import MAX_SEQUENCES
from fairseq_doc.files import write_files
from fairseq_doc.options import REQUIRED, option, parse_grid
from fairseq_doc.parsing.bracketing import EXCLUDED_COLUMN, bracketing_f1
from fairseq_doc.parsing.nbest import nbest_lines, read_nbest
from fairseq_doc.parsing.reranking import read_tree_lists, scored_lists
from fairseq_doc.preparation.trees import without_traces
from fairseq_doc.scoring.nbest_lists import best_lines
from fairseq_doc.scoring.rescoring import Judge, Rescorer, Weights, choose, totals

EXAMPLE = "fairseq-doc rerank data-bin/wsj dev.nbest.gz --path a.pt --score-base 2 --tune dev.mrg"
BASES = {"e": math.e, "2": 2, "10": 10}


@dataclass(frozen=True, kw_only=True)
class Options(TreeOptions, ProgressOptions, ModelOptions):
    nbest: str = option(
        "n-best file of a parser, gzipped or not", REQUIRED, positional=True, reads="once"
    )
    weight: float = option(
        "weight of the parser's score, which is added to that of the language model",
        0.0,
        least=0,
        without=("tune",),
    )
    score_base: str = option(
        "base of the logarithms in the parser's scores", "e", choices=list(BASES)
    )
    tune: str | None = option(
        "find the weight with the best F1 against these trees", metavar="GOLD", reads=True
    )
    weights: str = option(
        "weights to try with --tune; of equally good ones the smallest wins",
        "0:5:0.05",
        needs="tune",
        metavar="FROM:TO:STEP",
    )
    output: str | None = option("file for the best tree of each sentence", writes=True)
    output_nbest: str | None = option(
        "file for the distinct candidates (those that differ only in tags count once), best first: "
        "score, ln P of the language model, parser's score as a natural logarithm, tree",
        writes=True,
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
        _ = self.grid

    @property
    def grid(self) -> list[Weights]:
        """The weights to try, the smallest first."""
        return [Weights(weight, 1.0) for weight in parse_grid("--weights", self.weights, least=0)]


def run(settings: Options) -> dict[str, Any]:
    """Result: ``sentences``; ``candidates``; ``distinct``, where those that differ only in tags
    count once; ``unknown``, symbols outside the dictionary; ``scored``, distinct candidates without
    failed parses; ``seconds`` of scoring and tuning; ``weight``; and the files ``output`` and
    ``output_nbest``. With ``--tune`` also ``errors`` (sentences excluded at that weight), ``f1``,
    ``parser_f1`` (first candidates), ``lm_f1`` (weight 0), ``oracle_f1`` and ``tuning``, F1 by
    weight."""
    lists, metric = read_nbest(settings.nbest), bracketing_f1(settings.parameters)
    gold = list(map(without_traces, trees_of(settings.tune))) if settings.tune else None
    if gold is not None:
        check_count(settings.nbest, lists, str(settings.tune), gold, IF_FAILED)
    parsed = settings.parsed(settings.nbest, lists)
    ensemble, base = ensemble_of(settings), BASES[settings.score_base]
    read = read_tree_lists(settings.nbest, parsed, ensemble.dictionary, base, metric, gold)
    failed = [n for n, own in enumerate(read.encoded, start=1) if not any(own)]
    settings.warn(failed, len(lists), "keep their failed parse, (())")
    rescorer = Rescorer(ensemble, read.lists, read.encoded, at_once=settings.max_candidates)
    start, weights, tuned = time.perf_counter(), Weights(settings.weight, 1.0), dict[str, Any]()
    if gold is None:
        log_probs = list(map(totals, rescorer.score()))
    else:
        judge = Judge(metric, read.statistics)
        if all(rows[:, EXCLUDED_COLUMN].all() for rows in judge.statistics):
            raise FairseqDocError(
                f"{settings.nbest}: EVALB excludes every candidate, since the words that it scores "
                "differ from those of the gold trees; if the tags of the lists do not mark "
                "punctuation, give --sentences TREES to use the tags of other trees"
            )
        settings.report_roots({tree.root for tree in gold} | read.roots)
        weights, log_probs, tuned = _tune(settings, judge, rescorer)
    result: dict[str, Any] = {
        "sentences": len(lists),
        "candidates": sum(map(len, lists)),
        "distinct": sum(map(len, read.encoded)),
        "unknown": read.unknown,
        "weight": weights.first_pass,
        "seconds": time.perf_counter() - start,
        "scored": sum(map(bool, chain(*read.encoded))),
        **tuned,
    }
    scored = scored_lists(read.lists, log_probs, weights.first_pass)
    outputs = {
        settings.output: best_lines(read.lists, choose(read.lists, log_probs, weights)),
        settings.output_nbest: nbest_lines(scored),
    }
    write_files({path: lines for path, lines in outputs.items() if path}, settings.overwrite)
    return result


def _tune(
    settings: Options, judge: Judge, rescorer: Rescorer
) -> tuple[Weights, list[np.ndarray], dict[str, Any]]:
    """The best weights, ln P of each candidate, and the part of the result that ``--tune`` adds."""
    best, tried, scored = rescorer.tune(judge, settings.grid)
    lists, log_probs = rescorer.lists, list(map(totals, scored))
    excluded = judge.statistics_of(choose(lists, log_probs, best))[:, EXCLUDED_COLUMN]
    numbers = (np.flatnonzero(excluded) + 1).tolist()
    why = "the words that EVALB scores differ from those of the gold tree, or none are left"
    settings.warn(numbers, len(lists), f"are excluded from the totals, since {why}")
    tuned = {
        "f1": tried[best],
        "parser_f1": judge.first,
        "lm_f1": judge(choose(lists, log_probs, Weights(0.0, 1.0))),
        "oracle_f1": judge.oracle,
        "tuning": {str(weights.first_pass): value for weights, value in tried.items()},
        "errors": len(numbers),
    }
    return best, log_probs, tuned


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
    return "\n".join(lines)
