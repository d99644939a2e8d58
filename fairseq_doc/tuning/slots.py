"""Which trials count, go on or are one too many: decided by what is in the storage alone, so that every
process decides the same.

A slot is one draw of settings. Its first trial in Optuna's sense gives it its number. When the process of
a trial dies, the trial is closed as failed, and a further trial of the same slot goes on with the same
settings in the same folder. A slot is live unless its training failed; at most as many slots as trials
were asked for are live: where several processes begin a slot at once, those of the highest numbers end.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.tuning.processes import STALE, has_ended, is_process
from fairseq_doc.tuning.space import Space, is_inside

# User attributes of a trial
SLOT = "slot"
OWNER = "owner"
HEARTBEAT_AT = "heartbeat"  # seconds since 1970
SECONDS = "seconds"  # of its training so far
ENDED = "ended"  # why a trial is closed as failed:
STOPPED = "stopped"  # its process was ended; the slot goes on
FAILED = "failed"  # its training failed, as where another program closed it
UNUSED = "unused"  # it never began: one too many, or its process ended before
PROBLEM = "problem"  # the last line of the log of a failed training
ORIGIN = "origin"  # which trial of which other study it has its settings from


@dataclass(frozen=True)
class Slot:
    """The trials of one draw of settings, in the order in which they were made.

    Attributes:
        number: of the slot and of its folder.
        trials: without unused ones.
    """

    number: int
    trials: tuple[FrozenTrial, ...]

    @property
    def last(self) -> FrozenTrial:
        """The trial that says how far the slot is."""
        done = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        return done[0] if done else self.trials[-1]

    @property
    def state(self) -> str:
        """``complete``; ``diverged``, which counts as complete with the worst value; ``failed``;
        ``running``; or ``interrupted``: it should go on, and nobody has it."""
        if self.complete:
            return "complete" if math.isfinite(self.value) else "diverged"
        closed = [trial for trial in self.trials if trial.state == TrialState.FAIL]
        if any(trial.user_attrs.get(ENDED) != STOPPED for trial in closed):
            return "failed"
        return "running" if self.last.state == TrialState.RUNNING else "interrupted"

    @property
    def complete(self) -> bool:
        """Whether the slot has its value."""
        return self.last.state == TrialState.COMPLETE

    @property
    def value(self) -> float:
        """The value of a complete slot."""
        assert self.last.value is not None
        return self.last.value

    @property
    def seconds(self) -> float:
        """Of its trainings together."""
        return sum(trial.user_attrs.get(SECONDS, 0.0) for trial in self.trials)

    @property
    def origin(self) -> str | None:
        """The trial of another study that the settings are from."""
        return self.trials[0].user_attrs.get(ORIGIN)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings; without some where the process ended while they were drawn."""
        return max((trial.params for trial in self.trials), key=len)


def check_trial(trial: FrozenTrial, space: Space) -> None:
    """Raise ``FairseqDocError`` where a storage holds for a trial what this package does not write."""
    kept, settings, values = trial.user_attrs, trial.params, trial.values
    complete = trial.state == TrialState.COMPLETE
    checks = {
        SLOT: isinstance(kept.get(SLOT, 0), int) and kept.get(SLOT, 0) >= 0,
        OWNER: kept.get(OWNER) is None or is_process(kept[OWNER]),
        **{name: _is_number(kept.get(name, 0)) for name in (HEARTBEAT_AT, SECONDS)},
        **{name: isinstance(kept.get(name, ""), str) for name in (ENDED, PROBLEM, ORIGIN)},
        "settings": all(n in space and is_inside(v, space[n]) for n, v in settings.items())
        and (not complete or settings.keys() == space.keys()),
        "values": not complete or (len(values or ()) == 1 and isinstance(values[0], float)),
    }
    found = {**kept, "settings": settings, "values": values}
    for name, good in checks.items():
        if not good:
            raise FairseqDocError(
                f"trial {trial.number} of the study: expected its {name} as fairseq-doc tune writes them; "
                f"got {shown(str(found[name]))}: the storage is damaged"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def slot_number(trial: FrozenTrial) -> int:
    """The slot that a trial belongs to."""
    return trial.user_attrs.get(SLOT, trial.number)


def slots_of(trials: Iterable[FrozenTrial]) -> list[Slot]:
    """The slots of a study, by their numbers. What waits in Optuna's queue is not ours and not counted."""
    found: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state != TrialState.WAITING and trial.user_attrs.get(ENDED) != UNUSED:
            found.setdefault(slot_number(trial), []).append(trial)
    return [Slot(number, tuple(found[number])) for number in sorted(found)]


def is_one_too_many(trial: FrozenTrial, trials: Sequence[FrozenTrial], wanted: int) -> bool:
    """Whether a trial that has just begun must not train: its slot has another trial, has ended, or
    enough slots of lower numbers are live, or one of them has its settings from the same trial of
    another study."""
    mine = slot_number(trial)
    for slot in slots_of(trials):
        if slot.number < mine and slot.origin and slot.origin == trial.user_attrs.get(ORIGIN):
            return True
        others = [t for t in slot.trials if slot.number == mine and t.number != trial.number]
        done = [t for t in others if t.state.is_finished() and t.user_attrs.get(ENDED) != STOPPED]
        if done or any(t.state == TrialState.RUNNING and t.number < trial.number for t in others):
            return True
    lower = [slot for slot in slots_of(trials) if slot.number < mine and slot.state != "failed"]
    return len(lower) >= wanted


def is_dead(trial: FrozenTrial, mine: set[int], me: Mapping[str, Any], now: float) -> bool:
    """Whether nobody works on a running trial any more.

    Args:
        trial: in the state RUNNING.
        mine: the numbers of the trials that this tuner works on.
        me: this tuner, as :func:`~fairseq_doc.tuning.processes.this_process` names it.
        now: seconds since 1970.
    """
    owner = trial.user_attrs.get(OWNER)
    if owner is None:  # its process is about to say so, or died in that moment
        begun = trial.datetime_start
        return begun is None or now - begun.timestamp() > STALE
    if owner == me:
        return trial.number not in mine
    ended = has_ended(owner)
    return now - trial.user_attrs.get(HEARTBEAT_AT, 0.0) > STALE if ended is None else ended


def best_slot(slots: Iterable[Slot], maximize: bool) -> Slot | None:
    """The slot of the best finite value, the first of equal ones; None where there is none."""
    sign = -1 if maximize else 1
    finite = [slot for slot in slots if slot.state == "complete"]
    return min(finite, key=lambda slot: sign * slot.value, default=None)
