"""train: convert a model of awd-lstm-lm, mos or fastai into a checkpoint."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairseq_doc.conversion.foreign import (
    END_MARKS,
    UNKNOWN,
    architecture,
    dictionary_of,
    imported_checkpoint,
    read_model,
    read_words,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import whole_file
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation.data_folder import check_destination

EXAMPLE = "fairseq-doc import-checkpoint state_dict.pt imported --words words.txt"
CHECKPOINT, DICTIONARY = "model.pt", "dict.txt"


@dataclass(frozen=True, kw_only=True)
class Options:
    tensors: str = option(
        "file written by torch.save(model.state_dict(), FILE)",
        REQUIRED,
        positional=True,
        metavar="STATE_DICT",
    )
    folder: Path = option(
        f"new folder for {CHECKPOINT} and {DICTIONARY}", REQUIRED, positional=True, metavar="FOLDER"
    )
    words: str = option(
        "words of the model, one per line, in the order of its embedding's rows",
        REQUIRED,
        metavar="FILE",
    )
    end_mark: str | None = option(
        f"the word that marks the end of a line (default: the first found of {', '.join(END_MARKS)})",
        metavar="WORD",
    )
    unknown: str | None = option(
        f"the word for unknown words (default: {' or '.join(UNKNOWN)}, if present; else unknown words "
        "have the probability 0)",
        metavar="WORD",
    )


def run(settings: Options) -> dict[str, Any]:
    """Result: ``files``; ``types``, the number of words in the dictionary; ``parameters``;
    ``options`` of fairseq-train for the same architecture."""
    check_destination(settings.folder)
    model = read_model(settings.tensors)
    words = read_words(settings.words, len(model["encoder.weight"]))
    dictionary, rows = dictionary_of(words, settings.end_mark, settings.unknown)
    try:
        state = imported_checkpoint(model, dictionary, rows, str(settings.folder))
    except FairseqDocError as error:
        raise FairseqDocError(f"{settings.tensors}: {error}") from None
    settings.folder.mkdir(parents=True)
    files = [settings.folder / CHECKPOINT, settings.folder / DICTIONARY]
    try:
        with whole_file(files[0], binary=True) as checkpoint, whole_file(files[1]) as word_list:
            torch.save(state, checkpoint)
            dictionary.save(word_list)
    except BaseException:
        shutil.rmtree(settings.folder)
        raise
    tensors = {tensor.data_ptr(): tensor for tensor in state["model"].values()}
    return {
        "files": list(map(str, files)),
        "types": len(dictionary),
        "parameters": sum(t.numel() for t in tensors.values() if t.is_floating_point()),
        "options": ["--arch", "lstm_doc_lm", *architecture(model)],
    }


def as_text(result: dict[str, Any]) -> str:
    """The size and the architecture."""
    size = "{parameters:,} parameters, {types:,} types".format(**result)
    architecture = " ".join(result["options"])
    return f"{size}\n{architecture}"
