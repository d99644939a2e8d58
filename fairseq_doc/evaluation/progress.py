"""Progress of long computations: a bar of fairseq on standard error where a command asks for it."""

import logging
from collections.abc import Iterable
from typing import Any

interval: int | None = None  # items between lines of a bar that is written to a file; None: no bar


def track(items: Any, name: str) -> Iterable[Any]:
    """The same items, which have a length, with a bar if ``interval`` is set."""
    if interval is None:
        yield from items
        return
    from fairseq.logging.progress_bar import progress_bar

    for logger in ("fairseq.logging.progress_bar", "fairseq_doc.analysis"):
        logging.getLogger(logger).setLevel(logging.INFO)
    bar = progress_bar(items, log_interval=interval, prefix=name)
    for item in bar:
        yield item
        bar.log({})
