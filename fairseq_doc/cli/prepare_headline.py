"""prepare: clean, segment and binarise articles with their headlines."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_doc.cli import prepare_mt
from fairseq_doc.cli.preparation_arguments import closing_line
from fairseq_doc.options import REQUIRED, option

EXAMPLE = "fairseq-doc prepare-headline gigaword/ data-bin/gigaword"


def _with_default(name: str, default: Any) -> Any:
    return field(default=default, metadata=prepare_mt.Options.__dataclass_fields__[name].metadata)


@dataclass(frozen=True, kw_only=True)
class Options(prepare_mt.Options):
    source: str = "src"
    target: str = "tgt"
    folder: Path = option(
        "folder of the raw files, FILE.src (articles) and FILE.tgt (headlines), one per line",
        REQUIRED,
        positional=True,
        metavar="FOLDER",
    )
    merges: int = _with_default("merges", 5000)
    joint: bool = _with_default("joint", True)
    tokenizer: str = _with_default("tokenizer", "none")  # these corpora are tokenised already

    @property
    def suffix(self) -> str:
        return ""


run = prepare_mt.run
as_text = partial(closing_line, "prepare_headline")
