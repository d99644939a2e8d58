"""With --amp every optimizer steps as without it."""

from argparse import Namespace

import pytest
import torch
from fairseq import optim
from fairseq.optim.amp_optimizer import AMPOptimizer
from omegaconf import OmegaConf
from torch import nn
from torch.testing import assert_close

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.optim.nt_asgd import NTASGD

from ..optim.runs import config

pytestmark = pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled:UserWarning")
SGD = {"lr": [0.5], "momentum": 0.9, "weight_decay": 0.01}
SETTINGS = {
    "sgd": Namespace(_name="sgd", optimizer="sgd", **SGD),
    "nag": OmegaConf.create({"_name": "nag", "momentum": 0.9, "weight_decay": 0.01, "lr": [0.5]}),
    "nt_asgd": config(weight_decay=0.01),
}


def build(name, parameters):
    if name == "nt_asgd":  # its settings are those of a whole command line
        return NTASGD(SETTINGS[name], parameters)
    return optim.build_optimizer(SETTINGS[name], parameters)


def amp(name, parameters, scale):
    """fairseq's wrapper with a scaler that works without a GPU."""
    cfg = Namespace(
        optimizer=SETTINGS[name],
        common=Namespace(fp16_init_scale=scale, min_loss_scale=1e-4, amp_scale_window=None),
    )
    wrapper = AMPOptimizer(cfg, parameters, build(name, parameters))
    wrapper._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return wrapper


def step(optimizer, parameter, gradient, clip):
    optimizer.zero_grad()
    optimizer.backward((parameter * gradient).sum())
    optimizer.multiply_grads(0.5)
    norm = optimizer.clip_grad_norm(clip)
    optimizer.step()
    return norm


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_with_a_loss_scale_equals_one_without(name, clip):
    start = torch.randn(5, 3)
    one, two = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    plain = build(name, [one])
    scaled = amp(name, [two], scale=128.0)
    for _ in range(3):
        gradient = torch.randn(5, 3)
        norms = [step(plain, one, gradient, clip), step(scaled, two, gradient, clip)]
        assert_close(norms[0], norms[1])
        assert_close(one, two)
    assert not torch.allclose(one, start)


def test_no_step_is_taken_where_gradients_overflow_and_the_scale_falls():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = amp("sgd", [parameter], scale=128.0)
    step(optimizer, parameter, torch.tensor([1.0, torch.inf]), 0.25)
    assert parameter.tolist() == [1.0, 1.0]
    assert optimizer.scaler.get_scale() == 64.0
    step(optimizer, parameter, torch.tensor([2.0, 0.0]), 0.0)
    assert parameter.tolist() != [1.0, 1.0]
