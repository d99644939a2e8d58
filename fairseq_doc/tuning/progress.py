"""Progress of a tuning: a line for each ended trial, and a bar or, in a file, a second line."""

import io
import sys
from collections.abc import Sequence

from tqdm import tqdm

from fairseq_doc.tuning.slots import Slot, best_slot

COUNTS = "{n_fmt} of {total_fmt} trials, {elapsed}, {remaining} left{postfix}"


class Progress:
    """Lines and, on a terminal, a bar on standard error; without ``wanted`` trials lines alone."""

    def __init__(self, wanted: int | None = None, complete: int = 0, quiet: bool = False) -> None:
        self._quiet = quiet
        self._has_bar = sys.stderr.isatty()
        self._bar = tqdm(
            total=wanted,
            initial=complete,
            file=sys.stderr if self._has_bar else io.StringIO(),
            dynamic_ncols=True,
            smoothing=0,  # several trials may end at once
            bar_format=f"{{bar}}| {COUNTS}" if self._has_bar else COUNTS,
            disable=quiet or wanted is None,
        )

    def line(self, text: str) -> None:
        if not self._quiet:
            tqdm.write(text, file=sys.stderr)

    def update(self, slots: Sequence[Slot], maximize: bool) -> None:
        if self._bar.disable:
            return
        best = best_slot(slots, maximize)
        value = "none" if best is None else f"{best.value:.4f}"
        running = sum(slot.state == "running" for slot in slots)
        ended = sum(slot.complete for slot in slots) - self._bar.n
        self._bar.set_postfix_str(f"{running} running, best {value}", refresh=False)
        self._bar.update(ended)
        self._bar.refresh()
        if ended and not self._has_bar:
            self.line(str(self._bar))

    def close(self) -> None:
        self._bar.close()
