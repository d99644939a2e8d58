"""The mean of the weights of several checkpoints, as a checkpoint."""

import os
from collections.abc import Sequence
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

import fairseq_doc
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import CHECKSUM

# fairseq's names of the checkpoints that it saves at an epoch's end and after some updates.
EPOCHS, UPDATES = r"checkpoint(\d+)\.pt", r"checkpoint_\d+_(\d+)\.pt"
# Endings of the names of settings that change how a model is trained, not what it computes.
_OF_TRAINING = tuple(
    "dropout _path _name init_range matmul_precision state_reset grow_from grow_noise "
    "grow_lower_weight".split()
)


def last_checkpoints(folder: str | os.PathLike, pattern: str, count: int) -> list[str]:
    """The last ``count`` checkpoints in a folder, the oldest first, by the number in their names,
    which match ``pattern``, ``EPOCHS`` or ``UPDATES``."""
    if not os.path.isdir(folder):
        raise FairseqDocError(f"expected a folder of checkpoints; got {folder}")
    found = checkpoint_utils.checkpoint_paths(os.fspath(folder), pattern)  # the newest first
    if len(found) < count:
        like, how = "checkpoint12.pt", "without --no-epoch-checkpoints"
        if pattern == UPDATES:
            like, how = "checkpoint_3_1000.pt", "with --save-interval-updates"
        raise FairseqDocError(
            f"{folder}: expected {count} checkpoints with names like {like}; got {len(found)}: "
            f"train {how}"
        )
    return found[count - 1 :: -1]


def averaged_checkpoint(paths: Sequence[str], ema: bool = False) -> dict[str, Any]:
    """The last checkpoint without the optimizer's state, its weights replaced by the mean over all.
    The mean is computed in float64 and rounded to the dtype of the weights.

    Args:
        ema: average the exponential moving averages that ``--store-ema`` saves, not the weights.

    Raises:
        FairseqDocError: checkpoints of different architectures or dictionaries, or without an
            exponential moving average.
    """
    fairseq_doc.register()
    first_shapes: dict[str, object] = {}
    first_settings: dict[str, object] = {}
    sums: dict[str, Tensor] = {}
    for path in paths:
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(path)
        weights = state["extra_state"].get("ema") if ema else state["model"]
        if not weights:
            raise FairseqDocError(
                f"{path} has no moving average: expected a checkpoint of a training with "
                "--store-ema"
            )
        shapes, settings = _shapes(weights), _architecture(state)
        if not sums:
            first_shapes, first_settings = shapes, settings
        # Settings that one of them lacks are newer than that checkpoint.
        shared = [name for name in settings if name in first_settings]
        own, expected = settings | shapes, first_settings | first_shapes
        for name in [*shared, *(shapes | first_shapes)]:
            if own.get(name) != expected.get(name):
                raise FairseqDocError(
                    f"{path}: expected the architecture and dictionary of {paths[0]}; got {name} "
                    f"{own.get(name, 'missing')} instead of {expected.get(name, 'missing')}"
                )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.double()
    for name, total in sums.items():
        weights[name].copy_(total / len(paths))  # in place, so that a tied matrix is saved once
    iterator = {"train_iterator": state["extra_state"].get("train_iterator")}
    state.pop("last_optimizer_state", None)
    cfg = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return {**state, "cfg": cfg, "model": weights, "extra_state": iterator}


def _shapes(weights: dict[str, Tensor]) -> dict[str, object]:
    """The shape of each tensor; of a dictionary's checksum its value."""
    return {
        name: int(tensor) if name.endswith(CHECKSUM) else tuple(tensor.shape)
        for name, tensor in weights.items()
    }


def _architecture(state: dict[str, Any]) -> dict[str, object]:
    """The settings on which the model's output depends; {} for old models without a dataclass."""
    model = state["cfg"]["model"]
    names = map(str, model if isinstance(model, DictConfig) else ())
    return {name: model[name] for name in names if not name.endswith(_OF_TRAINING)}
