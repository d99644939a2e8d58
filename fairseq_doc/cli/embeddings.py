"""export: a model's embeddings as text, for other trainings and programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.cli.arguments import CheckpointOptions
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import TASK, LoadedModels, load_models
from fairseq_doc.evaluation.translation import TRANSLATION
from fairseq_doc.files import write_lines
from fairseq_doc.modules.embedding_file import embedding_lines
from fairseq_doc.options import REQUIRED, option

EXAMPLE = "fairseq-doc embeddings data-bin/ptb --path a.pt --output vectors.txt"


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    path: str = option("checkpoint", REQUIRED, reads=True)
    output: str = option(
        "file to write: number of words and width, then one word and its numbers per line",
        REQUIRED,
        metavar="FILE",
        writes=True,
    )
    side: str | None = option(
        "source or target words of an encoder-decoder", choices=("source", "target")
    )
    output_matrix: bool = option("write the untied output matrix instead", False)
    overwrite: bool = option("replace an existing file", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``words``; ``width``; ``output``, the file."""
    if settings.side is None and any(Path(settings.data).glob("dict.*.txt")):
        raise FairseqDocError("--side source or --side target is needed for an encoder-decoder")
    task_name = TRANSLATION if settings.side else TASK
    loaded = LoadedModels(*load_models(settings.path, task_name, {"data": settings.data}))
    model = loaded.single
    part = model.encoder if settings.side == "source" else model.decoder
    matrix = getattr(part, "embedding", None)
    if matrix is None:
        raise FairseqDocError(
            f"{settings.path}: expected a model of this package; got {type(model).__name__}"
        )
    if settings.output_matrix:
        if part.output.weight is matrix:
            raise FairseqDocError("--output-matrix is tied to the embedding: leave the option out")
        matrix = part.output.weight
    write_lines(settings.output, embedding_lines(matrix, part.dictionary), settings.overwrite)
    words, width = matrix.shape
    return {"words": words, "width": width}


def as_text(result: dict[str, Any]) -> str:
    """The size of the matrix."""
    return "{words:,} words, {width} wide".format(**result)
