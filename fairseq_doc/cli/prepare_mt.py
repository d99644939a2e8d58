"""``fairseq-doc prepare-mt``."""

from functools import partial
from typing import Any

from fairseq_doc.cli.preparation_arguments import ParallelOptions, closing_line, prepare_parallel

NAME = "prepare-mt"
EXAMPLE = "fairseq-doc prepare-mt en de multi30k/ data-bin/multi30k.en-de --merges 8000 --joint"
Options = ParallelOptions


def run(settings: Options) -> dict[str, Any]:
    """See :func:`prepare_parallel`; by default into data-bin/FOLDER.SRC-TGT."""
    return prepare_parallel(NAME, settings, f".{settings.pair}")


as_text = partial(closing_line, NAME)
