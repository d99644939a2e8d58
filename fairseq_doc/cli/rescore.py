"""evaluate: n-best lists: scores by a language model, and the best candidates."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import (
    ModelOptions,
    ProgressOptions,
    ensemble_of,
    progress_of,
    unknown_words,
)
from fairseq_doc.cli.outputs import check_outputs, named_outputs, output_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.options import check_needs, option
from fairseq_doc.preparation.text_form import WORDS, form_of
from fairseq_doc.scoring import nbest_lists, rescoring
from fairseq_doc.scoring.metrics import metric_of

EXAMPLE = "fairseq-doc rescore data-bin/mine words_text --path a.pt --scores lmwt.nn"
OUTPUTS = ("output", "scores")
GRIDS = {"weight": "--weights", "bonus": "--bonuses"}


@dataclass(frozen=True, kw_only=True)
class Options(rescoring.WeightOptions, nbest_lists.ListOptions, ProgressOptions, ModelOptions):
    carry: bool = option(
        "start each utterance from the state after the last one's best candidate; without --weight "
        "or --tune after the first of the last list",
        False,
    )
    output: str | None = option("file for the best candidates: UTT word word ...; or their text")
    scores: str | None = option(
        "file for the language model's scores: UTT-K and -ln P of each token and the end mark"
    )
    totals: bool = option("their sum in place of them", False, needs="scores")
    overwrite: bool = option("replace existing outputs", False)

    def __post_init__(self) -> None:
        if not (self.output or self.metric or self.scores):
            raise FairseqDocError("expected --output, --metric or --scores; got none of them")
        self.check_format()
        self.check_weights(bool(self.output or self.metric), self.carry)
        scored = self.first_pass or self.format == nbest_lists.GENERATED
        check_needs("--tune of Kaldi's lists", {"--first-pass": scored}, self.tune)


def run(settings: Options) -> dict[str, Any]:
    """``utterances``, ``candidates``, ``unknown`` (counts of ``unit``s outside the dictionary),
    ``seconds`` of scoring and tuning; ``weight`` and ``bonus``. With --metric its name, its
    ``value``, that of the lists' ``first`` candidates and the ``gain``, above 0 if better, in
    points; with --tune ``tuning``, [weight, bonus, value] of each pair tried."""
    check_outputs(settings, settings.output, settings.scores, alone=[settings.nbest])
    utterances, references = settings.read(plain=form_of(settings.data) != WORDS)
    judge = None
    if references is not None and settings.metric:
        metric = metric_of(settings.metric, settings.lang or "en")
        judge = rescoring.Judge(metric, utterances, references)
    ensemble, progress = ensemble_of(settings), progress_of(settings)
    encoded, unknown = rescoring.encode(ensemble, utterances)
    weights, start = settings.fixed, time.perf_counter()
    result: dict[str, Any] = {"utterances": len(utterances), "unit": ensemble.unit}
    lists, carry = (utterances, encoded), settings.carry
    if settings.tune:
        assert judge is not None, "--tune needs --metric"
        found, scored = rescoring.tune(ensemble, judge, *lists, settings.grid, carry, progress)
        weights = found.weights
        result["tuning"] = [[*pair, value] for pair, value in found.tried.items()]
    else:
        scored = rescoring.score(ensemble, *lists, carry, weights, progress)
    result |= {"seconds": time.perf_counter() - start, "unknown": dict(unknown.most_common())}
    result["candidates"] = sum(map(len, encoded))
    if weights is not None:
        chosen = rescoring.choose(utterances, scored, weights)
        result |= weights._asdict()
        if judge is not None:
            first, value = judge([0] * len(utterances)), judge(chosen)
            gain = judge.metric.sign * (value - first)
            result |= {"metric": judge.metric.name, "first": first, "value": value, "gain": gain}
        if settings.output:
            best = nbest_lists.best_lines(utterances, chosen, settings.format)
            write_lines(settings.output, best, settings.overwrite)
    if settings.scores:
        lines = rescoring.score_lines(utterances, scored, settings.totals)
        write_lines(settings.scores, lines, settings.overwrite)
    return result | named_outputs(settings, *OUTPUTS)


def as_text(result: dict[str, Any]) -> str:
    """What was done, a line a fact."""
    lines = [
        f"{result['utterances']:,} utterances, {result['candidates']:,} candidates; scored in "
        f"{result['seconds']:.1f} s"
    ]
    if result["unknown"]:
        lines.append(unknown_words(Counter(result["unknown"]), result["unit"]))
    if "value" in result:
        at = f"at weight {result['weight']:g}, bonus {result['bonus']:g}"
        first, value, tuning = result["first"], result["value"], result.get("tuning", [])
        lines.append(f"{result['metric']} {first:.2f} of the first candidates, {value:.2f} {at}")
        if tuning:
            lines[-1] += f", the best of {len(tuning):,} pairs"
            for name, tried in zip(GRIDS, zip(*tuning, strict=True), strict=False):
                if result[name] in (min(tried), max(tried)) and result[name]:
                    advice = f"give other {GRIDS[name]}"
                    lines.append(f"this {name} is at an end of those tried: {advice}")
        if tuning and result["gain"] <= 0:
            lines.append("none is better than the first candidates: keep these")
    return "\n".join(lines + output_lines(result, *OUTPUTS))
