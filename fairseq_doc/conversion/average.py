"""The mean of the weights of several checkpoints, as a checkpoint."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq import checkpoint_utils
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

import fairseq_doc
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import CHECKSUM

# fairseq's names of the checkpoints that it saves at an epoch's end and after some updates.
EPOCHS, UPDATES = r"checkpoint(\d+)\.pt", r"checkpoint_\d+_(\d+)\.pt"
# Settings of a model that change its training, not what it computes.
_OF_TRAINING = (
    "dropout",
    "_path",
    "_name",
    "init_range",
    "matmul_precision",
    "state_reset",
    "grow_from",
    "grow_noise",
    "grow_lower_weight",
)


def last_checkpoints(folder: str | os.PathLike, pattern: str, count: int) -> list[str]:
    """The last ``count`` checkpoints of a folder, the oldest first, by the number in their names,
    which are like ``pattern``, ``EPOCHS`` or ``UPDATES``."""
    if not os.path.isdir(folder):
        raise FairseqDocError(f"expected the folder of a training's checkpoints; got {folder}")
    found = checkpoint_utils.checkpoint_paths(os.fspath(folder), pattern)  # the newest first
    if len(found) < count:
        like = "checkpoint12.pt" if pattern == EPOCHS else "checkpoint_3_1000.pt"
        raise FairseqDocError(
            f"{folder}: expected {count} checkpoints with names like {like}; got {len(found)}: "
            "train with --keep-last-epochs or --keep-interval-updates"
        )
    return found[count - 1 :: -1]


def averaged_checkpoint(paths: Sequence[str], ema: bool = False) -> dict[str, Any]:
    """The state of the last checkpoint with the mean of the weights of all, without an optimizer's
    state. The mean is formed in float64 and has the weights' own dtype; buffers of integers are
    those of the last.

    Args:
        ema: take the exponential moving average that ``--store-ema`` saves, not the weights.

    Raises:
        FairseqDocError: checkpoints of different architectures or dictionaries, or without an
            exponential moving average.
    """
    fairseq_doc.register()
    first: dict[str, Tensor] = {}
    first_settings: dict[str, Any] = {}
    sums: dict[str, Tensor] = {}
    for path in paths:
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(path)
        weights = state["extra_state"].get("ema") if ema else state["model"]
        if not weights:
            raise FairseqDocError(
                f"{path} has no moving average: expected a checkpoint of a training with "
                "--store-ema"
            )
        settings = _architecture(state)
        if not first:
            first, first_settings = weights, settings
        _check_alike(paths[0], path, first, weights, first_settings, settings)
        for name, tensor in weights.items():
            if _is_averaged(name, tensor):
                sums[name] = sums.get(name, 0) + tensor.double()
    tied: dict[tuple, Tensor] = {}  # by the memory's address, so that a tied matrix is saved once
    for name, total in sums.items():
        own = weights[name]
        mean = (total / len(paths)).to(own.dtype)
        weights[name] = tied.setdefault((own.data_ptr(), own.shape), mean)
    iterator = {"train_iterator": state["extra_state"].get("train_iterator")}
    state.pop("last_optimizer_state", None)
    cfg = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return {**state, "cfg": cfg, "model": weights, "extra_state": iterator}


def _is_averaged(name: str, tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not name.endswith(CHECKSUM)


def _architecture(state: dict[str, Any]) -> dict[str, Any]:
    """The model's settings that its computation depends on; {} of old models without a dataclass."""
    model = state["cfg"]["model"]
    names = map(str, model if isinstance(model, DictConfig) else ())
    return {name: model[name] for name in names if not name.endswith(_OF_TRAINING)}


def _check_alike(
    first_path: str,
    path: str,
    first: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    first_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    shapes, own = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for tensors in (first, weights)
    )
    if shapes != own:
        name = min(name for name, _ in shapes.items() ^ own.items())
        raise FairseqDocError(
            f"{path}: expected the architecture and the number of words of {first_path}; got "
            f"{name} {own.get(name, 'missing')}, there {shapes.get(name, 'missing')}"
        )
    for name in first_settings.keys() & settings:
        if first_settings[name] != settings[name]:
            raise FairseqDocError(
                f"{path}: expected the architecture of {first_path}; got {name} {settings[name]}, "
                f"there {first_settings[name]}"
            )
    for name in shapes:
        if name.endswith(CHECKSUM) and not torch.equal(first[name], weights[name]):
            raise FairseqDocError(
                f"{path}: expected the dictionary of {first_path}; got as many words, but others "
                "or in another order"
            )
