"""prepare: clean, tokenise, segment and binarise parallel text for translation."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    WorkerOptions,
    closing_line,
    default_destination,
    reporting,
)
from fairseq_doc.preparation.binarisation import counts_of
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
    suffix = f".{settings.pair}" if suffix is None else suffix
    destination = settings.destination or default_destination(settings.folder, suffix)
    with reporting(name, settings.json) as (say, report):
        prepare(settings, destination, settings.workers, say)
    sides = {}
    for side in settings.sides:
        dictionary = destination / f"dict.{side}.txt"
        sides[side] = counts_of(dictionary, settings.splits, f".{settings.pair}.{side}")
    return {"destination": os.fspath(destination), "sides": sides, "report": report}


as_text = partial(closing_line, NAME)
