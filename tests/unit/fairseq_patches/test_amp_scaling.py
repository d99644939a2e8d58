"""With --amp an optimizer steps as without it."""

from argparse import Namespace

import pytest
import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import nn
from torch.testing import assert_close

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.optim.nt_asgd import NTASGD

from ..optim.runs import config

pytestmark = pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled:UserWarning")
SETTINGS = config(weight_decay=0.01)


def amp(parameters, scale):
    """fairseq's wrapper with a scaler that works without a GPU."""
    common = Namespace(fp16_init_scale=scale, min_loss_scale=1e-4, amp_scale_window=None)
    cfg = Namespace(optimizer=SETTINGS, common=common)
    wrapper = AMPOptimizer(cfg, parameters, NTASGD(SETTINGS, parameters))
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
def test_a_step_with_a_loss_scale_equals_one_without(clip):
    start = torch.randn(5, 3)
    one, two = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    plain, scaled = NTASGD(SETTINGS, [one]), amp([two], scale=128.0)
    for _ in range(3):
        gradient = torch.randn(5, 3)
        norms = [step(plain, one, gradient, clip), step(scaled, two, gradient, clip)]
        assert_close(norms[0], norms[1])
        assert_close(one, two)
    assert not torch.allclose(one, start)


def test_no_step_is_taken_where_gradients_overflow_and_the_scale_falls():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = amp([parameter], scale=128.0)
    step(optimizer, parameter, torch.tensor([1.0, torch.inf]), 0.25)
    assert parameter.tolist() == [1.0, 1.0]
    assert optimizer.scaler.get_scale() == 64.0
    step(optimizer, parameter, torch.tensor([2.0, 0.0]), 0.0)
    assert parameter.tolist() != [1.0, 1.0]
