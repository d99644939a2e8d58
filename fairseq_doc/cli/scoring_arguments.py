"""Common options of ``bleu`` and ``rouge``, and how they read outputs and references."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation.tokenization import moses_remark
from fairseq_doc.scoring.hypotheses import ReadOptions, System, read_references, read_system


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(ReadOptions):
    """Options of both commands."""

    outputs: list[str] = option(
        "standard output of fairseq-generate, or its file in --results-path; the first is the "
        "baseline",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="OUTPUT",
        type=str,
    )
    reference: str = option("raw references, one per line", REQUIRED, metavar="RAW")
    bootstrap: int = option(
        "number of bootstrap resamples for intervals and p-values",
        1000,
        metavar="N",
        least=100,  # so that some resamples lie beyond each bound of an interval
    )


def read_texts(settings: ScoringOptions) -> tuple[list[str], list[System], list[str]]:
    """Returns (references, outputs, lines to print on what was read and undone)."""
    references = read_references(settings.reference, settings)
    systems = [read_system(path, references, settings) for path in settings.outputs]
    kind = "tokenised (--tokenized-reference)" if settings.tokenized_reference else "raw"
    lines = [f"references {settings.reference}: {len(references):,} lines, {kind}"]
    for system in systems:
        line = f"{system.name}: undone here: {system.undoing}"
        if system.agreeing is not None:
            line += f"; {system.agreeing:,} of {len(references):,} targets agree with the reference"
            line += " apart from spaces, case and unknown words"
        if system.unknown:
            line += f"; {system.unknown:,} hypotheses with an unknown unit, scored as they are"
        lines.append(line)
        if system.undoing.tokenizer == "moses":
            remark = moses_remark(system.undoing.language)
            if remark and remark not in lines:
                lines.append(remark)
    return references, systems, lines


def ceiling_lines(
    outputs: Sequence[str], scores: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """A line for each output whose targets score below 100, from {metric: a row per output}."""
    for number, output in enumerate(outputs):
        ceilings = {metric: rows[number]["ceiling"] for metric, rows in scores.items()}
        low = {metric: c for metric, c in ceilings.items() if c is not None and c < 99.995}
        if low:
            numbers = ", ".join(f"{metric} {ceiling:.2f}" for metric, ceiling in low.items())
            yield f"{output}: a perfect output would score {numbers}, as the undone targets do"


def report(
    result: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
    form: str,
    more: Sequence[str] = (),
) -> Iterator[str]:
    """What was read, what a perfect output would score, ``more``, then the scores of each output: a
    line for each of ``tables``, {label: {metric: a row per output}}, with rows in this ``form``."""
    outputs = result["outputs"]
    yield from (*result["read"], *ceiling_lines(outputs, next(iter(tables.values()))), *more)
    width = max(map(len, outputs))
    for number, name in enumerate(outputs):
        for label, metrics in tables.items():
            line = f"{name:{width}}{label}"
            for metric, rows in metrics.items():
                p = rows[number]["p"]
                line += f"  {metric} {form.format(**rows[number])}"
                line += "" if p is None else f" p {p:.4f}"
            yield line
