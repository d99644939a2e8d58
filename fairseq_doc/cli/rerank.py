"""parse: n-best parse trees in the order of a language model's scores."""

import contextlib
import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq.utils import split_paths

from fairseq_doc.checksums import sha256_of
from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of, progress_of
from fairseq_doc.cli.outputs import check_outputs, named_outputs, output_lines
from fairseq_doc.cli.tree_arguments import TreeOptions, report_roots, trees_of, warn_excluded
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import MAX_SEQUENCES
from fairseq_doc.files import check_input, write_lines
from fairseq_doc.options import REQUIRED, check_ranges, option, parse_grid, positive
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.reranking import (
    Sentence,
    best_trees,
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
OUTPUTS = ("output", "output_nbest")


@dataclass(frozen=True, kw_only=True)
class Options(TreeOptions, ProgressOptions, ModelOptions):
    nbest: str = option(
        "n-best file of a parser, gzip or not", REQUIRED, positional=True, reads=True
    )
    weight: float = option(
        "weight of the parser's own score, beside the language model's", 0.0, least=0
    )
    score_base: str = option(
        "base of the logarithms that the parser's scores are", "e", choices=list(BASES)
    )
    tune: str | None = option(
        "find the weight by F1 against these trees", metavar="GOLD", reads=True
    )
    weights: str = option(
        "tried by --tune; the smallest of the best wins", GRID, metavar="FROM:TO:STEP"
    )
    output: str | None = option("file for the best tree of each sentence")
    output_nbest: str | None = option(
        "file for all candidates that differ in more than tags, best first: score, ln P of the "
        "language model, parser's score, tree"
    )
    scores: str | None = option(
        "file that keeps the language model's scores: the same command, also with another weight, "
        "continues from it"
    )
    max_candidates: int = option(
        "scored at once; memory and speed, not results", MAX_SEQUENCES, type=positive
    )
    overwrite: bool = option("replace existing outputs", False)

    def __post_init__(self) -> None:
        if not (self.tune or self.files_written):
            raise FairseqDocError(
                "expected --tune, --output, --output-nbest or --scores; got none, so there is "
                "nothing to do"
            )
        check_ranges(Options, self)
        if self.tune and self.weight:
            raise FairseqDocError("expected --weight or --tune, which finds the weight; got both")
        parse_grid("--weights", self.weights, least=0)

    @property
    def files_written(self) -> list[str]:
        return [path for path in (self.output, self.output_nbest, self.scores) if path]


def run(settings: Options) -> dict[str, Any]:
    """``sentences``, ``candidates``, ``distinct`` (in more than tags), ``unknown`` (symbols outside
    the dictionary), ``scored`` (not found in ``--scores``), ``seconds`` of scoring, ``weight``, and
    the files ``output`` and ``output_nbest``. With ``--tune`` also ``errors`` (sentences excluded
    at that weight), ``f1``, ``parser_f1`` (first candidates), ``lm_f1`` (weight 0), ``oracle_f1``
    and ``tuning``, F1 by weight."""
    _check_files(settings)
    parameters = settings.parameters
    gold = _without_traces(settings.tune)
    word_trees = _without_traces(settings.sentences)
    ensemble = ensemble_of(settings)
    with contextlib.ExitStack() as stack:
        kept = None
        if settings.scores:
            kept = KeptScores(settings.scores, _stamp(settings, ensemble))
            stack.callback(kept.close)
        base, most = BASES[settings.score_base], settings.max_candidates
        sentences = read_sentences(
            settings.nbest, ensemble.dictionary, base, gold, parameters, word_trees
        )
        if gold is not None:
            _check_gold(settings, sentences, gold, parameters.delete_label)
        start = time.perf_counter()
        lm_scores = score_candidates(ensemble, sentences, most, kept, progress_of(settings))
        seconds = time.perf_counter() - start
    distinct = sum(len(sentence.trees) for sentence in sentences)
    result: dict[str, Any] = {
        "sentences": len(sentences),
        "candidates": sum(sentence.candidates for sentence in sentences),
        "distinct": distinct,
        "unknown": sum(sentence.unknown for sentence in sentences),
        "weight": settings.weight,
        "seconds": seconds,
        "scored": distinct - (kept.taken if kept else 0),
    }
    if gold is not None:
        found = tune(sentences, lm_scores, parse_grid("--weights", settings.weights))
        excluded = found.pop("excluded")
        why = "the words that EVALB scores differ from the gold tree's, or there are none"
        warn_excluded(excluded, len(sentences), why, NAME)
        tuning = {str(weight): f1 for weight, f1 in found["tuning"].items()}
        result |= found | {"errors": len(excluded), "tuning": tuning}
    for path, lines in ((settings.output, best_trees), (settings.output_nbest, scored_lists)):
        if path:
            write_lines(path, lines(sentences, lm_scores, result["weight"]), settings.overwrite)
    return result | named_outputs(settings, *OUTPUTS)


def _check_files(settings: Options) -> None:
    outputs = (settings.output, settings.output_nbest)
    check_outputs(settings, *outputs, replaced=[settings.scores], alone=[settings.nbest])
    again = settings.scores is not None  # their checksums are in that file
    for path in filter(None, (settings.nbest, settings.sentences)):
        check_input(path, again)


def _without_traces(path: str | None) -> list[Tree] | None:
    return list(map(without_traces, trees_of(path))) if path else None


def _stamp(settings: Options, ensemble: Ensemble) -> dict[str, Any]:
    """What the language model's scores depend on."""
    paths = [*split_paths(settings.path), settings.nbest, settings.sentences]
    symbols, precisions = "\n".join(ensemble.dictionary.symbols), ensemble.matmul_precisions
    stamp = {
        "sha256": [sha256_of(path) for path in paths if path],
        "dictionary": hashlib.sha256(symbols.encode()).hexdigest(),
    }
    return stamp | ({} if {*precisions} == {"float32"} else {"matmul_precision": precisions})


def _check_gold(
    settings: Options, sentences: Sequence[Sentence], gold: Sequence[Tree], deleted: Sequence[str]
) -> None:
    """Refuse gold trees for which EVALB excludes every candidate; report which roots count."""
    if not any(sentence.valid is not None and sentence.valid.any() for sentence in sentences):
        raise FairseqDocError(
            f"{settings.nbest}: EVALB excludes every candidate, since the words that it scores "
            "differ from the gold trees'; if the tags of the lists do not mark punctuation, "
            "--sentences TREES uses those of other trees"
        )
    roots = {tree.root for tree in gold} | {sentence.root for sentence in sentences}
    report_roots(roots, deleted, NAME)


def as_text(result: dict[str, Any]) -> str:
    """What was done, a line a fact."""
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
            lines[-1] += "; it is the last of them: give --weights more"
        if result["f1"] <= result["parser_f1"]:
            advice = "keep the parser's order"
            lines.append(f"none of these weights is better than the parser alone: {advice}")
    return "\n".join(lines + output_lines(result, *OUTPUTS))
