"""``--store-ema`` averages every model correctly, and its average can be loaded.

fairseq decays a tensor with two names, such as a tied output matrix, twice per update; it fails on
integer tensors, and on a checkpoint without an average.
"""

from types import SimpleNamespace

from fairseq.models.ema import EMA
from fairseq.trainer import Trainer
from torch import Tensor

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
    average.update_freq_counter = trainer.get_num_updates() % max(1, settings.ema_update_freq)
    if "ema" in extra_state:
        average.restore(extra_state["ema"])
        if settings.ema_fp32:
            average.build_fp32_params(extra_state.get("ema_fp32_params"))
    return extra_state
