"""Progress of long computations: fairseq's bar on standard error, if a command asks for it."""

import logging
from collections.abc import Iterable
from typing import Any

interval: int | None = None  # items between lines if standard error is a file; None: no bar


def track(items: Any, name: str) -> Iterable[Any]:
    """Yield the items, which must have a length, with a bar if ``interval`` is set."""
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
