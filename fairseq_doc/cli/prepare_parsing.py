"""prepare: linearise and binarise trees, (S (NP the dog )NP ... )S, for a language model or a
parser."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq_doc.cli.preparation_arguments import PreparationOptions, closing_line, report
from fairseq_doc.preparation.treebank import Treebank, prepare

EXAMPLE = "fairseq-doc prepare-parsing wsj/ data-bin/wsj --pairs"


@dataclass(frozen=True, kw_only=True)
class Options(PreparationOptions, Treebank):
    """Options of this command."""


def run(settings: Options) -> dict[str, Any]:
    """``destination``; ``types`` in fairseq's dictionary of symbols; ``splits``, each with its
    ``sentences`` and ``tokens``; ``report``, the lines that were printed."""
    name = settings.folder.resolve().name
    return report(settings, name, lambda place, say: prepare(settings, place, say).result())


as_text = partial(closing_line, "prepare_parsing")
