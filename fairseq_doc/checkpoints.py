"""Checkpoints: which types they may hold, whether they fit, clear refusals, and copies that are whole.

torch reads a checkpoint with ``weights_only``, so that a file from a stranger runs no code, and then
refuses what fairseq itself puts there. The types below, plain containers of values, are allowed;
nothing else is, and ``weights_only`` is never switched off.
"""

import argparse
import contextlib
import functools
import pickle
import zlib

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

from fairseq_doc.errors import FairseqDocError

torch.serialization.add_safe_globals(
    [
        argparse.Namespace,  # the settings of models and tasks without a dataclass
        distributed_utils._TensorPlaceholder,  # a tensor's place in what workers send each other
        # arrays of numbers, in which fairseq's --eval-bleu keeps its counts
        np._core.multiarray._reconstruct,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(number)) for number in ("int64", "float64")),
    ]
)


def _with_clear_refusals(load):
    @functools.wraps(load)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        try:
            return _fit_to_broadcast(load(path, *args, **kwargs), kwargs)
        except pickle.UnpicklingError as error:
            if "weights_only" not in str(error) and "Unsupported" not in str(error):
                raise _damaged(path, error) from error
            raise FairseqDocError(
                f"{path} was refused: a checkpoint may hold tensors and plain values, and this one "
                f"holds more, which could run code ({_gist(error)})"
            ) from error
        except OSError:  # no such file, no permission: says so itself
            raise
        except Exception as error:  # a damaged file fails anywhere in its reader
            raise _damaged(path, error) from error

    return load_checkpoint_to_cpu


def _fit_to_broadcast(state, settings):
    """The trainer of several workers loads on the first and sends the state to the others through
    ``torch.load``, which refuses omegaconf's classes. It reads no settings from the state, so they
    go as plain values. Only the trainer passes ``load_on_all_ranks``."""
    if "load_on_all_ranks" in settings and OmegaConf.is_config(state.get("cfg")):
        state["cfg"] = OmegaConf.to_container(state["cfg"])
    return state


def _damaged(path, error):
    return FairseqDocError(
        f"{path} is not a whole checkpoint: expected a file that fairseq-train finished writing; got "
        f"one that is cut off, or of another kind ({_gist(error)})"
    )


def _gist(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "WeightsUnpickler error" in line or "GLOBAL" in line]
    return (told or lines or [type(error).__name__])[0][:200]


checkpoint_utils.load_checkpoint_to_cpu = _with_clear_refusals(
    checkpoint_utils.load_checkpoint_to_cpu
)


def _whole(copy):
    """fairseq copies a checkpoint to checkpoint_last.pt in place, so that a run that is killed
    meanwhile cannot go on; here the copy is made beside it, and moved there when it is whole."""

    @functools.wraps(copy)
    def copy_whole(src_path, dst_path, overwrite=False):
        if not PathManager.supports_rename(dst_path):
            return copy(src_path, dst_path, overwrite=overwrite)
        part = f"{dst_path}.tmp"
        try:
            copied = copy(src_path, part, overwrite=True)
            if copied:
                PathManager.rename(part, dst_path)
            return copied
        except BaseException:  # a full disk, say: the part goes, the last copy stays
            with contextlib.suppress(OSError):
                PathManager.rm(part)
            raise

    return copy_whole


PathManager.copy = staticmethod(_whole(PathManager.copy))


# Ends the name of the buffer that holds :func:`dictionary_checksum`, beside ``embedding`` and, in a
# decoder, ``output.weight``.
CHECKSUM = "dictionary_checksum"


def dictionary_checksum(dictionary):
    """A checksum of the words and their order."""
    return zlib.crc32("\n".join(dictionary.symbols).encode())


def check_state_dict(expected, state_dict):
    """Raise ``FairseqDocError`` where ``state_dict`` is not of the model that has ``expected``."""
    missing, unknown = sorted(expected.keys() - state_dict), sorted(state_dict.keys() - expected)
    if missing or unknown:
        some = [", ".join(names[:3]) or "none" for names in (missing, unknown)]
        raise FairseqDocError(
            f"the checkpoint is of another architecture: expected {len(expected)} tensors, got "
            f"{len(state_dict)}; missing: {some[0]}; unknown: {some[1]}"
        )
    sides = [name.removesuffix(CHECKSUM) for name in expected if name.endswith(CHECKSUM)]
    which = {"encoder.": "source dictionary", "decoder.": "target dictionary"}
    if len(sides) == 1:  # a language model's
        which = {sides[0]: "dictionary"}
    for side in sides:
        words = [tensors[side + "embedding"].size(0) for tensors in (expected, state_dict)]
        if words[0] != words[1]:
            raise FairseqDocError(
                f"the checkpoint is of another {which[side]}: expected {words[0]} words, as the data "
                f"has, got {words[1]}"
            )
    for name, tensor in expected.items():
        if tensor.shape != state_dict[name].shape:
            raise FairseqDocError(
                f"the checkpoint is of another size: expected {name} {tuple(tensor.shape)}, got "
                f"{tuple(state_dict[name].shape)}"
            )
    first = {}
    for name, tensor in expected.items():
        other = first.setdefault(tensor.data_ptr(), name)
        both = state_dict[other], state_dict[name]
        if other != name and not torch.allclose(*both, rtol=0, atol=0, equal_nan=True):
            raise FairseqDocError(
                f"the checkpoint is of another architecture: expected {name} tied to {other}, got "
                "two matrices; give the options of its training (--untie-output; --share-...)"
            )
    for side in sides:
        sums = [int(tensors[side + CHECKSUM]) for tensors in (expected, state_dict)]
        if sums[0] != sums[1]:
            raise FairseqDocError(
                f"the checkpoint is of another {which[side]}: it has as many words as the data's, "
                f"{expected[side + 'embedding'].size(0)}, but others or in another order (checksum "
                f"expected {sums[0]}, got {sums[1]})"
            )
