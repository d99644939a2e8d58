"""A study as files: its best command line, a table of its trials, JSON, and Optuna's plots."""

import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.trial import TrialState, create_trial
from optuna.visualization import matplotlib as plots

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.plotting import save_figure
from fairseq_doc.files import check_output, whole_file, write_lines
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.slots import Slot, best_slot
from fairseq_doc.tuning.space import as_json
from fairseq_doc.tuning.storage import Stamp, open_storage, read_slots

PLOTS = ("history.png", "slice.png", "importances.png", "parallel.png")
FILES = ("best.sh", "trials.tsv", "report.json", *PLOTS)
LEAST_FOR_IMPORTANCES = 5  # finite values


def report(settings: Options) -> dict[str, Any]:
    """Write a study's report into the folder ``settings.report``; the result of ``--report``."""
    stamp, slots = read_slots(open_storage(settings.storage, create=False), settings.study)
    folder = Path(settings.report or ".")
    check_report(folder, settings.overwrite)
    written = write_report(settings.study, stamp, slots, folder)
    kept = {key: written[key] for key in ("study", "metric", "best", "best_of_half")}
    return {**kept, "files": [str(folder / name) for name in FILES]}


def check_report(folder: Path, overwrite: bool) -> None:
    """Raise ``FairseqDocError`` if the files cannot be written; called before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FairseqDocError(f"cannot make the folder {folder}: {error.strerror}") from None
    for name in FILES:
        check_output(folder / name, overwrite)


def write_report(name: str, stamp: Stamp, slots: Sequence[Slot], folder: Path) -> dict[str, Any]:
    """Write the files of a report; its result is the contents of ``report.json``."""
    command, maximize = stamp.command, stamp.command.maximize
    best = best_slot(slots, maximize)
    if best is None:
        raise FairseqDocError(
            f"study {name}: expected a trial that is complete and did not diverge; got none of "
            f"{len(slots)}"
        )
    line = command.line(best.settings)
    importances = importances_of(slots, maximize)
    result = {
        "study": name,
        "metric": command.metric,
        "maximize": maximize,
        "space": as_json(stamp.space),
        "command": shlex.join(command.words),
        "best": {**best.as_json(), "command": line},
        "best_of_half": best_of_half(slots, maximize),
        "importances": importances,
        "trials": [slot.as_json() for slot in slots],
    }
    value = shown(f"{command.metric} {best.value:.6g}")
    script = [
        "#!/usr/bin/env bash",
        f"# Trial {best.number}, the best of {len(slots)} trials of the study {shown(name)}: "
        f"{value}.",
        "# Further options go to fairseq-train and override these.",
        f'{line} "$@"',
    ]
    write_lines(folder / "best.sh", script)
    (folder / "best.sh").chmod(0o755)
    write_lines(folder / "trials.tsv", _table(slots, list(stamp.space)))
    with whole_file(folder / "report.json") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
        file.write("\n")
    plot_study(slots, bool(importances), command.metric, maximize, folder)
    return result


def best_of_half(slots: Sequence[Slot], maximize: bool) -> dict[str, Any]:
    """The search's own noise: the best value of a random half of the trials.

    Of n values, sorted from the best, the k-th is the best of m drawn without repetition with the
    probability C(n - k, m - 1) / C(n, m). Diverged trials count as the worst; halves that diverged
    as a whole are left out.

    ``trials`` is m, half of n rounded up; ``mean`` and ``deviation`` are those of the best, which
    is as bad as ``worst`` with a probability of at least .05. {} for fewer than four finite values.
    """
    values = sorted((slot.value for slot in slots if slot.complete), reverse=maximize)
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 4:
        return {}
    n, m = len(values), math.ceil(len(values) / 2)
    shares = [math.comb(n - k, m - 1) / math.comb(n, m) for k in range(1, len(finite) + 1)]
    total = sum(shares)
    mean = sum(share * value for share, value in zip(shares, finite, strict=True)) / total
    squares = [share * (value - mean) ** 2 for share, value in zip(shares, finite, strict=True)]
    as_bad = [value for k, value in enumerate(finite) if sum(shares[k:]) / total >= 0.05]
    deviation = math.sqrt(sum(squares) / total)
    return {"trials": m, "mean": mean, "deviation": deviation, "worst": as_bad[-1]}


def importances_of(slots: Sequence[Slot], maximize: bool) -> dict[str, float]:
    """PED-ANOVA's share of each option, largest first; {} if it cannot tell."""
    finite = [slot for slot in slots if slot.state == "complete"]
    if len(finite) < LEAST_FOR_IMPORTANCES:
        return {}
    try:
        shares = get_param_importances(
            study_of(finite, maximize), evaluator=PedAnovaImportanceEvaluator()
        )
    except (ValueError, RuntimeError):  # all values are the same
        return {}
    return {name: float(share) for name, share in shares.items() if math.isfinite(share)}


