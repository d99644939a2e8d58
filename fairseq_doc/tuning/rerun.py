"""A trial trained again with other seeds: how its value varies (Melis et al., 2018, 7.2)."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import lock
from fairseq_doc.tuning.command import with_options
from fairseq_doc.tuning.progress import Progress
from fairseq_doc.tuning.settings import Options, option_words
from fairseq_doc.tuning.slots import best_slot
from fairseq_doc.tuning.storage import claim_folder, open_storage, read_slots
from fairseq_doc.tuning.training import folder_of, train_seeds


def rerun(settings: Options) -> dict[str, Any]:
    """Train with a trial's settings and the seeds 1 to ``seeds``; the result of ``--rerun``."""
    stamp, slots = read_slots(open_storage(settings.storage, create=False), settings.study)
    slot = best_slot(slots, stamp.command.maximize)
    if settings.rerun != "best":
        slot = next((slot for slot in slots if str(slot.number) == settings.rerun), None)
    if slot is None or slot.settings.keys() != stamp.space.keys():
        numbers = ", ".join(str(slot.number) for slot in slots[:20]) or "none"
        raise FairseqDocError(
            f"--rerun: expected best, if a trial is complete, or one of the trials {numbers}; got "
            f"{shown(str(settings.rerun))}"
        )
    command = with_options(stamp.command, settings.training or (), stamp.space)
    folder = settings.folder
    claim_folder(folder, stamp)
    name, remark = f"rerun-{slot.number:04d}", Progress(quiet=settings.quiet).line
    tried = replace(command, words=(*command.words, *option_words(slot.settings)))
    busy = f"another process trains trial {slot.number} again: wait until it has ended"
    with lock(folder / f"{name}.lock", busy):
        trained = train_seeds({name: tried}, settings.seeds, settings.workers, folder, remark)
    values = trained[name]
    return {
        "study": settings.study,
        "metric": command.metric,
        "trial": slot.number,
        "settings": slot.settings,
        "runs": [
            {"seed": seed, "value": value, "folder": str(folder_of(folder, name, seed))}
            for seed, value in values.items()
        ],
        "diverged": sum(math.isinf(value) for value in values.values()),
        **spread(list(values.values())),
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, deviation with n - 1, lowest and highest finite value; None if there are too few."""
    finite = [value for value in values if math.isfinite(value)]
    return {
        "mean": statistics.mean(finite) if finite else None,
        "deviation": statistics.stdev(finite) if len(finite) > 1 else None,
        "low": min(finite, default=None),
        "high": max(finite, default=None),
    }
