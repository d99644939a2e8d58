"""Optuna's plots of a study. They show the better three quarters of the values and what is near them,
since a few bad trainings would press all others into one line; a note counts what is left out."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import Study
from optuna.trial import TrialState, create_trial
from optuna.visualization import matplotlib as plots

from fairseq_doc.evaluation.plotting import save_figure
from fairseq_doc.tuning.slots import Slot

FILES = ("history.png", "slice.png", "importances.png", "parallel.png")


def study_of(slots: Sequence[Slot], maximize: bool) -> Study:
    """A study in memory with a complete trial for each of the slots, under the slot's number."""
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    for slot in slots:
        while len(study.get_trials(deepcopy=False)) < slot.number:
            study.add_trial(create_trial(state=TrialState.FAIL))
        study.add_trial(slot.last)
    return study


def plot_study(
    slots: Sequence[Slot],
    importances: Mapping[str, float],
    metric: str,
    maximize: bool,
    folder: Path,
) -> None:
    """Plot the history, the slices, the importances and the parallel coordinates into a folder.

    Args:
        slots: of the study; one at least has a finite value.
        importances: those of the report, which decide whether there are any to plot.
        metric: the name of the values.
        maximize: whether the highest is best.
        folder: for the files.
    """
    finite = [slot for slot in slots if slot.state == "complete"]
    near = near_slots(finite, maximize)
    shown = study_of(near, maximize)
    diverged = sum(slot.state == "diverged" for slot in slots)
    far = len(finite) - len(near)
    note = ", ".join(f"{n} {what}" for n, what in ((diverged, "diverged"), (far, "far worse")) if n)
    name = f"validation {metric}"
    weighed = study_of(finite if importances else [], maximize)
    evaluator = PedAnovaImportanceEvaluator()
    drawn = (
        lambda: plots.plot_optimization_history(shown, target_name=name),
        lambda: plots.plot_slice(shown, target_name=name),
        lambda: plots.plot_param_importances(weighed, evaluator=evaluator),
        lambda: plots.plot_parallel_coordinate(shown, target_name=name),
    )
    matplotlib.use("agg")
    for file, draw in zip(FILES, drawn, strict=True):
        with matplotlib.rc_context({"savefig.bbox": "tight"}):  # Optuna sets a style for good
            figure = _figure(draw())
            if file == "parallel.png":  # an axis an option
                figure.set_size_inches(3 + 1.3 * len(slots[0].settings), 5)
            if note and file != "importances.png":
                figure.text(0, 1, f"left out of {len(slots)} trials: {note}", va="bottom")
            save_figure(figure, folder / file)
            matplotlib.pyplot.close(figure)


def _figure(axes: Any) -> Any:
    """The figure of one panel or of an array of them."""
    return getattr(axes, "flat", [axes])[0].figure


def near_slots(slots: Sequence[Slot], maximize: bool) -> list[Slot]:
    """Those of the better three quarters, and of at most 1.5 times their spread beyond."""
    worse = -1 if maximize else 1
    ordered = sorted(worse * slot.value for slot in slots)
    best, edge = ordered[0], ordered[math.ceil(0.75 * (len(ordered) - 1))]
    bound = edge + 1.5 * (edge - best) if edge != best else ordered[-1]
    return [slot for slot in slots if worse * slot.value <= bound]
