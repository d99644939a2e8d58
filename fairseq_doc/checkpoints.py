"""Loading checkpoints: which types they may hold, and clear refusals.

torch reads a checkpoint with ``weights_only``, so that a file from a stranger runs no code, and then
refuses what fairseq itself puts there. The types below, plain containers of values, are allowed;
nothing else is, and ``weights_only`` is never switched off.
"""

import argparse
import functools
import pickle
import zipfile

import torch
from fairseq import checkpoint_utils

from fairseq_doc.errors import FairseqDocError

torch.serialization.add_safe_globals([argparse.Namespace])


def _with_clear_refusals(load):
    @functools.wraps(load)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        try:
            return load(path, *args, **kwargs)
        except pickle.UnpicklingError as error:
            if "weights_only" not in str(error) and "Unsupported" not in str(error):
                raise _damaged(path, error) from error
            raise FairseqDocError(
                f"{path} was refused: a checkpoint may hold tensors and plain values, and this one "
                f"holds more, which could run code ({_gist(error)})"
            ) from error
        except (EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            raise _damaged(path, error) from error

    return load_checkpoint_to_cpu


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
