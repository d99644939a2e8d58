"""Which trials count, continue or are one too many, by the storage alone: all processes agree.

A slot is one draw of settings, numbered by its first trial in Optuna's sense. If the process of a
trial dies, the trial is closed as failed, and a further trial of the slot goes on with its settings
and folder. A slot is live unless its training failed. At most as many slots as wanted trials are
live: if processes begin more at once, those of the highest numbers end.
"""

import contextlib
import math
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.tuning.space import Space, is_inside

HEARTBEAT = 60.0  # seconds between the time stamps of a running trial
STALE = 600.0  # seconds without one after which a process of another machine counts as gone

# User attributes of a trial
SLOT = "slot"
OWNER = "owner"
HEARTBEAT_AT = "heartbeat"  # seconds since 1970
SECONDS = "seconds"  # of its training so far
ENDED = "ended"  # why a trial is closed as failed:
STOPPED = "stopped"  # its process was ended; the slot goes on
FAILED = "failed"  # its training failed, or another program closed it
UNUSED = "unused"  # it never began: one too many, or its process ended before
PROBLEM = "problem"  # the last line of the log of a failed training
ORIGIN = "origin"  # the trial of another study that its settings are from


def start_time(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's units; None if it has ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = line.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def this_process() -> dict[str, Any]:
    """This process as JSON: the machine since its start, with the container in it; number; start
    time, since numbers are used again; and a name that is new at every call, since one process may
    have two tuners."""
    machine, pid, name = socket.gethostname(), os.getpid(), uuid.uuid4().hex[:8]
    with contextlib.suppress(OSError):
        booted = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine += f" {booted} {os.readlink('/proc/self/ns/pid')}"
    return {"machine": machine, "pid": pid, "started": start_time(pid), "name": name}


@dataclass(frozen=True)
class Slot:
    """The trials of one draw of settings, in order, without unused ones."""

    number: int
    trials: tuple[FrozenTrial, ...]

    @property
    def last(self) -> FrozenTrial:
        """The trial that says how far the slot is."""
        done = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        return done[0] if done else self.trials[-1]

    @property
    def state(self) -> str:
        """``complete``; ``diverged``, complete with the worst value; ``failed``; ``running``; or
        ``interrupted``: to be continued, and no process trains it."""
        if self.complete:
            return "complete" if math.isfinite(self.value) else "diverged"
        closed = [trial for trial in self.trials if trial.state == TrialState.FAIL]
        if any(trial.user_attrs.get(ENDED) != STOPPED for trial in closed):
            return "failed"
        return "running" if self.last.state == TrialState.RUNNING else "interrupted"

    @property
    def complete(self) -> bool:
        return self.last.state == TrialState.COMPLETE

    @property
    def value(self) -> float:
        assert self.last.value is not None
        return self.last.value

    @property
    def seconds(self) -> float:
        return sum(trial.user_attrs.get(SECONDS, 0.0) for trial in self.trials)

    @property
    def origin(self) -> str | None:
        return self.trials[0].user_attrs.get(ORIGIN)

    @property
    def settings(self) -> dict[str, Any]:
        """Some are missing if the process ended while they were drawn."""
        return max((trial.params for trial in self.trials), key=len)

    def as_json(self) -> dict[str, Any]:
        return {
            "trial": self.number,
            "state": self.state,
            "value": self.value if self.state == "complete" else None,
            "seconds": round(self.seconds, 1),
            "origin": self.origin,
            "settings": self.settings,
            "problem": self.last.user_attrs.get(PROBLEM, ""),
        }


def check_trial(trial: FrozenTrial, space: Space) -> None:
    """Raise ``FairseqDocError`` for a trial with values that this package does not write."""
    attributes, settings, values = trial.user_attrs, trial.params, trial.values
    kinds: dict[str, Any] = {OWNER: dict, SLOT: int, ENDED: str, PROBLEM: str, ORIGIN: str}
    kinds |= {HEARTBEAT_AT: int | float, SECONDS: int | float}
    given = {name: kind for name, kind in kinds.items() if name in attributes}
    wrong = [name for name, kind in given.items() if not isinstance(attributes[name], kind)]
    numbers = [attributes.get(name, 0) for name in (HEARTBEAT_AT, SECONDS, SLOT)]
    if not wrong and not all(0 <= number < math.inf for number in numbers):
        wrong.append("numbers")
    if not all(name in space and is_inside(value, space[name]) for name, value in settings.items()):
        wrong.append("settings")
    if trial.state == TrialState.COMPLETE:
        valued = len(values or ()) == 1 and isinstance(values[0], float)
        if not valued or settings.keys() != space.keys():
            wrong.append("value")
    if wrong:
        got = shown(f"{attributes}, {settings}, {values}", 300)
        raise FairseqDocError(
            f"trial {trial.number} of the study: expected its {wrong[0]} as fairseq-doc tune "
            f"writes it; got {got}: the storage is damaged"
        )


def slot_number(trial: FrozenTrial) -> int:
    """The slot that a trial belongs to."""
    return trial.user_attrs.get(SLOT, trial.number)


def slots_of(trials: Iterable[FrozenTrial]) -> list[Slot]:
    """The slots of a study, by number. Trials in Optuna's queue are not this package's."""
    slots: dict[int, list[FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state != TrialState.WAITING and trial.user_attrs.get(ENDED) != UNUSED:
            slots.setdefault(slot_number(trial), []).append(trial)
    return [Slot(number, tuple(slots[number])) for number in sorted(slots)]


def slots_begun(trials: Iterable[FrozenTrial]) -> int:
    """How many of the trials began a slot; the others went on with one."""
    return sum(SLOT not in trial.user_attrs for trial in trials)


def is_one_too_many(trial: FrozenTrial, trials: Sequence[FrozenTrial], wanted: int) -> bool:
    """Whether a trial that has just begun must not train: its slot has another trial or has ended,
    enough lower slots are live, or one of them has the same ``ORIGIN``."""
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
    """Whether a running trial has no process; this tuner, ``me``, works on the trials ``mine``."""
    owner = trial.user_attrs.get(OWNER, {})  # none: of another program
    if owner == me:
        return trial.number not in mine
    if owner.get("machine") == me["machine"] and isinstance(owner.get("pid"), int):
        return start_time(owner["pid"]) != owner.get("started")
    return now - trial.user_attrs.get(HEARTBEAT_AT, 0.0) > STALE


def best_slot(slots: Iterable[Slot], maximize: bool) -> Slot | None:
    """The slot of the best finite value, the first of equal ones."""
    sign = -1 if maximize else 1
    finite = [slot for slot in slots if slot.state == "complete"]
    return min(finite, key=lambda slot: sign * slot.value, default=None)
