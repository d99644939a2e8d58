"""evaluate: perplexity of a model or an ensemble, with the state carried over the whole text."""

import argparse
import math
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import compress
from typing import Any

import torch

from fairseq_doc.adaptation.cache import GRIDS, SIMILARITIES
from fairseq_doc.adaptation.dynamic import USUAL_SEGMENT, grid
from fairseq_doc.cli.arguments import (
    AdaptationOptions,
    SplitOptions,
    ensemble_of,
    written_figures,
    written_text,
)
from fairseq_doc.cli.outputs import remark
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import perplexity
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.scorer import SampleSettings, ScorerSettings
from fairseq_doc.options import group, option
from fairseq_doc.preparation import raw_counts

EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"
SEARCH, SEARCHED = "search", "valid"  # the value of --temperature, and the split


def _temperature(text: str) -> float | str:
    try:
        return text if text == SEARCH else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or {SEARCH}; got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class Options(SplitOptions, AdaptationOptions):
    batch_size: int = option(
        "columns into which the text is cut; the remainder is left out", 1, least=1
    )
    temperature: float | str = option(
        f"replace P by P^(1/T), renormalised; {SEARCH}: the best of 1 / T = 1.06, 1.04, ..., 0.8 on "
        f"{SEARCHED}",
        1.0,
        metavar="T",
        type=_temperature,
    )
    monte_carlo: SampleSettings | None = group("", switch="samples")
    cache_search: bool = option(
        f"use the theta and lambda that are best on {SEARCHED}, of "
        + " or ".join(f"{len(GRIDS[one])} pairs ({one})" for one in SIMILARITIES),
        False,
        needs="cache-window",
        without=("cache-theta", "cache-lambda"),
    )
    dynamic_search: bool = option(
        f"use the learning rate and decay that are best on {SEARCHED}, of "
        f"{len(grid(USUAL_SEGMENT))} pairs",
        False,
        needs="dynamic",
        without=("dynamic-rate", "dynamic-decay"),
    )
    dynamic_search_tokens: int = option(
        f"number of tokens of {SEARCHED} on which each pair is tried",
        30_000,  # as in the fast grid of benkrause/dynamic-evaluation
        metavar="N",
        least=1,
        needs="dynamic-search",
    )

    @property
    def searches(self) -> list[str]:
        """Parts of the settings that are searched, at most one."""
        is_asked = (self.temperature == SEARCH, self.cache_search, self.dynamic_search)
        return list(compress(("temperature", "cache", "dynamic"), is_asked))

    @property
    def scorer(self) -> ScorerSettings:
        """The settings without any search."""
        temperature = 1.0 if isinstance(self.temperature, str) else self.temperature
        return replace(super().scorer, temperature=temperature, samples=self.monte_carlo)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.searches) > 1:
            raise FairseqDocError(
                "expected one search at a time, with given values for the others; got searches of "
                f"{' and '.join(self.searches)}"
            )


