"""train: train several systems with several seeds each, and tabulate their results."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_doc.analysis.plotting import plot_curves
from fairseq_doc.cli.arguments import ProgressOptions
from fairseq_doc.cli.outputs import check_outputs, remark
from fairseq_doc.cli.scoring_arguments import ceiling_lines
from fairseq_doc.evaluation.perplexity import as_written, perplexity_text
from fairseq_doc.files import write_lines
from fairseq_doc.json_text import as_json
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation import raw_counts
from fairseq_doc.preparation.data_folder import Say
from fairseq_doc.tuning.comparison import SPLITS, compare, curves_of
from fairseq_doc.tuning.systems import chosen_systems
from fairseq_doc.tuning.training import MAX_SEEDS

EXAMPLE = (
    "fairseq-doc compare --dir checkpoints/mine --systems softmax,mos,doc --seeds 3 --workers 2 -- "
    "fairseq-train data-bin/mine"
)


@dataclass(frozen=True, kw_only=True)
class Options(ProgressOptions):
    others: Sequence[str] | None = option(
        "your own systems: a name and the options of fairseq-train that define it",
        positional=True,
        nargs="*",
        metavar="NAME='OPTIONS'",
        type=str,
    )
    dir: Path = option(
        "folder for the trainings and the table; systems can be added later", REQUIRED
    )
    systems: str | None = option(
        "predefined systems among softmax, mos, doc; size, number of epochs and other options that "
        "are not given depend on the length of the text",
        metavar="NAME,NAME",
    )
    seeds: int = option("trainings per system", 3, metavar="N", least=1, below=MAX_SEEDS + 1)
    workers: int = option("trainings run in parallel", 1, metavar="K", least=1)
    reference: str | None = option(
        "raw test references, for the BLEU of a translation", metavar="RAW", reads=True
    )
    training: Sequence[str] | None = option(
        "the training shared by all systems: fairseq-train DATA ...", after_dashes=True
    )


def run(settings: Options) -> dict[str, Any]:
    """Result: ``metric``; ``systems``, the result of
    :func:`fairseq_doc.tuning.comparison.compare`, with commands, parameters, speeds, ceilings,
    values by seed, means, deviations and differences (``distance``) from the first system, and for
    language models the means of ``word_perplexity``, ``bits_per_character`` and ``bits_per_byte``
    if the data folder has the counts of the raw text; ``files``, which another call replaces."""
    say = partial(remark, "compare")
    table, numbers, picture = (settings.dir / f"comparison.{end}" for end in ("md", "json", "png"))
    usual = list(filter(None, (settings.systems or "").split(",")))
    systems = chosen_systems(usual, settings.others or (), settings.training or (), say)
    if settings.dir.is_dir():
        check_outputs(settings, table, numbers, picture, replace=True)
    rows = compare(
        systems,
        seeds=settings.seeds,
        workers=settings.workers,
        folder=settings.dir,
        reference=settings.reference,
        remark=say,
    )
    if settings.reference is None:
        _add_figures_as_written(rows, next(iter(systems.values())).args.data, say)
    result = {
        "metric": "BLEU" if settings.reference else "perplexity",
        "systems": rows,
        "files": [str(table), str(numbers), str(picture)],
    }
    write_lines(table, _table(rows))
    write_lines(numbers, [as_json(result, indent=1)])
    plot_curves(curves_of(rows, settings.dir), picture)
    return result


def _add_figures_as_written(rows: dict[str, dict[str, Any]], data: str, say: Say) -> None:
    """Add what :func:`as_written` gives, as means over the seeds, to each split of each system."""
    for split in SPLITS:
        counts = raw_counts.read(data, split)
        if counts is None:
            say(raw_counts.missing(data, split))
            return
        for row in rows.values():
            values = row[split]["values"]
            figures = [as_written(math.log(value), counts) for value in values]
            row[split] |= {name: statistics.mean(f[name] for f in figures) for name in figures[0]}


def _table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of Markdown."""
    first = next(iter(rows))
    columns = ["system", "parameters", "tokens/s", "seeds", *SPLITS, f"test, from {first}"]
    figures = "word_perplexity" in rows[first]["test"]
    if figures:
        columns += ["test, per word", "test, bits per character"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in rows.items():
        distance = "" if name == first else "{distance:+.2f}".format(**row["test"])
        if distance and row["test"]["distance_in_deviations"] is not None:
            distance += " ({distance_in_deviations:+.1f} deviations)".format(**row["test"])
        seeds = ", ".join(map(str, row["seeds"]))
        cells = [name, _count(row["parameters"]), _count(row["tokens_per_second"]), seeds]
        cells += [_mean(row[split]) for split in SPLITS] + [distance]
        if figures:
            test = row["test"]
            cells.append(perplexity_text(test["word_perplexity"]))
            cells.append(f"{test['bits_per_character']:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _mean(values: dict[str, Any]) -> str:
    deviation = values["deviation"]
    mean = perplexity_text(values["mean"])
    return mean + ("" if deviation is None else f" \u00b1 {perplexity_text(deviation)}")


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def as_text(result: dict[str, Any]) -> str:
    """The table, and the score of a perfect translation if below 100."""
    rows = result["systems"]
    ceiling = ceiling_lines([*rows][:1], {"BLEU": [*rows.values()]})  # that of the data
    lines = [*_table(rows), *ceiling]
    return "\n".join(lines)
