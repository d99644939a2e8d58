"""prepare: clean, tokenise, segment and binarise parallel text for translation."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_doc.cli.preparation_arguments import WorkerOptions, closing_line, report
from fairseq_doc.preparation.data_folder import Say
from fairseq_doc.preparation.parallel_text import ParallelText, prepare

EXAMPLE = "fairseq-doc prepare-mt en de multi30k/ data-bin/multi30k.en-de --merges 8000 --joint"


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions, ParallelText):
    @property
    def suffix(self) -> str:
        """What follows the folder's name in the default destination."""
        return f".{self.source}-{self.target}"


def run(settings: Options) -> dict[str, Any]:
    """``destination``; ``sides``, each with the ``types`` of its dictionary and the ``splits``,
    which have ``sentences`` and ``tokens``; ``report``, the printed lines."""

    def prepare_sides(destination: Path, say: Say) -> dict[str, Any]:
        counts = prepare(settings, destination, settings.workers, say)
        return {"sides": {side: own.result() for side, own in counts.items()}}

    return report(settings, f"{settings.folder.resolve().name}{settings.suffix}", prepare_sides)


as_text = partial(closing_line, "prepare_mt")
