"""How a tuning shows its progress: a line for every trial that ends, and a bar below them, or a second
line where there is no terminal."""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from fairseq_doc.tuning.slots import Slot, best_slot

BAR = "{bar}| {n_fmt} of {total_fmt} trials, {elapsed}, {remaining} left{postfix}"


@dataclass(frozen=True)
class Standing:
    """How far a study is.

    Attributes:
        complete: slots with a value.
        running: slots at work, in all processes.
        best: the best value, None before the first.
    """

    complete: int
    running: int
    best: float | None

    @classmethod
    def of(cls, slots: Sequence[Slot], maximize: bool) -> "Standing":
        """That of a study with these slots."""
        best = best_slot(slots, maximize)
        complete = sum(slot.complete for slot in slots)
        running = sum(slot.running for slot in slots)
        return cls(complete, running, best.last.value if best else None)


class Silent:
    """Shows nothing."""

    def line(self, text: str) -> None:
        """Say what has happened."""

    def update(self, standing: Standing) -> None:
        """Say how far the study is."""

    def close(self) -> None:
        """The end."""


class OnStandardError(Silent):
    """Lines and, on a terminal, a bar.

    Args:
        wanted: complete trials at the end.
        complete: those at the start.
        bar: whether there is a bar.
    """

    def __init__(self, wanted: int, complete: int = 0, bar: bool = True) -> None:
        self._bar = None
        self._wanted, self._complete, self._at_start = wanted, complete, complete
        self._started = time.monotonic()
        if bar and sys.stderr.isatty():
            self._bar = tqdm(
                total=wanted,
                initial=complete,
                file=sys.stderr,
                dynamic_ncols=True,
                smoothing=0,  # several trials may end at once
                bar_format=BAR,
            )

    def line(self, text: str) -> None:
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.write(text, file=sys.stderr)

    def update(self, standing: Standing) -> None:
        best = "none" if standing.best is None else f"{standing.best:.4f}"
        if self._bar is not None:
            self._bar.set_postfix_str(f"{standing.running} running, best {best}", refresh=False)
            self._bar.update(standing.complete - self._bar.n)
            self._bar.refresh()
        elif standing.complete > self._complete:
            each = (time.monotonic() - self._started) / (standing.complete - self._at_start)
            left = duration(each * max(self._wanted - standing.complete, 0))
            self.line(f"{standing.complete} of {self._wanted} trials, best {best}, {left} left")
        self._complete = standing.complete

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def number(value: float | None) -> str:
    """A value as it is shown: infinite where the training diverged."""
    if value is None:
        return "no value"
    return "diverged" if math.isinf(value) else f"{value:.4f}"


def duration(seconds: float) -> str:
    """12 s, 3.4 min or 5.6 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
