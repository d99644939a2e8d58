"""train: average the weights of several checkpoints."""

from dataclasses import dataclass
from typing import Any

import torch

from fairseq_doc.cli.outputs import check_outputs
from fairseq_doc.conversion.average import EPOCHS, UPDATES, averaged_checkpoint, last_checkpoints
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import whole_file
from fairseq_doc.options import REQUIRED, option

EXAMPLE = "fairseq-doc average checkpoints/ptb --last-epochs 5 --output averaged.pt"


@dataclass(frozen=True, kw_only=True)
class Options:
    checkpoints: list[str] = option(
        "checkpoints; with --last-epochs or --last-updates, their folder",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="CHECKPOINT",
        type=str,
    )
    last_epochs: int | None = option(
        "average the folder's last N checkpoints saved at the end of an epoch, such as checkpoint12.pt",
        metavar="N",
        least=1,
        without=("last-updates",),
    )
    last_updates: int | None = option(
        "average the last N checkpoints in the folder from --save-interval-updates, such as "
        "checkpoint_3_1000.pt",
        metavar="N",
        least=1,
    )
    ema: bool = option(
        "use the exponential moving average of the weights that --store-ema saved; a single "
        "checkpoint is enough",
        False,
    )
    output: str = option("checkpoint to write", REQUIRED, metavar="FILE", writes=True)
    overwrite: bool = option("replace an existing file", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``checkpoints``, the averaged ones, those of a folder oldest first; ``output``, the
    file."""
    paths = settings.checkpoints
    if count := settings.last_epochs or settings.last_updates:
        if len(paths) != 1:
            raise FairseqDocError(
                f"--last-epochs and --last-updates: expected one folder; got {', '.join(paths)}"
            )
        paths = last_checkpoints(paths[0], EPOCHS if settings.last_epochs else UPDATES, count)
    if len(paths) == 1 and not settings.ema:
        raise FairseqDocError(
            f"expected several checkpoints; got only {paths[0]}: name more, or give --last-epochs N, "
            "--last-updates N or --ema"
        )
    check_outputs(settings, inputs=paths)
    state = averaged_checkpoint(paths, settings.ema)
    with whole_file(settings.output, settings.overwrite, binary=True) as file:
        torch.save(state, file)
    return {"checkpoints": paths}


def as_text(result: dict[str, Any]) -> str:
    """The checkpoints."""
    return "\n".join(f"averaged {path}" for path in result["checkpoints"])
