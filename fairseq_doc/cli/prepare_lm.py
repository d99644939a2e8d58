"""prepare: binarise text for a language model."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_doc.cli.preparation_arguments import (
    DATA_BIN,
    WorkerOptions,
    closing_line,
    printing,
    result_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.corpora import ENWIK8, PYDOC, LanguageModelText
from fairseq_doc.preparation.language_model import prepare

NAME = "prepare-lm"
EXAMPLE = """fairseq-doc prepare-lm ptb ptb/ data-bin/ptb
  fairseq-doc prepare-lm pydoc data-bin/pydoc
  fairseq-doc prepare-lm enwik8 enwik8 data-bin/enwik8
  fairseq-doc prepare-lm text mytext/ data-bin/mytext --threshold 2
  fairseq-doc prepare-lm text mytext.txt data-bin/mytext --split 90,5,5 --unit byte"""


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions, LanguageModelText):
    """Options of this command."""


def run(settings: Options) -> dict[str, Any]:
    """``destination``; ``types`` in fairseq's dictionary; ``splits``, each with its ``sentences``
    and ``tokens``; ``report``, the lines that were printed."""
    source, destination = _places(settings)
    text, say = replace(settings, folder=source), printing(NAME, settings.json)
    counts = prepare(text, destination, settings.workers, say)
    return result_of(destination, counts.result())


def _places(settings: Options) -> tuple[Path | None, Path]:
    """(folder or file of the text, None for pydoc; destination)."""
    corpus, source, destination = settings.corpus, settings.folder, settings.destination
    if corpus == PYDOC:
        if destination is not None:
            raise FairseqDocError(
                f"expected prepare-lm pydoc [DESTDIR]; got {source} {destination}"
            )
        source, destination = None, source
    elif source is None:
        kind = "file" if corpus == ENWIK8 else "folder"
        raise FairseqDocError(
            f"expected prepare-lm {corpus} {kind.upper()} [DESTDIR]; got no {kind}"
        )
    return source, destination or DATA_BIN / corpus


as_text = partial(closing_line, NAME)
