"""The one way in for checkpoints: whole, unchanged, without code, and fairseq's.

fairseq opens whatever it is given, torch compares no checksum, and what either raises names neither the
file nor a remedy. Here a checkpoint is a regular file; every record of its archive has the checksum that
torch wrote beside it; torch reads it with ``weights_only``; and it holds a model and its settings.
"""

import contextlib
import errno
import functools
import logging
import os
import pickle
import pickletools
import zipfile
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf, open_dict

from fairseq_doc.errors import FairseqDocError

DEFAULT_RESTORE_FILE = "checkpoint_last.pt"  # fairseq's: the newest, if there is one
_ZIP = b"PK\x03\x04"
_CHUNK = 1 << 20  # bytes read at once
# At the start of a file of torch before 1.6: its mark, version, system, the object, the storages' keys.
_PICKLES = 5
# Settings that name a file of embeddings, which training starts from.
_EMBEDDING_FILES = ("encoder_embed_path", "decoder_embed_path")

logger = logging.getLogger(__name__)


def apply() -> None:
    """Replace the functions that read every checkpoint and that look for the one to continue."""
    checkpoint_utils.load_checkpoint_to_cpu = _checked(checkpoint_utils.load_checkpoint_to_cpu)
    checkpoint_utils.load_checkpoint = _of_named_file(checkpoint_utils.load_checkpoint)


def _of_named_file(load):
    """fairseq trains from the beginning, without a word, where the file of --restore-file is missing."""

    @functools.wraps(load)
    def load_checkpoint(cfg, trainer, **arguments):
        if cfg.restore_file != DEFAULT_RESTORE_FILE:
            path = cfg.restore_file.replace(".pt", f"{trainer.checkpoint_suffix}.pt")
            if not PathManager.isfile(path):
                check_file(path)
        return load(cfg, trainer, **arguments)

    return load_checkpoint


def _checked(load):
    @functools.wraps(load)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        local = PathManager.get_local_path(path)
        check_file(local)
        with _clear_errors(path):
            state = load(path, *args, **kwargs)
        problem = _problem(state)
        if problem:
            raise FairseqDocError(
                f"{path} is not a whole checkpoint: expected one that fairseq-train wrote; got {problem}"
            )
        _forget_embedding_files(state)
        _warn_of_component_threshold(path, state)
        _add_new_settings(state, args[0] if args else kwargs.get("arg_overrides"))
        return _fit_to_broadcast(state, kwargs)

    return load_checkpoint_to_cpu


def check_file(path: str | os.PathLike) -> None:
    """Check what can be checked before a checkpoint is read.

    Raises:
        FairseqDocError: no regular file, a damaged archive, or an environment in which torch would run
            a checkpoint's code.
    """
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        raise FairseqDocError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so that a checkpoint could run code: unset it"
        )
    if not os.path.exists(path):
        raise FairseqDocError(f"no checkpoint at {path}: expected a file of fairseq-train")
    if not os.path.isfile(path):
        raise FairseqDocError(f"{path}: expected a checkpoint, a regular file; got something else")
    with _clear_errors(path), open(path, "rb") as file:
        if file.read(len(_ZIP)) == _ZIP:
            _check_archive(path, file)
        else:
            logger.warning(
                "%s has no checksums (torch wrote none before 1.6): damaged weights go unnoticed",
                path,
            )


def _check_archive(path, file):
    with zipfile.ZipFile(file) as archive:
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
        for record in records:
            with archive.open(record) as data:  # compares the checksum at the end
                while data.read(_CHUNK):
                    pass


@contextlib.contextmanager
def _clear_errors(path):
    try:
        yield
    except FairseqDocError:
        raise
    except pickle.UnpicklingError as error:
        known = "weights_only" in str(error) or "Unsupported" in str(error)
        if not known or _is_cut_short(path):
            raise _damaged(path, error) from error
        raise FairseqDocError(
            f"{path} was refused: a checkpoint may hold tensors and plain values, and this one holds "
            f"more, which could run code ({_gist(error)})"
        ) from error
    except Exception as error:  # a damaged file fails anywhere in its reader
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise FairseqDocError(
                f"no memory is left to read {path}, {os.path.getsize(path):,} bytes: end other "
                "programs, or use a machine with more"
            ) from error
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise FairseqDocError(f"cannot read {path}: {error.strerror}") from error
        raise _damaged(path, error) from error


