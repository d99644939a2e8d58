"""All checkpoints are read here: they must be complete, undamaged, free of code, and fairseq's.

fairseq and torch verify no checksums, and their errors name neither the file nor a remedy. Here a
checkpoint must be a regular file in torch's archive format (since 1.6), its records must have their
checksums, and it must hold a model and its settings. torch always reads it with ``weights_only``, so
that a stranger's file cannot run code; ``SAFE_TYPES`` are the types that fairseq itself stores.
"""

import argparse
import contextlib
import errno
import os
import pickle
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
from fairseq_doc.fairseq_patches.foreign_checkpoints import foreign_error
from fairseq_doc.fairseq_patches.wrapping import replaces
from fairseq_doc.files import check_input

DEFAULT_RESTORE_FILE = "checkpoint_last.pt"  # fairseq's default: the newest, if it exists
_ZIP = b"PK\x03\x04"
_RECONSTRUCT = np.empty(0).__reduce__()[0]
SAFE_TYPES = (
    argparse.Namespace,  # the settings of models and tasks without a dataclass
    distributed_utils._TensorPlaceholder,  # stands for a tensor in messages between workers
    # Arrays, the counts of fairseq's --eval-bleu, under their names in numpy 1 and 2.
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(number)) for number in ("int64", "float64")),
)
torch.serialization.add_safe_globals(list(SAFE_TYPES))


@replaces(checkpoint_utils, "load_checkpoint")
def load_named_file(load, cfg, trainer, **arguments):
    """Refuse a missing --restore-file, without which fairseq would silently train from scratch."""
    if cfg.restore_file != DEFAULT_RESTORE_FILE:
        path = cfg.restore_file.replace(".pt", f"{trainer.checkpoint_suffix}.pt")
        if not PathManager.isfile(path):
            check_file(path)
    return load(cfg, trainer, **arguments)


@replaces(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checked(load, path, *args, **kwargs):
    """The state of a checkpoint, which is checked before and after reading."""
    check_file(PathManager.get_local_path(path))
    with clear_errors(path):
        state = load(path, *args, **kwargs)
    problem = _problem(state)
    if problem:
        raise _not_whole(path, problem)
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
        if not is_safe_archive(path):  # zipfile also reads an archive after other bytes
            raise _not_whole(path, "it does not begin like an archive of torch 1.6 or later")


def is_safe_archive(path: str | os.PathLike) -> bool:
    """Whether a regular file is an archive of torch. Raises ``FairseqDocError`` if it is damaged or
    malicious, or if torch is set to run code from files."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        raise FairseqDocError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could run code: unset it"
        )
    check_input(path, again=True)
    with open(path, "rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return False
        with zipfile.ZipFile(file) as archive:
            _check_records(path, archive)
    return True


def _check_records(path, archive):
    records = archive.infolist()
    if len({record.filename.lower() for record in records}) < len(records):
        raise FairseqDocError(
            f"{path} was refused: it holds two records of the same name, which is ambiguous"
        )
    packed = any(record.compress_type != zipfile.ZIP_STORED for record in records)
    if packed or sum(record.file_size for record in records) > os.path.getsize(path):
        raise FairseqDocError(
            f"{path} was refused: expected uncompressed records, as torch writes them; got a "
            "compressed archive"
        )
    damaged = archive.testzip()  # by their checksums
    if damaged is not None:
        raise _not_whole(path, f"the record {shown(damaged)} has another checksum")


@contextlib.contextmanager
def clear_errors(path):
    """Turn any failure while a checkpoint is read into a ``FairseqDocError``."""
    try:
        yield
    except FairseqDocError:
        raise
    except Exception as error:  # a damaged file fails anywhere in its reader
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "can't allocate memory" in text:
            message = f"not enough memory to read {path}, {os.path.getsize(path):,} bytes"
        elif isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            message = f"cannot read {path}: {error.strerror}"
        elif isinstance(error, pickle.UnpicklingError) and "weights_only" in text:
            foreign = foreign_error(path)
            if foreign:
                raise foreign from None
            message = (
                f"{path} was refused: expected only tensors and plain values; got others, which "
                f"could run code ({text.partition('WeightsUnpickler error: ')[2][:200]})"
            )
        else:
            raise _not_whole(path, text[:200] or type(error).__name__) from error
        raise FairseqDocError(message) from error


def _not_whole(path, got):
    return foreign_error(path) or FairseqDocError(
        f"{path} is not a complete checkpoint of fairseq-train: it is cut off, damaged, or of "
        f"another kind ({got})"
    )


def _problem(state):
    model: Any = state.get("model")
    settings: Any = state.get("cfg")
    if not isinstance(model, dict) or not model:
        return "no tensors ('model')"
    for name, tensor in model.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            return f"a {type(tensor).__name__} for the model's tensor {name!r:.80}"
    for part in ("model", "task"):  # a missing value, ???, is not in the settings
        if not OmegaConf.is_dict(settings) or part not in settings or settings[part] is None:
            return f"no settings ('cfg') of the {part}"
    for name, kind in (("extra_state", dict), ("optimizer_history", list)):
        if not isinstance(state.get(name), kind):
            return f"no {kind.__name__} {name!r}"
    return None


def _adapt_settings(state, overrides):
    """Adapt settings of the model that fairseq would silently drop or not override."""
    model: Any = state["cfg"]["model"]
    for settings in (state.get("args"), model):  # these files may no longer exist
        for name in ("encoder_embed_path", "decoder_embed_path", "grow_from"):
            if getattr(settings, name, None) is not None:
                setattr(settings, name, None)
    known = MODEL_DATACLASS_REGISTRY.get(getattr(model, "_name", None))
    for name in set(overrides or ()) & set(getattr(known, "__dataclass_fields__", ())):
        if not hasattr(model, name):  # an option that is newer than the checkpoint
            with open_dict(state["cfg"]):
                setattr(model, name, overrides[name])
