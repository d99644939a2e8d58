"""``fairseq-doc eval-lm``."""

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from fairseq_doc.cli.adaptation_arguments import AdaptationOptions
from fairseq_doc.cli.arguments import SplitOptions, bits_a_character, ensemble_of, progress_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.cache import GRIDS, SIMILARITIES
from fairseq_doc.evaluation.dynamic import USUAL_SEGMENT, grid
from fairseq_doc.evaluation.ensemble import Ensemble
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
from fairseq_doc.options import REQUIRED, group, option, positive

EXAMPLE = "fairseq-doc eval-lm data-bin/ptb --path a.pt:b.pt:c.pt --gen-subset valid"
SEARCH, SEARCHED_SPLIT = "search", "valid"
SHOWN = 5  # of the settings that a search tried; --json has all
SEARCHED_TOKENS = 30_000  # as in benkrause/dynamic-evaluation's fast grid


def _temperature(text: str) -> float | str:
    try:
        return text if text == SEARCH else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or {SEARCH}; got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Monte-Carlo evaluation."""

    samples: int = option(
        "Monte-Carlo evaluation: average K passes with dropout as in training, its masks drawn anew "
        "every --bptt steps of the (first) model's training (default: one pass without dropout)",
        REQUIRED,
        metavar="K",
        type=positive,
    )
    average: str = option(
        "mean of the samples' probabilities; geometric: for one softmax, the mean of the logits",
        AVERAGES[0],
        choices=AVERAGES,
    )
    dropout_scale: float = option("factor of all dropout rates of the samples", 1.0, metavar="F")
    seed: int = option("of the samples' masks", 1)

    def __post_init__(self) -> None:
        if self.dropout_scale < 0:
            raise FairseqDocError(f"--dropout-scale must be at least 0; got {self.dropout_scale}")


@dataclass(frozen=True, kw_only=True)
class Options(SplitOptions, AdaptationOptions):
    """Of this command.

    Raises:
        FairseqDocError: settings that exclude one another.
    """

    batch_size: int = option(
        "columns that the text is cut into; its remainder is left out", 1, type=positive
    )
    temperature: float | str = option(
        f"P becomes P^(1/T), renormalised; {SEARCH}: the best on {SEARCHED_SPLIT} of 1 / T = 1.06, "
        "1.04, ..., .8",
        1.0,
        metavar="T",
        type=_temperature,
    )
    monte_carlo: SampleOptions | None = group("", switch="samples")
    cache_search: bool = option(
        f"use the theta and lambda that are best on {SEARCHED_SPLIT}, of "
        f"{len(GRIDS[SIMILARITIES[0]])} pairs",
        False,
        needs="cache-window",
        chooses=("cache-theta", "cache-lambda"),
    )
    dynamic_search: bool = option(
        f"use the learning rate and decay that are best on {SEARCHED_SPLIT}, of "
        f"{len(grid(USUAL_SEGMENT))} pairs",
        False,
        needs="dynamic",
        chooses=("dynamic-rate", "dynamic-decay"),
    )
    dynamic_search_tokens: int = option(
        f"tokens of {SEARCHED_SPLIT} that each pair is tried on",
        SEARCHED_TOKENS,
        metavar="N",
        type=positive,
        needs="dynamic-search",
    )

    @property
    def searches(self) -> list[str]:
        """What is chosen on the split that is searched."""
        asked = {
            "--temperature search": self.temperature == SEARCH,
            "--cache-search": self.cache_search,
            "--dynamic-search": self.dynamic_search,
        }
        return [name for name, is_asked in asked.items() if is_asked]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.temperature, str):
            check_temperatures([self.temperature])
        if len(self.searches) > 1:
            raise FairseqDocError(
                "expected one search at a time, the others' settings given; got "
                f"{' and '.join(self.searches)}"
            )
        if self.dynamic:
            check_columns(self.batch_size)
        if self.monte_carlo and (self.cache or self.dynamic):
            raise FairseqDocError(SAMPLES_ALONE)
        for given, why in (
            (self.dynamic, "--dynamic reads windows of --dynamic-segment tokens"),
            (self.monte_carlo, "--samples draws dropout masks every --bptt steps of the training"),
        ):
            if given and self.eval_window is not None:
                raise FairseqDocError(f"{why}: expected no --eval-window; got {self.eval_window}")


def run(settings: Options) -> dict[str, Any]:
    """``perplexity``; ``nll``, the sum in nats; ``bits``, the mean of a token, and where a token is a
    byte the same as ``bits_per_character``; ``tokens``, the number of scored ones; ``left_out``, the
    number of others; ``models``, their number; ``split``; ``columns``; ``temperature``; ``samples``, 0
    without Monte-Carlo evaluation; ``cache`` and ``dynamic``, their settings, or null; ``searched``,
    {setting: perplexity on the searched split}; ``given_up``, {setting that fell behind: tokens scored};
    ``at_ends``, {part of the best setting: "smallest" or "largest" of those tried}; ``seconds``, without
    loading the models; ``seconds_before``, the part of them that went into statistics and searches."""
    drawn, split, columns = settings.monte_carlo, settings.gen_subset, settings.batch_size
    scale = drawn.dropout_scale if drawn else 1.0
    ensemble = ensemble_of(settings, settings.eval_window, scale)
    for name in {split, SEARCHED_SPLIT if settings.searches else split}:
        check_text(ensemble, name, settings.cache, columns)
    start = time.perf_counter()
    torch.manual_seed(drawn.seed if drawn else 1)
    evaluation = StreamSettings(
        [1.0 if isinstance(settings.temperature, str) else settings.temperature],
        drawn.samples if drawn else 0,
        drawn.average if drawn else AVERAGES[0],
        settings.cache,
        settings.dynamic,
        settings.gathered(ensemble),
    )
    search = _search(settings, ensemble, evaluation)
    evaluation = search.settings if search else evaluation
    before = time.perf_counter() - start
    if search and not settings.dynamic_search and split == SEARCHED_SPLIT:
        result = search.best  # of the whole split
    else:
        (result,) = evaluate_at(ensemble, split, evaluation, columns, progress_of(settings))
    return {
        "perplexity": result.perplexity,
        "nll": result.nll,
        "bits": result.bits,
        **bits_a_character(ensemble.unit, result.bits),
        "tokens": result.tokens,
        "left_out": result.left_out,
        "models": len(ensemble.models),
        "split": split,
        "columns": columns,
        "temperature": evaluation.temperatures[0],
        "samples": evaluation.samples,
        "cache": _cache_as_json(evaluation),
        "dynamic": _dynamic_as_json(evaluation),
        "searched": {name: one.perplexity for name, one in search.tried.items()} if search else {},
        "given_up": search.given_up if search else {},
        "at_ends": search.at_ends if search else {},
        "seconds": time.perf_counter() - start,
        "seconds_before": before,
    }


def _search(settings: Options, ensemble: Ensemble, evaluation: StreamSettings) -> Search | None:
    progress = progress_of(settings)
    if settings.dynamic_search:

        def remark(text: str) -> None:
            if not settings.no_progress_bar:
                print(f"fairseq-doc eval-lm: {text}", file=sys.stderr)

        tokens = settings.dynamic_search_tokens
        return search_dynamic(ensemble, SEARCHED_SPLIT, evaluation, tokens, progress, remark)
    for asked, search in (
        (settings.temperature == SEARCH, search_temperature),
        (settings.cache_search, search_cache),
    ):
        if asked:
            return search(ensemble, SEARCHED_SPLIT, evaluation, settings.batch_size, progress)
    return None


def _cache_as_json(settings: StreamSettings) -> dict[str, Any] | None:
    if settings.cache is None:
        return None
    ((theta, share),) = settings.cache.points
    window, similarity = settings.cache.window, settings.cache.similarity
    return {"window": window, "similarity": similarity, "theta": theta, "lambda": share}


def _dynamic_as_json(settings: StreamSettings) -> dict[str, Any] | None:
    if settings.dynamic is None:
        return None
    found = asdict(settings.dynamic)
    del found["statistics"]
    return found | {"batches": settings.dynamic.batches or "all"}


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
