"""Finds the beam size and length penalty with the best score on lines with references.

A length penalty ranks the hypotheses of a search without changing the search. So the search runs
once for each beam size, and its hypotheses are ranked with every length penalty.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from fairseq_doc.errors import FairseqDocError, check_count, require
from fairseq_doc.evaluation.scoring import MAX_TOKENS
from fairseq_doc.evaluation.translation import MAX_LENPEN, SearchOptions, Source, Translator
from fairseq_doc.files import text_lines
from fairseq_doc.options import option, parse_grid
from fairseq_doc.scoring.metrics import METRICS, metric_of
from fairseq_doc.scoring.rescoring import Judge


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """Lines with references, and the values to try on them."""

    input: str | None = option(
        "find the best beam and length penalty on these lines, such as the raw source of the "
        "validation data, and use them for the input",
        metavar="FILE",
        reads="once",
    )
    reference: str | None = option("raw references of these lines", metavar="FILE", reads="once")
    metric: str = option("metric to optimise", "bleu", choices=METRICS)
    beams: str = option("beams to try", "1,2,5,10", metavar="N,N,...")
    lenpens: str = option(
        "length penalties to try with each beam", "0:2:0.1", metavar="FROM:TO:STEP"
    )

    def __post_init__(self) -> None:
        if self.reference is None:
            raise FairseqDocError("--tune-input needs --tune-reference")
        _ = self.grid

    @property
    def grid(self) -> list[tuple[int, float]]:
        """Pairs (beam, length penalty) in ascending order; of equally good ones the first wins."""
        beams = self.beams.split(",")
        if not all(beam.strip().isdecimal() and int(beam) > 0 for beam in beams):
            raise FairseqDocError(
                f"--tune-beams: expected numbers of at least 1, such as 1,2,5,10; got {self.beams!r}"
            )
        lenpens = parse_grid("--tune-lenpens", self.lenpens)
        is_in_range = max(map(abs, lenpens)) <= MAX_LENPEN
        bounds = f"between {-MAX_LENPEN} and {MAX_LENPEN}"
        require(is_in_range, "--tune-lenpens", bounds, self.lenpens)
        return list(product(sorted(set(map(int, beams))), lenpens))

    def read(self) -> tuple[list[str], list[str]]:
        """The lines and their references."""
        lines, references = (list(text_lines(str(path))) for path in (self.input, self.reference))
        check_count(str(self.input), lines, str(self.reference), references)
        if not any(map(str.split, references)):
            raise FairseqDocError(f"{self.reference}: expected words; got none")
        return lines, references


def tune_decoding(
    translator: Translator,
    sources: Sequence[Source],
    references: Sequence[str],
    options: DecodingOptions,
    settings: SearchOptions,
    max_tokens: int = MAX_TOKENS,
) -> tuple[SearchOptions, dict[str, Any]]:
    """Search once with each beam and rank by each length penalty. Among equally good pairs, the
    first one in the grid wins. ``max_tokens``: see
    :meth:`fairseq_doc.evaluation.translation.Translator.search`.

    Returns:
        the settings with the best pair; ``metric``, its name, ``value`` in percent with the best
        pair, and ``tried``, each pair as ``beam``, ``lenpen`` and ``value``.
    """
    metric = metric_of(options.metric, translator.task.cfg.target_lang)
    tried: list[dict[str, Any]] = []
    for beam, pairs in groupby(options.grid, key=itemgetter(0)):
        found = translator.search(sources, replace(settings, beam=beam), max_tokens)
        judge = Judge.of(metric, [one.texts for one in found], references)
        for _, lenpen in pairs:
            value = judge([one.order(lenpen)[1][0] for one in found])
            tried.append({"beam": beam, "lenpen": lenpen, "value": value})
    best = max(tried, key=lambda one: metric.sign * one["value"])
    result = {"metric": metric.name, "value": best["value"], "tried": tried}
    return replace(settings, beam=best["beam"], lenpen=best["lenpen"]), result


def table(tried: Sequence[dict[str, Any]], best: SearchOptions) -> Iterator[str]:
    """Lines of a table with a row for each length penalty and a column for each beam; the best pair
    is marked by a star."""
    yield "lenpen" + "".join(
        f"{f'beam {beam}':>10} " for beam in sorted({x["beam"] for x in tried})
    )
    for lenpen, row in groupby(sorted(tried, key=itemgetter("lenpen")), key=itemgetter("lenpen")):
        line = f"{lenpen:6g}"
        for one in row:
            mark = "*" if (one["beam"], lenpen) == (best.beam, best.lenpen) else " "
            line += f"{one['value']:10.2f}{mark}"
        yield line
