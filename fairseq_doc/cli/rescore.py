"""evaluate: rescore n-best lists by a language model, and choose the best candidates."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fairseq_doc.cli.arguments import (
    ModelOptions,
    ProgressOptions,
    ensemble_of,
    unknown_words,
)
from fairseq_doc.cli.scoring_arguments import ceiling_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import ends
from fairseq_doc.evaluation.scoring import MAX_WORDS
from fairseq_doc.files import write_files
from fairseq_doc.options import REQUIRED, check_needs, option, parse_grid
from fairseq_doc.preparation.text_form import WORDS, form_of
from fairseq_doc.scoring.metrics import METRICS, metric_of
from fairseq_doc.scoring.nbest_lists import (
    FORMATS,
    GENERATED,
    KALDI,
    best_lines,
    encode,
    read_kaldi,
    read_translations,
    score_lines,
)
from fairseq_doc.scoring.rescoring import Judge, Rescorer, Weights, choose, totals

EXAMPLE = "fairseq-doc rescore data-bin/mine words_text --path a.pt --scores lmwt.nn"
MAX_PAIRS = 1_000_000  # maximum number of pairs of a weight and a bonus


@dataclass(frozen=True, kw_only=True)
class Options(ProgressOptions, ModelOptions):
    nbest: str = option(
        "n-best lists, the best candidate first", REQUIRED, positional=True, reads="once"
    )
    format: str = option(
        "kaldi: lines UTT-K word word ...; or the output of fairseq-generate",
        KALDI,
        choices=FORMATS,
    )
    first_pass: str | None = option(
        "Kaldi: scores of the first pass, lines UTT-K number; larger is better", reads=True
    )
    costs: bool = option(
        "scores of the first pass are costs, as usual in Kaldi; smaller is better",
        False,
        needs="first-pass",
    )
    nbest_data: Path | None = option(
        "fairseq-generate: the data folder that was translated, written by prepare-mt, which "
        "records the BPE and tokenisation to undo (default: use the D- lines)",
        reads=True,
    )
    reference: str | None = option(
        "Kaldi: lines UTT word word ...; fairseq-generate: raw text, one sentence per line",
        needs="metric",
        reads=True,
    )
    max_words: int = option("maximum number of words or bytes per candidate", MAX_WORDS, least=1)
    weight: float | None = option(
        "weight of the language model relative to the first pass", without=("tune",), needs="bonus"
    )
    bonus: float | None = option(
        "score added for each word (word insertion bonus); without it short candidates win",
        without=("tune",),
        needs="weight",
    )
    metric: str | None = option(
        "metric by which to score the best candidates", choices=METRICS, needs="reference"
    )
    lang: str = option("language of the references, for BLEU's tokenizer", "en", needs="metric")
    tune: bool = option("find the best weight and bonus by the metric", False, needs="metric")
    weights: str = option(
        "weights to try with --tune", "0:1:0.05", needs="tune", metavar="FROM:TO:STEP"
    )
    bonuses: str = option(
        "bonuses to try with --tune", "-2:4:0.25", needs="tune", metavar="FROM:TO:STEP"
    )
    carry: bool = option(
        "start each utterance from the state after the best candidate of the previous one (without "
        "--weight or --tune, after its first candidate)",
        False,
    )
    output: str | None = option(
        "file for the best candidates: lines UTT word word ..., or text", writes=True
    )
    scores: str | None = option(
        "file for the language model's scores: UTT-K and -ln P of each token and the end mark",
        writes=True,
    )
    totals: bool = option(
        "write one total per candidate to --scores instead of one number per token",
        False,
        needs="scores",
    )
    overwrite: bool = option("replace existing outputs", False)

    def __post_init__(self) -> None:
        chooses, is_kaldi = bool(self.output or self.metric), self.format == KALDI
        if not (chooses or self.scores):
            raise FairseqDocError("nothing to do: expected --output, --metric or --scores")
        check_needs("--first-pass", {f"--format {KALDI}": is_kaldi}, self.first_pass)
        check_needs("--nbest-data", {f"--format {GENERATED}": not is_kaldi}, self.nbest_data)
        scored = self.first_pass or not is_kaldi
        check_needs(f"--tune with --format {KALDI}", {"--first-pass": scored}, self.tune)
        is_given = self.weight is not None
        found = {"--weight and --bonus, or --tune, which finds both": is_given or self.tune}
        check_needs("--output or --metric", found, chooses)
        used = {"--output, --metric or --carry": chooses or self.carry}
        check_needs("--weight", used, is_given)
        _ = self.grid

    @property
    def grid(self) -> list[Weights]:
        """The weights to try, the smallest first."""
        bonuses = sorted(parse_grid("--bonuses", self.bonuses), key=abs)
        weights = parse_grid("--weights", self.weights, least=0)
        if len(weights) * len(bonuses) > MAX_PAIRS:
            raise FairseqDocError(
                f"--weights and --bonuses: expected at most {MAX_PAIRS:,} pairs; got "
                f"{len(weights):,} times {len(bonuses):,}: increase a step"
            )
        return [Weights(1.0, *pair) for pair in product(weights, bonuses)]


def run(settings: Options) -> dict[str, Any]:
    """Result: ``utterances``; ``candidates``; ``unknown``, counts of ``unit``s outside the
    dictionary; ``seconds`` of scoring and tuning; ``weight`` and ``bonus``. With --metric also its
    name, its ``value``, the value of the ``first`` candidates, the ``gain`` in points, which is
    positive if better, ``nbest``, the lists' file, and ``ceiling``, the score of the targets of
    translations after undoing BPE and tokenisation, or null; with --tune also ``tuning``,
    [weight, bonus, value] for each pair tried."""
    form = form_of(settings.data)
    if settings.format == KALDI:
        kaldi = settings.first_pass, settings.costs, settings.reference
        lists, references = read_kaldi(settings.nbest, *kaldi)
    else:
        # A model of words takes tokenised candidates; a model with a tokeniser reads raw text.
        plain = replace(form, language=WORDS.language) != WORDS
        more = settings.nbest_data, settings.reference, plain
        lists, references = read_translations(settings.nbest, *more)
    judge = None
    if references is not None and settings.metric is not None:
        metric = metric_of(settings.metric, settings.lang)
        judge = Judge.of(metric, [one.texts for one in lists], references)
    ensemble = ensemble_of(settings)
    encoded, unknown = encode(lists, form, ensemble.dictionary, settings.max_words)
    rescorer = Rescorer(ensemble, lists, encoded, settings.carry)
    start, weights = time.perf_counter(), None
    if settings.weight is not None and settings.bonus is not None:
        weights = Weights(1.0, settings.weight, settings.bonus)
    result: dict[str, Any] = {"utterances": len(lists), "unit": ensemble.unit}
    if settings.tune and judge is not None:
        weights, tried, scored = rescorer.tune(judge, settings.grid)
        result["tuning"] = [[*pair[1:], value] for pair, value in tried.items()]
    else:
        scored = list(rescorer.score(weights))
    result |= {"seconds": time.perf_counter() - start, "unknown": dict(unknown.most_common())}
    result["candidates"] = sum(map(len, encoded))
    written: dict[str, Iterable[str]] = {}
    if weights is not None:
        chosen = choose(lists, list(map(totals, scored)), weights)
        result |= {"weight": weights.language_model, "bonus": weights.words}
        if judge is not None and references is not None:
            first, value, metric = judge.first, judge(chosen), judge.metric
            result |= {"metric": metric.name, "first": first, "value": value}
            result |= {"gain": metric.sign * (value - first), "nbest": settings.nbest}
            result["ceiling"] = metric.ceiling([one.target for one in lists], references)
        if settings.output:
            written[settings.output] = best_lines(lists, chosen, settings.format == KALDI)
    if settings.scores:
        written[settings.scores] = score_lines(lists, scored, settings.totals)
    write_files(written, settings.overwrite)
    return result


def as_text(result: dict[str, Any]) -> str:
    """A summary, one fact per line."""
    lines = [
        f"{result['utterances']:,} utterances, {result['candidates']:,} candidates; scored in "
        f"{result['seconds']:.1f} s"
    ]
    if result["unknown"]:
        lines.append(unknown_words(Counter(result["unknown"]), result["unit"]))
    if "value" in result:
        at = f"at weight {result['weight']:g}, bonus {result['bonus']:g}"
        first, value, tuning = result["first"], result["value"], result.get("tuning", [])
        lines += ceiling_lines([result["nbest"]], {result["metric"]: [result]})
        lines.append(f"{result['metric']} {first:.2f} of the first candidates, {value:.2f} {at}")
        if tuning:
            lines[-1] += f", the best of {len(tuning):,} pairs"
            points = [{"weight": weight, "bonus": bonus} for weight, bonus, _ in tuning]
            best = {"weight": result["weight"], "bonus": result["bonus"]}
            for name in ends(points, best):
                if best[name] or name == "bonus":  # the weight 0 is a natural end
                    grid = {"weight": "--weights", "bonus": "--bonuses"}[name]
                    lines.append(f"this {name} is the first or last one tried: give other {grid}")
        if tuning and result["gain"] <= 0:
            lines.append("no pair is better than the first candidates: keep those")
    return "\n".join(lines)