def _is_cut_short(path):
    """Whether a file of torch before 1.6 ends inside one of its first pickles: the half of a name is
    also a name that is not allowed. Nothing is built from them."""
    with open(path, "rb") as file:
        if file.read(len(_ZIP)) == _ZIP:
            return False  # an archive ends with its directory
        file.seek(0)
        size = os.path.getsize(path)
        for _ in range(_PICKLES):
            if file.tell() == size:
                return False
            try:
                for _ in pickletools.genops(file):
                    pass
            except Exception:  # a damaged pickle fails anywhere; one may ask for petabytes
                return True
    return False


def _problem(state):
    """What a checkpoint lacks, in a few words; None for a whole one."""
    if not isinstance(state, dict):
        return f"a {type(state).__name__}"
    model = state.get("model")
    if not isinstance(model, dict) or not model:
        return f"{_kind(model)} for the model's tensors, 'model'"
    for name, tensor in model.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            return f"{_kind(tensor)} for the model's tensor {name!r:.80}"
    settings: Any = state.get("cfg")
    if not OmegaConf.is_dict(settings):
        return f"{_kind(settings)} for the settings, 'cfg'"
    for part in ("model", "task"):
        if part not in settings or settings[part] is None:  # a missing value, ???, is not in it
            return f"settings, 'cfg', without those of the {part}"
    for name, kind in (("extra_state", dict), ("optimizer_history", list)):
        if not isinstance(state.get(name), kind):
            return f"{_kind(state.get(name))} for {name!r}"
    return None


def _kind(value):
    """The kind of a value, as an error names it."""
    if value is None:
        return "nothing"
    return f"an empty {type(value).__name__}" if value in ({}, []) else f"a {type(value).__name__}"


def _forget_embedding_files(state):
    """A checkpoint holds the embeddings themselves: the file that training started from may be gone.
    Training takes its name from the command line."""
    for settings in (state.get("args"), state["cfg"].get("model")):
        for name in _EMBEDDING_FILES:
            if getattr(settings, name, None) is not None:
                setattr(settings, name, None)


def _warn_of_component_threshold(path, state):
    """fairseq drops settings that a model does not have, without a word."""
    threshold = getattr(state["cfg"].get("model"), "component_threshold", 0)
    if threshold:
        logger.warning(
            "%s was saved with --component-threshold %s, an option that is gone: all components are "
            "used, so results differ from those of before",
            path,
            threshold,
        )


def _add_new_settings(state, overrides):
    """fairseq overrides only what a checkpoint has, so that an option younger than the checkpoint would
    be ignored without a word."""
    settings = state["cfg"].get("model")
    known = MODEL_DATACLASS_REGISTRY.get(getattr(settings, "_name", None))
    for name in set(overrides or ()) & set(getattr(known, "__dataclass_fields__", ())):
        if not hasattr(settings, name):
            with open_dict(settings) if OmegaConf.is_config(settings) else contextlib.nullcontext():
                setattr(settings, name, overrides[name])


def _fit_to_broadcast(state, settings):
    """The trainer of several workers loads on the first and sends the state to the others through
    ``torch.load``, which refuses omegaconf's classes. It reads no settings from the state, so they
    go as plain values. Only the trainer passes ``load_on_all_ranks``."""
    if "load_on_all_ranks" in settings:
        state["cfg"] = OmegaConf.to_container(state["cfg"])
    return state


def _damaged(path, error):
    return FairseqDocError(
        f"{path} is not a whole checkpoint: expected a file that fairseq-train finished writing; got "
        f"one that is cut off, damaged, or of another kind ({_gist(error)})"
    )


def _gist(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "WeightsUnpickler error" in line or "GLOBAL" in line]
    return (named or lines or [type(error).__name__])[0][:200]
