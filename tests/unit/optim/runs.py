"""Shared by the tests of the optimizer: the rule of the stages, small runs, settings."""

import torch
from hypothesis import strategies as st
from torch import nn

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.optim.averaged_weights import AveragedWeights
from fairseq_doc.optim.nt_asgd import NTASGDConfig

from ..conftest import config_of


def first_firing(losses, begin, nonmono):
    """The first place from ``begin`` on whose loss has more than ``nonmono`` losses between
    ``begin`` and itself and is worse than the best of all but the last ``nonmono`` of them."""
    for t in range(begin, len(losses)):
        listed = losses[begin:t]
        if len(listed) > nonmono and losses[t] > min(listed[: len(listed) - nonmono]):
            return t
    return None


def plan(losses, nonmono, stages):
    """The steps of every epoch, from the rule's words: SGD until the criterion fires, averaging
    until it fires again, then stages 1, 2, ..., each with an empty list, until it fires. After
    stage ``stages``, or for -1 after one that did not lower the best loss of all before it, stop;
    without stages averaging never ends."""
    fired, begin_of_stage, begin, phase, n = {}, [0], 0, -1, len(losses)
    while (t := first_firing(losses, begin, nonmono)) is not None:
        if phase == -1:
            fired[t] = "average"
        elif stages == 0:
            break
        elif phase == stages or (
            stages == -1 and phase > 0 and min(losses[begin : t + 1]) >= min(losses[:begin])
        ):
            fired[t], n = "stop", t + 1
            break
        else:
            fired[t] = "restart"
            begin_of_stage.append(t + 1)
        phase, begin = phase + 1, t + 1
    steps = [[] for _ in losses]
    for t in range(n):
        since = max(begin for begin in begin_of_stage if begin <= t)
        if all(losses[t] < x for x in losses[since:t]):
            steps[t].append("keep_best_of_stage")
        if all(losses[t] < x for x in losses[:t]):
            steps[t].append("keep_best")
        if t in fired:
            steps[t].append(fired[t])
    return steps


@st.composite
def scripts(draw):
    """(n, losses) of a run of many stages: each goes down to its own lowest loss, mostly a lower one
    than before, and then up until the criterion has fired; half of them end in the middle."""
    nonmono, losses, low = draw(st.integers(0, 3)), [], 100.0
    for _ in range(draw(st.integers(1, 8))):
        low += draw(st.sampled_from([-3.0, -1.0, -1.0, 0.0, 2.0]))
        for _ in range(draw(st.integers(0, 4))):
            losses.append(low + draw(st.integers(0, 20)) / 4)
        losses += [low] + [low + 7.0] * (nonmono + draw(st.integers(1, 2)))
    return nonmono, losses[: len(losses) - draw(st.integers(0, 3))]


def run(optimizer, parameters, gradient, rates):
    """Steps at the given rates; the parameters after each, as plain lists."""
    iterates = []
    for rate in rates:
        if isinstance(optimizer, AveragedWeights):
            optimizer.show(average=False)  # gradients are taken at the raw weights
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        for p in parameters:
            p.grad = gradient(p.detach())
        optimizer.step()
        iterates.append([p.tolist() for p in parameters])
    return iterates


def quadratic(x):
    return 0.3 * x - 1


def new_parameters():
    rng = torch.Generator().manual_seed(0)
    shapes = ((3,), (2, 2), ())
    return [
        nn.Parameter(torch.randn(shape, generator=rng, dtype=torch.float64)) for shape in shapes
    ]


def config(**changes):
    names = {"lr_scheduler_name": "nt_asgd", "task_name": TASK}
    settings = {"lr": [0.5], "nonmono": 1, "no_save": True, **names}
    return config_of(NTASGDConfig, **{**settings, **changes})