def _table(slots: Sequence[Slot], options: Sequence[str]) -> list[str]:
    lines = ["\t".join(["trial", "state", "value", "minutes", *options])]
    for slot in slots:
        value = repr(slot.value) if slot.complete else ""
        settings = [str(slot.settings.get(option, "")) for option in options]
        minutes = f"{slot.seconds / 60:.2f}"
        lines.append("\t".join([str(slot.number), slot.state, value, minutes, *settings]))
    return lines


def study_of(slots: Sequence[Slot], maximize: bool) -> Study:
    """A study in memory with a complete trial for each slot, under the slot's number."""
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    for slot in slots:
        while len(study.get_trials(deepcopy=False)) < slot.number:
            study.add_trial(create_trial(state=TrialState.FAIL))
        study.add_trial(slot.last)
    return study


def plot_study(
    slots: Sequence[Slot], weighed: bool, metric: str, maximize: bool, folder: Path
) -> None:
    """Plot the history, slices, importances if ``weighed``, and parallel coordinates into a folder.
    Far worse trials would press the others into one line; a note counts them instead."""
    finite = [slot for slot in slots if slot.state == "complete"]
    near = near_slots(finite, maximize)
    left_out = {
        "diverged": sum(slot.state == "diverged" for slot in slots),
        "far worse": len(finite) - len(near),
    }
    note = ", ".join(f"{count} {what}" for what, count in left_out.items() if count)
    study = study_of(near, maximize)
    all_finite = study_of(finite if weighed else [], maximize)
    name = f"validation {metric}"
    drawn: tuple[Callable[[], Any], ...] = (
        lambda: plots.plot_optimization_history(study, target_name=name),
        lambda: plots.plot_slice(study, target_name=name),
        lambda: plots.plot_param_importances(all_finite, evaluator=PedAnovaImportanceEvaluator()),
        lambda: plots.plot_parallel_coordinate(study, target_name=name),
    )
    matplotlib.use("agg")
    for file, draw in zip(PLOTS, drawn, strict=True):
        with matplotlib.rc_context({"savefig.bbox": "tight"}):  # Optuna sets a style for good
            axes = draw()
            figure = getattr(axes, "flat", [axes])[0].figure  # one panel or several
            if file == "parallel.png":  # one axis for each option
                figure.set_size_inches(3 + 1.3 * len(slots[0].settings), 5)
            if note and file != "importances.png":
                figure.text(0, 1, f"left out of {len(slots)} trials: {note}", va="bottom")
            save_figure(figure, folder / file)
            matplotlib.pyplot.close(figure)


def near_slots(slots: Sequence[Slot], maximize: bool) -> list[Slot]:
    """The better three quarters, and those at most 1.5 times their spread beyond."""
    worse = -1 if maximize else 1
    ordered = sorted(worse * slot.value for slot in slots)
    best, edge = ordered[0], ordered[math.ceil(0.75 * (len(ordered) - 1))]
    bound = edge + 1.5 * (edge - best) if edge != best else ordered[-1]
    return [slot for slot in slots if worse * slot.value <= bound]
