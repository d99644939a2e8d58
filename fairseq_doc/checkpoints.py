"""Loading checkpoints: which types they may hold, and clear refusals.

torch reads a checkpoint with ``weights_only``, so that a file from a stranger runs no code, and then
refuses what fairseq itself puts there. The types below, plain containers of values, are allowed;
nothing else is, and ``weights_only`` is never switched off.
"""

import argparse
import functools
import pickle

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from fairseq_doc.errors import FairseqDocError

torch.serialization.add_safe_globals(
    [
        argparse.Namespace,  # the settings of models and tasks without a dataclass
        distributed_utils._TensorPlaceholder,  # a tensor's place in what workers send each other
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
