"""How a tuning shows its progress: a line for every trial that ends, and a bar below them, or a second
line where there is no terminal."""

import math
import sys
import time
from collections.abc import Sequence

from tqdm import tqdm

from fairseq_doc.tuning.slots import Slot, best_slot

BAR = "{bar}| {n_fmt} of {total_fmt} trials, {elapsed}, {remaining} left{postfix}"


class Progress:
    """Lines and, on a terminal, a bar on standard error.

    Args:
        wanted: complete trials at the end; None for lines without a bar.
        complete: those at the start.
        quiet: show nothing.
    """

    def __init__(self, wanted: int | None = None, complete: int = 0, quiet: bool = False) -> None:
        self._bar = None
        self._quiet = quiet
        self._wanted, self._complete, self._at_start = wanted, complete, complete
        self._started = time.monotonic()
        if wanted is not None and not quiet and sys.stderr.isatty():
            self._bar = tqdm(
                total=wanted,
                initial=complete,
                file=sys.stderr,
                dynamic_ncols=True,
                smoothing=0,  # several trials may end at once
                bar_format=BAR,
            )

    def line(self, text: str) -> None:
        """Say what has happened."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def update(self, slots: Sequence[Slot], maximize: bool) -> None:
        """Say how far the study with these slots is."""
        found = best_slot(slots, maximize)
        best = "none" if found is None else f"{found.value:.4f}"
        complete = sum(slot.complete for slot in slots)
        if self._bar is not None:
            running = sum(slot.state == "running" for slot in slots)
            self._bar.set_postfix_str(f"{running} running, best {best}", refresh=False)
            self._bar.update(complete - self._bar.n)
            self._bar.refresh()
        elif self._wanted is not None and complete > self._complete:
            each = (time.monotonic() - self._started) / (complete - self._at_start)
            left = duration(each * max(self._wanted - complete, 0))
            self.line(f"{complete} of {self._wanted} trials, best {best}, {left} left")
        self._complete = complete

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def number(value: float) -> str:
    """A value as it is shown: infinite where the training diverged."""
    return "diverged" if math.isinf(value) else f"{value:.4f}"


def duration(seconds: float) -> str:
    """12 s, 3.4 min or 5.6 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
