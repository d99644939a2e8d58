"""prepare: clean, tokenise, segment and binarise parallel text for translation."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    WorkerOptions,
    closing_line,
    named_after,
    printing,
    result_of,
)
from fairseq_doc.preparation.parallel_text import ParallelText, prepare

NAME = "prepare-mt"
EXAMPLE = "fairseq-doc prepare-mt en de multi30k/ data-bin/multi30k.en-de --merges 8000 --joint"


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions, ParallelText):
    """Options of this command."""


def run(settings: Options, name: str = NAME, suffix: str | None = None) -> dict[str, Any]:
    """``destination``; ``sides``, each with the ``types`` of its dictionary and the ``splits``,
    which have ``sentences`` and ``tokens``; ``report``, the printed lines. ``suffix`` follows the
    folder's name in the default destination."""
    suffix = f".{settings.source}-{settings.target}" if suffix is None else suffix
    destination = settings.destination or named_after(settings.folder, suffix)
    counts = prepare(settings, destination, settings.workers, printing(name, settings.json))
    return result_of(destination, {"sides": {side: own.result() for side, own in counts.items()}})


as_text = partial(closing_line, NAME)
