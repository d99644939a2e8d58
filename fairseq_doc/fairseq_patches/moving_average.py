"""``--store-ema`` averages every model correctly, and its average can be loaded.

fairseq decays a tensor with two names, such as a tied output matrix, twice per update; it fails for
integer tensors, and for a checkpoint without an average. It never evaluates the average, and reads
it without the checks of :mod:`checkpoint_reading`.
"""

from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.ema import EMA
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches.wrapping import replaces


@replaces(EMA, "_step_internal")
def decay_once(step, ema, new_model, updates=None):
    """Decay each tensor once, under its first name; copy integers."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in new_model.state_dict().items():
        if isinstance(tensor, Tensor):
            tensors.setdefault(tensor.data_ptr(), (name, tensor))
            if not tensor.is_floating_point():
                ema.skip_keys.add(name)
    step(ema, SimpleNamespace(state_dict=lambda: dict(tensors.values())), updates)


@replaces(Trainer, "load_checkpoint")
def load_with_average(load, trainer, *args, **kwargs):
    """If the checkpoint has no average, start one at the loaded weights."""
    settings = trainer.cfg.ema
    if not settings.store_ema:
        return load(trainer, *args, **kwargs)
    settings.store_ema = False  # fairseq would read weights that it has deleted
    try:
        extra_state = load(trainer, *args, **kwargs)
    finally:
        settings.store_ema = True
    if extra_state is None:  # no checkpoint
        return None
    average = trainer.ema  # fairseq creates it here as a copy of the loaded weights
    if "ema" in extra_state:
        average.restore(extra_state["ema"])
        if settings.ema_fp32:
            average.build_fp32_params(extra_state.get("ema_fp32_params"))
    return extra_state


@replaces(checkpoint_utils, "load_ema_from_checkpoint")
def load_average(load, path):
    """The state of a checkpoint with the average as its model. Raises ``FairseqDocError`` if it has
    none."""
    state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(path)
    average = state["extra_state"].pop("ema", None)
    if not average:
        raise FairseqDocError(
            f"{path} has no moving average: expected a checkpoint of a training with --store-ema"
        )
    state["extra_state"].pop("ema_fp32_params", None)
    # omegaconf's types could not be read back from a file.
    return {**state, "model": average, "cfg": OmegaConf.to_container(state["cfg"])}
