from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches.moving_average import load_with_average
from fairseq_doc.models.state_dict import CHECKSUM

from ..conftest import assert_close, small_model, small_translation_model


def moved(model, amount):
    """Add a number to every weight."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(amount)
    return model


def average_of(model, fp32=False):
    return EMA(model, EMAConfig(ema_decay=0.5, ema_fp32=fp32))


def trainer_of(settings):
    """A trainer after 25 updates, whose average has just been made of loaded weights."""
    return SimpleNamespace(
        cfg=SimpleNamespace(ema=settings),
        ema=EMA(moved(small_model().float(), 1.0), settings),
        get_num_updates=lambda: 25,
    )


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("make", [small_model, small_translation_model])
def test_every_tensor_is_averaged_once(make, fp32):
    """The tied output matrix too; a dictionary's checksum stays."""
    model = make().float()
    average = average_of(model, fp32)
    average.step(moved(model, 1.0))
    got = average.get_model().state_dict()
    for name, tensor in model.state_dict().items():
        expected = tensor if name.endswith(CHECKSUM) else tensor - 0.5
        assert_close(got[name], expected, 1e-5, 1e-5)


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("saved", [True, False])
def test_a_resume_has_the_saved_average_or_starts_one(saved, fp32):
    model = small_model().float()
    before = average_of(model, fp32)
    before.step(moved(model, 1.0))
    extra_state = {"epoch": 1}
    if saved:
        extra_state["ema"] = before.get_model().state_dict()
        extra_state["ema_fp32_params"] = before.fp32_params
    settings = EMAConfig(store_ema=True, ema_decay=0.5, ema_fp32=fp32)
    trainer = trainer_of(settings)

    def load(trainer, filename):
        assert not trainer.cfg.ema.store_ema  # else it would read deleted weights
        return extra_state

    assert load_with_average(load, trainer, "last.pt") == extra_state and settings.store_ema
    trainer.ema.step(moved(model, 2.0))
    expected = model.decoder.embedding - (1.25 if saved else 1.0)
    assert_close(trainer.ema.get_model().decoder.embedding, expected, 1e-5, 1e-5)


def test_a_resume_averages_at_the_same_updates():
    trainer = trainer_of(EMAConfig(store_ema=True, ema_decay=0.5, ema_update_freq=10))
    load_with_average(lambda *args: {}, trainer, "last.pt")
    start = trainer.ema.get_model().decoder.embedding.clone()
    for update in range(26, 31):
        trainer.ema.step(moved(small_model().float(), 2.0))
        changed = not torch.equal(trainer.ema.get_model().decoder.embedding, start)
        assert changed == (update == 30)


def test_a_new_training_starts_its_average_after_the_first_update():
    trainer = SimpleNamespace(cfg=SimpleNamespace(ema=EMAConfig(store_ema=True)))  # no ema yet
    assert load_with_average(lambda *args: None, trainer, "none.pt") is None
