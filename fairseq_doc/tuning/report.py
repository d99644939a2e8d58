"""A study as files: its best command line, a table of its trials, JSON, and plots."""

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import Study

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_output, whole_file, write_lines
from fairseq_doc.tuning import figures
from fairseq_doc.tuning.settings import Settings, option_words
from fairseq_doc.tuning.slots import PROBLEM, Slot, best_slot
from fairseq_doc.tuning.space import as_json
from fairseq_doc.tuning.storage import Stamp

FILES = ("best.sh", "trials.tsv", "report.json", *figures.FILES)
LEAST_FOR_IMPORTANCES = 5  # finite values


def best_command(stamp: Stamp, settings: Settings) -> str:
    """The command line with these settings, quoted for a shell."""
    return shlex.join([*stamp.command.words, *option_words(settings)])


def describe(slot: Slot) -> dict[str, Any]:
    """A trial as what JSON can hold."""
    return {
        "trial": slot.number,
        "state": slot.state,
        "value": slot.value if slot.state == "complete" else None,
        "seconds": round(slot.seconds, 1),
        "origin": slot.origin,
        "settings": slot.settings,
        "problem": slot.last.user_attrs.get(PROBLEM, ""),
    }


def best_of_half(slots: Sequence[Slot], maximize: bool) -> dict[str, Any]:
    """How much the search's own luck is worth: the best value of a random half of the trials.

    Of n values, sorted from the best, the k-th is the best of m drawn without repetition with the
    probability C(n - k, m - 1) / C(n, m).

    Args:
        slots: of the study; those that are complete count, diverged ones as the worst.
        maximize: whether the highest value is best.

    Returns:
        ``trials`` (m, half of n, rounded up), ``mean`` and ``deviation`` of the best, and the ``worst`` that
        comes with a probability of at least .05; {} of fewer than four finite values. Halves
        whose trials all diverged are left out.
    """
    values = [slot.value for slot in slots if slot.complete]
    values.sort(reverse=maximize)
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 4:
        return {}
    n, m = len(values), math.ceil(len(values) / 2)
    shares = [math.comb(n - k, m - 1) / math.comb(n, m) for k in range(1, len(finite) + 1)]
    total = sum(shares)
    mean = sum(share * value for share, value in zip(shares, finite, strict=True)) / total
    squares = [share * (value - mean) ** 2 for share, value in zip(shares, finite, strict=True)]
    so_bad_or_worse = [sum(shares[k:]) / total for k in range(len(shares))]
    worst = [value for value, p in zip(finite, so_bad_or_worse, strict=True) if p >= 0.05][-1]
    return {
        "trials": m,
        "mean": mean,
        "deviation": math.sqrt(sum(squares) / total),
        "worst": worst,
    }


def check_report(folder: Path, overwrite: bool) -> None:
    """Raise ``FairseqDocError`` where the files cannot be written; called before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FairseqDocError(f"cannot make the folder {folder}: {error.strerror}") from None
    for name in FILES:
        check_output(folder / name, overwrite)


def write_report(study: Study, stamp: Stamp, slots: Sequence[Slot], folder: Path) -> dict[str, Any]:
    """Write the files of a report.

    Returns:
        What ``report.json`` holds.

    Raises:
        FairseqDocError: no trial has a finite value.
    """
    maximize = stamp.command.maximize
    best = best_slot(slots, maximize)
    if best is None:
        raise FairseqDocError(
            f"study {study.study_name}: expected a trial that is complete and did not diverge; got "
            f"none of {len(slots)}"
        )
    importances = importances_of(slots, maximize)
    result = {
        "study": study.study_name,
        "metric": stamp.command.metric,
        "maximize": maximize,
        "space": as_json(stamp.space),
        "command": shlex.join(stamp.command.words),
        "best": describe(best) | {"command": best_command(stamp, best.settings)},
        "best_of_half": best_of_half(slots, maximize),
        "importances": importances,
        "trials": [describe(slot) for slot in slots],
    }
    value = f"{stamp.command.metric} {best.value:.6g}"
    write_lines(
        folder / "best.sh",
        [
            "#!/usr/bin/env bash",
            f"# Trial {best.number}, the best of {len(slots)} trials of the study "
            f"{shown(study.study_name)}: {shown(value)}.",
            "# Further options go to fairseq-train and override these.",
            f'{best_command(stamp, best.settings)} "$@"',
        ],
    )
    (folder / "best.sh").chmod(0o755)
    write_lines(folder / "trials.tsv", _table(slots, list(stamp.space)))
    with whole_file(folder / "report.json") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
        file.write("\n")
    figures.plot_study(slots, importances, stamp.command.metric, maximize, folder)
    return result


def importances_of(slots: Sequence[Slot], maximize: bool) -> dict[str, float]:
    """PED-ANOVA's share of every option, largest first; {} where it cannot say."""
    finite = [slot for slot in slots if slot.state == "complete"]
    if len(finite) < LEAST_FOR_IMPORTANCES:
        return {}
    study = figures.study_of(finite, maximize)
    try:
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # all values are the same
        return {}
    return {name: float(share) for name, share in found.items() if math.isfinite(share)}


def _table(slots: Sequence[Slot], options: Sequence[str]) -> list[str]:
    lines = ["\t".join(["trial", "state", "value", "minutes", *options])]
    for slot in slots:
        value = repr(slot.value) if slot.complete else ""
        settings = [str(slot.settings.get(option, "")) for option in options]
        minutes = f"{slot.seconds / 60:.2f}"
        lines.append("\t".join([str(slot.number), slot.state, value, minutes, *settings]))
    return lines
