"""Progress of a tuning: a line for each ended trial, and a bar or, in a file, a second line."""

import sys
import time
from collections.abc import Sequence

from tqdm import tqdm

from fairseq_doc.tuning.settings import duration
from fairseq_doc.tuning.slots import Slot, best_slot

BAR = "{bar}| {n_fmt} of {total_fmt} trials, {elapsed}, {remaining} left{postfix}"


class Progress:
    """Lines and, on a terminal, a bar on standard error; without ``wanted`` trials lines alone."""

    def __init__(self, wanted: int | None = None, complete: int = 0, quiet: bool = False) -> None:
        self._quiet, self._wanted = quiet, wanted
        self._at_start = self._complete = complete
        self._started = time.monotonic()
        self._bar = tqdm(
            total=wanted,
            initial=complete,
            file=sys.stderr,
            dynamic_ncols=True,
            smoothing=0,  # several trials may end at once
            bar_format=BAR,
            disable=quiet or wanted is None or not sys.stderr.isatty(),
        )

    def line(self, text: str) -> None:
        if not self._quiet:
            self._bar.write(text, file=sys.stderr)

    def update(self, slots: Sequence[Slot], maximize: bool) -> None:
        best = best_slot(slots, maximize)
        value = "none" if best is None else f"{best.value:.4f}"
        complete = sum(slot.complete for slot in slots)
        if not self._bar.disable:
            running = sum(slot.state == "running" for slot in slots)
            self._bar.set_postfix_str(f"{running} running, best {value}", refresh=False)
            self._bar.update(complete - self._bar.n)
            self._bar.refresh()
        elif self._wanted is not None and complete > self._complete:
            each = (time.monotonic() - self._started) / (complete - self._at_start)
            left = duration(each * max(self._wanted - complete, 0))
            self.line(f"{complete} of {self._wanted} trials, best {value}, {left} left")
        self._complete = complete

    def close(self) -> None:
        self._bar.close()
