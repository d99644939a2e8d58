"""Training a trial again with other seeds: how its value varies (Melis et al., 2018, 7.2)."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import refuse_links
from fairseq_doc.tuning.command import with_options
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.storage import best_of, load_study, open_storage
from fairseq_doc.tuning.training import seed_folder, train_seeds


def rerun(settings: Options) -> dict[str, Any]:
    """Train with a trial's settings and the seeds 1 to ``seeds``. Returns the result of
    ``--rerun``."""
    tuned = load_study(open_storage(settings.storage, create=False), settings.study)
    trials = [t for t in tuned.study.get_trials() if t.params.keys() == tuned.space.keys()]
    trial = best_of(trials, tuned.command.maximize)
    if settings.rerun != "best":
        trial = next((trial for trial in trials if str(trial.number) == settings.rerun), None)
    if trial is None:
        numbers = ", ".join(str(trial.number) for trial in trials[:20]) or "none"
        raise FairseqDocError(
            f"--rerun: expected best (if a trial is complete) or one of the trials {numbers}; got "
            f"{shown(str(settings.rerun))}"
        )
    command = with_options(tuned.command, trial.params, settings.training or ())
    folder, name = settings.folder, f"rerun-{trial.number:04d}"
    refuse_links(folder)
    values = train_seeds(
        {name: command}, settings.seeds, settings.workers, folder, settings.say, bounded=True
    )[name]
    return {
        "study": settings.study,
        "metric": command.metric,
        "trial": trial.number,
        "settings": trial.params,
        "runs": [
            {"seed": seed, "value": value, "folder": str(seed_folder(folder, name, seed))}
            for seed, value in values.items()
        ],
        "diverged": sum(map(math.isinf, values.values())),
        **spread([value for value in values.values() if math.isfinite(value)]),
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard deviation (n - 1), minimum and maximum; None for too few values."""
    return {
        "mean": statistics.mean(values) if values else None,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "low": min(values, default=None),
        "high": max(values, default=None),
    }
