"""Training a trial again with other seeds: how its value varies (Melis et al., 2018, 7.2)."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import lock
from fairseq_doc.tuning.command import with_options
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.storage import best_of, claim_folder, load_study, open_storage
from fairseq_doc.tuning.training import folder_of, train_seeds


def rerun(settings: Options) -> dict[str, Any]:
    """Train with a trial's settings and the seeds 1 to ``seeds``. Returns the result of
    ``--rerun``."""
    study, stamp = load_study(open_storage(settings.storage, create=False), settings.study)
    trials = [trial for trial in study.get_trials() if trial.params.keys() == stamp.space.keys()]
    trial = best_of(trials, stamp.command.maximize)
    if settings.rerun != "best":
        trial = next((trial for trial in trials if str(trial.number) == settings.rerun), None)
    if trial is None:
        numbers = ", ".join(str(trial.number) for trial in trials[:20]) or "none"
        raise FairseqDocError(
            f"--rerun: expected best (if a trial is complete) or one of the trials {numbers}; got "
            f"{shown(str(settings.rerun))}"
        )
    command = with_options(stamp.command, trial.params, settings.training or ())
    folder, name = settings.folder, f"rerun-{trial.number:04d}"
    claim_folder(folder, stamp)

    busy = f"another process trains trial {trial.number} again: wait until it ends"
    with lock(folder / f"{name}.lock", busy):
        trained = train_seeds(
            {name: command}, settings.seeds, settings.workers, folder, settings.say, bounded=True
        )
    values = trained[name]
    return {
        "study": settings.study,
        "metric": command.metric,
        "trial": trial.number,
        "settings": trial.params,
        "runs": [
            {"seed": seed, "value": value, "folder": str(folder_of(folder, name, seed))}
            for seed, value in values.items()
        ],
        "diverged": sum(math.isinf(value) for value in values.values()),
        **spread(list(values.values())),
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard deviation (n - 1), minimum and maximum of the finite values; None for too few
    values."""
    finite = [value for value in values if math.isfinite(value)]
    return {
        "mean": statistics.mean(finite) if finite else None,
        "deviation": statistics.stdev(finite) if len(finite) > 1 else None,
        "low": min(finite, default=None),
        "high": max(finite, default=None),
    }
