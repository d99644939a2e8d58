"""All checkpoints are read here: they must be complete, undamaged, free of code, and fairseq's.

fairseq and torch verify no checksums, and their errors name neither the file nor a remedy. Here a
checkpoint must be a regular file in torch's archive format (since 1.6), its records must have their
checksums, and it must hold a model and its settings. torch always reads it with ``weights_only``, so
that a stranger's file cannot run code; ``SAFE_TYPES`` are the types that fairseq itself stores.
"""

import argparse
import contextlib
import os
import zipfile
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf, open_dict

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import check_input

DEFAULT_RESTORE_FILE = "checkpoint_last.pt"  # fairseq's default: the newest, if it exists
_RECONSTRUCT = np.empty(0).__reduce__()[0]
# Settings that name files which only a training reads and which may no longer exist, and the
# settings that depend on these.
_READ_BY_TRAINING = (
    "encoder_embed_path",
    "decoder_embed_path",
    "grow_from",
    "grow_noise",
    "grow_lower_weight",
)
SAFE_TYPES = (
    argparse.Namespace,  # the settings of models and tasks without a dataclass
    distributed_utils._TensorPlaceholder,  # stands for a tensor in messages between workers
    # Arrays, the counts of fairseq's --eval-bleu, under their names in numpy 1 and 2.
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(number)) for number in ("int64", "float64")),
)


def apply() -> None:
    """Let torch read ``SAFE_TYPES``, which hold no code."""
    torch.serialization.add_safe_globals(list(SAFE_TYPES))


@replaces(checkpoint_utils, "load_checkpoint")
def load_named_file(load, cfg, trainer, **arguments):
    """Refuse a missing --restore-file or --continue-once: fairseq would silently train from
    scratch. With --finetune-from-model, drop the training time and the moving average (EMA) of the
    first training."""
    suffix = f"{trainer.checkpoint_suffix}.pt"
    last = os.path.join(cfg.save_dir, DEFAULT_RESTORE_FILE.replace(".pt", suffix))
    path = None
    if cfg.restore_file != DEFAULT_RESTORE_FILE:
        path = cfg.restore_file.replace(".pt", suffix)
    elif not PathManager.exists(last):  # fairseq's condition
        path = cfg.continue_once
    if path is not None and not PathManager.isfile(path):
        check_file(path)
    starts_anew = path is None and cfg.finetune_from_model and not PathManager.exists(last)
    loaded = load(cfg, trainer, **arguments)
    if starts_anew:
        trainer._previous_training_time, trainer._ema = 0, None
    return loaded


@replaces(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checked(load, path, *args, **kwargs):
    """The state of a checkpoint, which is checked before and after reading."""
    check_file(PathManager.get_local_path(path))
    with clear_errors(path):
        state = load(path, *args, **kwargs)
    if missing := _missing_part(state):
        raise _not_whole(path, f"no {missing}")
    _adapt_settings(state, args[0] if args else kwargs.get("arg_overrides"))
    if "load_on_all_ranks" in kwargs:  # only the trainer passes it
        # The trainer sends the state through torch.load, which refuses omegaconf's types. It does
        # not read the settings.
        state["cfg"] = OmegaConf.to_container(state["cfg"])
    return state


def check_file(path: str | os.PathLike) -> None:
    """Raise ``FairseqDocError`` unless this is a complete archive that torch reads without running
    code."""
    with clear_errors(path):
        if not is_safe_archive(path):
            raise _not_whole(path, "it does not begin like an archive of torch 1.6 or later")


def is_safe_archive(path: str | os.PathLike) -> bool:
    """Whether a regular file is an archive of torch. Raises ``FairseqDocError`` if it is damaged or
    ambiguous, or if torch is set to run code from files."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        raise FairseqDocError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could run code: unset it"
        )
    check_input(path, again=True)
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
        with zipfile.ZipFile(file) as archive:
            names = [name.lower() for name in archive.namelist()]
            if len(set(names)) < len(names):  # torch may read another one than is checked
                raise _not_whole(path, "two records of the same name")
            damaged = archive.testzip()  # by their checksums
            if damaged is not None:
                raise _not_whole(path, f"the record {shown(damaged)} has another checksum")
    return True


@contextlib.contextmanager
def clear_errors(path):
    """Turn any failure while a checkpoint is read into a ``FairseqDocError``."""
    try:
        yield
    except FairseqDocError:
        raise
    except Exception as error:  # a damaged file fails anywhere in its reader
        text = " ".join(str(error).split())
        if "weights_only" in text:  # a long text about how to switch it off
            text = text.partition("WeightsUnpickler error: ")[2].partition(" was not an allowed")[0]
            text = f"types that could run code: {text}"
        raise _not_whole(path, text[:200] or type(error).__name__) from error


def _not_whole(path, got):
    return FairseqDocError(
        f"{path} is not a complete checkpoint of fairseq-train: it is cut off, damaged, or of "
        f"another kind ({got}); fairseq-doc import-checkpoint converts models of awd-lstm-lm, mos "
        "and fastai"
    )


def _missing_part(state):
    model: Any = state.get("model")
    settings: Any = state.get("cfg")
    if not isinstance(model, dict) or not model:
        return "tensors ('model')"
    for part in ("model", "task"):  # a missing value, ???, is not in the settings
        if not OmegaConf.is_dict(settings) or part not in settings or settings[part] is None:
            return f"settings ('cfg') of the {part}"
    return None


def _adapt_settings(state, overrides):
    """Clear the model's ``_READ_BY_TRAINING``, and apply overrides of options that are newer than
    the checkpoint, which fairseq would silently drop."""
    model: Any = state["cfg"]["model"]
    for settings in (state.get("args"), model):
        for name in _READ_BY_TRAINING:
            if getattr(settings, name, None) is not None:
                setattr(settings, name, None)
    known = MODEL_DATACLASS_REGISTRY.get(getattr(model, "_name", None))
    for name in set(overrides or ()) & set(getattr(known, "__dataclass_fields__", ())):
        if not hasattr(model, name):  # an option that is newer than the checkpoint
            with open_dict(state["cfg"]):
                setattr(model, name, overrides[name])
