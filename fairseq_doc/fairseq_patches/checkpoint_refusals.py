"""A damaged or dangerous checkpoint is refused in one clear sentence.

fairseq passes on whatever its reader raises, which names neither the file nor a remedy.
"""

import functools
import pickle

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_doc.errors import FairseqDocError


def apply() -> None:
    """Replace the function that reads every checkpoint."""
    checkpoint_utils.load_checkpoint_to_cpu = _with_clear_refusals(
        checkpoint_utils.load_checkpoint_to_cpu
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
    named = [line for line in lines if "WeightsUnpickler error" in line or "GLOBAL" in line]
    return (named or lines or [type(error).__name__])[0][:200]
