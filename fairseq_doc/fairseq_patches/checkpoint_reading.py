"""The one way in for checkpoints: whole, unchanged, without code, and fairseq's.

fairseq and torch check no checksum, and their errors name neither file nor remedy. Here a
checkpoint is a regular file in torch's archive format (since 1.6), its records have their
checksums, and it holds a model and its settings. torch always reads it with ``weights_only``, so
that a stranger's file runs no code; ``SAFE_TYPES`` are what fairseq itself puts there.
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

DEFAULT_RESTORE_FILE = "checkpoint_last.pt"  # fairseq's: the newest, if there is one
_ZIP = b"PK\x03\x04"
_RECONSTRUCT = np.empty(0).__reduce__()[0]
SAFE_TYPES = (
    argparse.Namespace,  # the settings of models and tasks without a dataclass
    distributed_utils._TensorPlaceholder,  # a tensor's place in what workers send each other
    # Arrays, the counts of fairseq's --eval-bleu, under their names in numpy 1 and 2.
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(number)) for number in ("int64", "float64")),
)
torch.serialization.add_safe_globals(list(SAFE_TYPES))


@replaces(checkpoint_utils, "load_checkpoint")
def load_named_file(load, cfg, trainer, **arguments):
    """Without the file of --restore-file fairseq would silently train from the beginning."""
    if cfg.restore_file != DEFAULT_RESTORE_FILE:
        path = cfg.restore_file.replace(".pt", f"{trainer.checkpoint_suffix}.pt")
        if not PathManager.isfile(path):
            check_file(path)
    return load(cfg, trainer, **arguments)


@replaces(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checked(load, path, *args, **kwargs):
    """The state of a checkpoint, checked before and after reading."""
    check_file(PathManager.get_local_path(path))
    with clear_errors(path):
        state = load(path, *args, **kwargs)
    problem = _problem(state)
    if problem:
        raise _not_whole(path, problem)
    _adapt_settings(state, args[0] if args else kwargs.get("arg_overrides"))
    if "load_on_all_ranks" in kwargs:  # which only the trainer passes
        # It sends the state through torch.load, which refuses omegaconf; it reads no settings.
        state["cfg"] = OmegaConf.to_container(state["cfg"])
    return state


def check_file(path: str | os.PathLike) -> None:
    """Raise ``FairseqDocError`` unless this is a whole archive that torch reads without code."""
    with clear_errors(path):
        if not is_safe_archive(path):  # zipfile also reads an archive after other bytes
            raise _not_whole(path, "it does not begin as torch's archives do since version 1.6")


def is_safe_archive(path: str | os.PathLike) -> bool:
    """Whether a regular file is an archive of torch; ``FairseqDocError`` if that is damaged or
    could harm, or if torch would run the code of a file."""
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        raise FairseqDocError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so that a checkpoint could run code: unset it"
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
            f"{path} was refused: it holds two records of one name, which readers take differently"
        )
    packed = any(record.compress_type != zipfile.ZIP_STORED for record in records)
    if packed or sum(record.file_size for record in records) > os.path.getsize(path):
        raise FairseqDocError(
            f"{path} was refused: expected records as torch writes them, not compressed; got an "
            "archive that expands"
        )
    damaged = archive.testzip()  # by their checksums
    if damaged is not None:
        raise _not_whole(path, f"the record {shown(damaged)} with another checksum")


@contextlib.contextmanager
def clear_errors(path):
    """What fails while a checkpoint is read is a ``FairseqDocError``."""
    try:
        yield
    except FairseqDocError:
        raise
    except Exception as error:  # a damaged file fails anywhere in its reader
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "can't allocate memory" in text:
            message = f"no memory is left to read {path}, {os.path.getsize(path):,} bytes"
        elif isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            message = f"cannot read {path}: {error.strerror}"
        elif isinstance(error, pickle.UnpicklingError) and "weights_only" in text:
            foreign = foreign_error(path)
            if foreign:
                raise foreign from None
            message = (
                f"{path} was refused: expected tensors and plain values; got more, which could run "
                f"code ({text.partition('WeightsUnpickler error: ')[2][:200]})"
            )
        else:
            raise _not_whole(path, text[:200] or type(error).__name__) from error
        raise FairseqDocError(message) from error


def _not_whole(path, got):
    return foreign_error(path) or FairseqDocError(
        f"{path} is not a whole checkpoint: expected an archive that fairseq-train finished "
        f"writing; got one that is cut off, damaged, or of another kind ({got})"
    )


def _problem(state):
    model: Any = state.get("model")
    settings: Any = state.get("cfg")
    if not isinstance(model, dict) or not model:
        return "no tensors, 'model'"
    for name, tensor in model.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            return f"a {type(tensor).__name__} for the model's tensor {name!r:.80}"
    for part in ("model", "task"):  # a missing value, ???, is not in the settings
        if not OmegaConf.is_dict(settings) or part not in settings or settings[part] is None:
            return f"no settings, 'cfg', of the {part}"
    for name, kind in (("extra_state", dict), ("optimizer_history", list)):
        if not isinstance(state.get(name), kind):
            return f"no {kind.__name__} {name!r}"
    return None


def _adapt_settings(state, overrides):
    """Settings of a model that fairseq would drop, or not override, without a word."""
    model: Any = state["cfg"]["model"]
    for settings in (state.get("args"), model):  # the embeddings' file may be gone
        for name in ("encoder_embed_path", "decoder_embed_path"):
            if getattr(settings, name, None) is not None:
                setattr(settings, name, None)
    known = MODEL_DATACLASS_REGISTRY.get(getattr(model, "_name", None))
    for name in set(overrides or ()) & set(getattr(known, "__dataclass_fields__", ())):
        if not hasattr(model, name):  # an option that is newer than the checkpoint
            with open_dict(state["cfg"]):
                setattr(model, name, overrides[name])