def run(settings: Options) -> dict[str, Any]:
    """Result: ``perplexity``, ``nll``, ``bits``, ``tokens`` and ``left_out``, see
    :class:`fairseq_doc.evaluation.perplexity.Evaluation`; the entries of :func:`written_figures`,
    if the data folder has the counts of the text; ``models``, their number; ``split``; ``columns``;
    ``temperature``; ``samples``, 0 without Monte-Carlo evaluation; ``cache`` and ``dynamic``, their
    settings or null; ``searched``, {setting: perplexity on the searched split}, and
    ``searched_tokens``, how many of its tokens each has scored;
    ``given_up``, {setting that fell behind: tokens scored}; ``at_ends``, {part of the best setting:
    "smallest" or "largest" of those tried}; ``seconds`` without loading; ``seconds_before``, for
    statistics and searches."""
    samples, split, columns = settings.monte_carlo, settings.gen_subset, settings.batch_size
    scale = samples.dropout_scale if samples else 1.0
    ensemble = ensemble_of(settings, scale)
    for name in {split, SEARCHED if settings.searches else split}:
        perplexity.check_text(ensemble, name, settings.scorer, columns)
    counts = raw_counts.read(settings.data, split)
    if counts is None:
        remark("eval-lm", raw_counts.missing(settings.data, split))
    start = time.perf_counter()
    seed = samples.seed if samples else 1
    torch.manual_seed(seed)
    found = _searched(settings, ensemble)
    scorer, result = found.settings, found.best
    before = time.perf_counter() - start
    if result is None or settings.dynamic_search or split != SEARCHED:
        torch.manual_seed(seed)  # the search has drawn masks
        result = perplexity.evaluate(ensemble, split, columns, scorer)
    return {
        "perplexity": result.perplexity,
        "nll": result.nll,
        "bits": result.bits,
        **(written_figures(result, counts) if counts else {}),
        "tokens": result.tokens,
        "left_out": result.left_out,
        "models": len(ensemble.models),
        "split": split,
        "columns": columns,
        "temperature": scorer.temperature,
        "samples": samples.samples if samples else 0,
        **_adaptation(scorer),
        "searched": {name: one.perplexity for name, one in found.tried.items()},
        "searched_tokens": found.best.tokens if found.best else 0,
        "given_up": found.given_up,
        "at_ends": found.at_ends,
        "seconds": time.perf_counter() - start,
        "seconds_before": before,
    }


def _searched(settings: Options, ensemble: Ensemble) -> perplexity.Search:
    scorer = settings.scorer_of(ensemble)
    if not settings.searches:
        return perplexity.Search(scorer)
    say: Any = (lambda text: None) if settings.no_progress_bar else partial(remark, "eval-lm")
    (part,), columns = settings.searches, settings.batch_size
    tokens = settings.dynamic_search_tokens
    return perplexity.search(ensemble, SEARCHED, scorer, part, columns, tokens, say)


def _adaptation(scorer: ScorerSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"cache": None, "dynamic": None}
    if cache := scorer.cache:
        found["cache"] = {"window": cache.window, "similarity": cache.similarity}
        found["cache"] |= {"theta": cache.theta, "lambda": cache.share}
    if dynamic := scorer.dynamic:
        found["dynamic"] = asdict(dynamic) | {"batches": dynamic.batches or "all"}
        del found["dynamic"]["statistics"]
    return found


def as_text(result: dict[str, Any]) -> str:
    """A line of results, one for the text as written, and one for each additional setting."""
    figures = (
        "{split}: perplexity {perplexity:.2f}, {bits:.4f} bits per token, NLL {nll:.2f} nats over "
        "{tokens:,} tokens; {left_out:,} left out; models: {models}; {seconds:.1f} s"
    )
    lines = [figures.format(**result)]
    if "raw_counts" in result:
        lines.append(f"as written: {written_text(result)}")
    if result["samples"]:
        lines.append(f"mean of {result['samples']} samples of dropout masks")
    if searched := result["searched"]:
        best = sorted(searched, key=searched.__getitem__)[:5]  # --json has all
        tried = "; ".join(f"{name}: {perplexity.perplexity_text(searched[name])}" for name in best)
        number, lost = len(searched) + len(result["given_up"]), len(result["given_up"])
        ending = f" ({lost} fell behind and were given up)" if lost else ""
        text = f"{result['searched_tokens']:,} tokens of {SEARCHED}"
        lines.append(f"perplexity on {text}, the best of {number}{ending}: {tried}")
    for name, end in result["at_ends"].items():
        lines.append(f"the best {name} is the {end} one tried; values beyond it may be better")
    if result["temperature"] != 1.0:
        lines.append(f"temperature {result['temperature']:.4f}")
    if result["dynamic"] and result["perplexity"] == math.inf:
        lines.append("the weights diverged: try a smaller --dynamic-rate")
    for name in ("cache", "dynamic"):
        if result[name]:
            lines.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in result[name].items()))
    return "\n".join(lines)
