"""prepare: clean, tokenise, segment and binarise parallel text for translation."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    WorkerOptions,
    closing_line,
    named_after,
    report,
)
from fairseq_doc.preparation.data_folder import Say
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

    def prepare_sides(destination: Path, say: Say) -> dict[str, Any]:
        counts = prepare(settings, destination, settings.workers, say)
        return {"sides": {side: own.result() for side, own in counts.items()}}

    destination = settings.destination or named_after(settings.folder, suffix)
    return report(name, settings, destination, prepare_sides)


as_text = partial(closing_line, NAME)
