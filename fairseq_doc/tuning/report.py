"""A study as files: its best command line, a table of its trials, JSON, and Optuna's plots."""

import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.trial import FrozenTrial
from optuna.visualization import matplotlib as plots

from fairseq_doc.analysis.plotting import save_figure
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_output, write_lines
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.space import as_json
from fairseq_doc.tuning.storage import (
    Tuned,
    as_row,
    best_of,
    finite,
    load_study,
    open_storage,
    state_of,
    value_of,
)

PLOTS = ("history.png", "slice.png", "importances.png", "parallel.png")
FILES = ("best.sh", "trials.tsv", "report.json", *PLOTS)
LEAST_FOR_IMPORTANCES = 5  # complete trials with finite values
EVALUATOR = PedAnovaImportanceEvaluator()


def report(settings: Options) -> dict[str, Any]:
    """Write a study's report into the folder ``settings.report``. Returns the result of
    ``--report``."""
    tuned = load_study(open_storage(settings.storage, create=False), settings.study)
    folder = Path(settings.report or ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        check_output(folder / name, settings.overwrite)
    written = write_report(tuned, folder)
    kept = {key: written[key] for key in ("study", "metric", "best", "best_of_half")}
    files = [str(folder / name) for name in FILES if (folder / name).exists()]
    return {**kept, "files": files}


def write_report(tuned: Tuned, folder: Path) -> dict[str, Any]:
    """Write the files of a report. Returns the contents of ``report.json``."""
    study, command, maximize = tuned.study, tuned.command, tuned.command.maximize
    trials = [t for t in study.get_trials() if state_of(t) not in ("waiting", "interrupted")]
    best = best_of(trials, maximize)
    if best is None:
        raise FairseqDocError(
            f"study {study.study_name}: none of its {len(trials)} trials is complete without "
            "diverging; run more trials first"
        )
    line = command.line(best.params)
    result: dict[str, Any] = {
        "study": study.study_name,
        "metric": command.metric,
        "maximize": maximize,
        "space": as_json(tuned.space),
        "command": shlex.join(command.words),
        "best": {**as_row(best), "command": line},
        "best_of_half": best_of_half(trials, maximize),
        "importances": importances_of(study),
        "trials": [as_row(trial) for trial in trials],
    }
    script = [
        "#!/usr/bin/env bash",
        f"# Trial {best.number}, the best of {len(trials)} trials of the study "
        f"{shown(study.study_name)}: {shown(f'{command.metric} {best.value:.6g}')}.",
        "# Further arguments are passed to fairseq-train and override these options.",
        f'{line} "$@"',
    ]
    write_lines(folder / "best.sh", script)
    (folder / "best.sh").chmod(0o755)
    write_lines(folder / "trials.tsv", _table(trials, list(tuned.space)))
    write_lines(folder / "report.json", [json.dumps(result, indent=1, ensure_ascii=False)])
    plot_study(study, result["importances"], command.metric, folder)
    return result


def best_of_half(trials: Sequence[FrozenTrial], maximize: bool) -> dict[str, Any]:
    """How much the result depends on the luck of the search: the best value of a random half of the
    trials.

    Sort n values, the best first. The k-th is the best of m values drawn without replacement with
    probability C(n - k, m - 1) / C(n, m). Diverged trials count as the worst; halves in which all
    trials diverged are left out.

    Returns:
        ``trials``, m, which is half of n rounded up; ``mean`` and ``deviation`` of the best value;
        ``worst``, its 95th percentile (5th for a metric that is maximised). {} for fewer than four
        finite values.
    """
    values = sorted(map(value_of, finite(trials)), reverse=maximize)
    if len(values) < 4:
        return {}
    n = len(values) + sum(state_of(trial) == "diverged" for trial in trials)
    m = math.ceil(n / 2)
    shares = [math.comb(n - k, m - 1) / math.comb(n, m) for k in range(1, len(values) + 1)]
    total = sum(shares)
    mean = sum(share * value for share, value in zip(shares, values, strict=True)) / total
    squares = [share * (value - mean) ** 2 for share, value in zip(shares, values, strict=True)]
    as_bad = [value for k, value in enumerate(values) if sum(shares[k:]) / total >= 0.05]
    deviation = math.sqrt(sum(squares) / total)
    return {"trials": m, "mean": mean, "deviation": deviation, "worst": as_bad[-1]}


def importances_of(study: Study) -> dict[str, float]:
    """PED-ANOVA's importance of each option, largest first; {} if it cannot be computed."""
    if len(finite(study.get_trials())) < LEAST_FOR_IMPORTANCES:
        return {}
    try:
        shares = get_param_importances(study, evaluator=EVALUATOR)
    except (ValueError, RuntimeError):  # all values are the same
        return {}
    return {name: float(share) for name, share in shares.items() if math.isfinite(share)}


def _table(trials: Sequence[FrozenTrial], options: Sequence[str]) -> list[str]:
    lines = ["\t".join(["trial", "state", "value", "minutes", *options])]
    for trial in trials:
        row, value = as_row(trial), "" if trial.value is None else repr(trial.value)
        cells = [str(trial.number), row["state"], value, f"{row['seconds'] / 60:.2f}"]
        lines.append("\t".join([*cells, *(str(trial.params.get(name, "")) for name in options)]))
    return lines


def plot_study(study: Study, importances: dict[str, float], metric: str, folder: Path) -> None:
    """Optuna's plots, which leave out diverged trials; that of the importances if there are any."""
    name = f"validation {metric}"
    drawn: dict[str, Callable[[], Any]] = {
        "history.png": lambda: plots.plot_optimization_history(study, target_name=name),
        "slice.png": lambda: plots.plot_slice(study, target_name=name),
        "importances.png": lambda: plots.plot_param_importances(study, evaluator=EVALUATOR),
        "parallel.png": lambda: plots.plot_parallel_coordinate(study, target_name=name),
    }
    if not importances:
        del drawn["importances.png"]
        (folder / "importances.png").unlink(missing_ok=True)  # of an earlier report
    matplotlib.use("agg")
    for file, draw in drawn.items():
        with matplotlib.rc_context({"savefig.bbox": "tight"}):  # Optuna changes the style globally
            axes = draw()
            figure = getattr(axes, "flat", [axes])[0].figure  # one panel or several
            if file == "parallel.png":  # one axis for each option
                figure.set_size_inches(3 + 1.3 * len(study.best_params), 5)
            save_figure(figure, folder / file)
            matplotlib.pyplot.close(figure)
