"""prepare: binarise text for a language model."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fairseq_doc.cli.preparation_arguments import WorkerOptions, closing_line, report
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.corpora import ENWIK8, PYDOC, LanguageModelText
from fairseq_doc.preparation.language_model import prepare

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
    corpus, source, destination = settings.corpus, settings.folder, settings.destination
    if corpus == PYDOC and destination is not None:
        raise FairseqDocError(f"expected prepare-lm pydoc [DESTDIR]; got {source} {destination}")
    if corpus == PYDOC:
        source, destination = None, source
    elif source is None:
        kind = "file" if corpus == ENWIK8 else "folder"
        raise FairseqDocError(
            f"expected prepare-lm {corpus} {kind.upper()} [DESTDIR]; got no {kind}"
        )
    text = replace(settings, folder=source, destination=destination)
    return report(text, corpus, lambda place, say: prepare(text, place, text.workers, say).result())


as_text = partial(closing_line, "prepare_lm")
