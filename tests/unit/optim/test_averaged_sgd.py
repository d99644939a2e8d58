import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.optim.nt_asgd import AveragedSGD

from ..conftest import assert_close
from .runs import new_parameters, quadratic, run


def mean_of_iterates(iterates):
    """What torch's ASGD gives with t0 = 0, lambd = 0: the newest of one or two iterates, the mean
    of all but the first of more."""
    counted = iterates[-1:] if len(iterates) <= 2 else iterates[1:]
    totals = [torch.zeros_like(torch.tensor(x), dtype=torch.float64) for x in counted[0]]
    for iterate in counted:
        totals = [
            t + torch.tensor(x, dtype=torch.float64) for t, x in zip(totals, iterate, strict=True)
        ]
    return [t / len(counted) for t in totals]


rate_lists = st.lists(st.floats(0.01, 2), min_size=1, max_size=8)


@given(rate_lists, st.integers(0, 8), st.sampled_from([0.0, 0.1]))
def test_steps_and_average_are_those_of_plain_arithmetic(rates, switch, weight_decay):
    switch = min(switch, len(rates))
    parameters = new_parameters()
    values, raw = [p.detach().clone() for p in parameters], []
    for rate in rates:  # this step's rate at this step
        values = [x - rate * (quadratic(x) + weight_decay * x) for x in values]
        raw.append([x.tolist() for x in values])

    optimizer = AveragedSGD(parameters, lr=9.0, weight_decay=weight_decay)
    iterates = run(optimizer, parameters, quadratic, rates[:switch])
    optimizer.start_averaging()
    optimizer.show_average()  # nothing to show yet
    iterates += run(optimizer, parameters, quadratic, rates[switch:])
    assert_close(iterates, raw)
    optimizer.show_average()
    expected = mean_of_iterates(raw[switch:]) if rates[switch:] else values
    assert_close([p.detach() for p in parameters], expected)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_average_is_torchs_at_a_constant_rate(steps, weight_decay):
    ours, theirs = new_parameters(), new_parameters()
    optimizer = AveragedSGD(ours, lr=0.5, weight_decay=weight_decay)
    optimizer.start_averaging()
    torchs = torch.optim.ASGD(theirs, lr=0.5, lambd=0, t0=0, weight_decay=weight_decay)
    rates = [0.5] * steps
    assert_close(run(optimizer, ours, quadratic, rates), run(torchs, theirs, quadratic, rates))
    optimizer.show_average()
    average = [torchs.state[p]["ax"] for p in theirs]
    assert_close([p.detach() for p in ours], average, rtol=1e-6, atol=1e-6)  # its 1/k is float32


@given(rate_lists, st.lists(st.sampled_from(["average", "raw"]), min_size=8, max_size=8))
def test_showing_the_average_between_steps_changes_no_step(rates, shows):
    plain, shown = new_parameters(), new_parameters()
    one, two = AveragedSGD(plain, lr=1.0), AveragedSGD(shown, lr=1.0)
    one.start_averaging()
    two.start_averaging()
    for rate, show in zip(rates, shows, strict=False):
        run(one, plain, quadratic, [rate])
        run(two, shown, quadratic, [rate])
        for _ in range(2):  # twice is once
            two.show_average() if show == "average" else two.show_raw()
    for optimizer in (one, two):
        optimizer.show_raw()
    assert_close([p.detach() for p in plain], [p.detach() for p in shown], rtol=0, atol=0)
    for optimizer in (one, two):
        optimizer.show_average()
    assert_close([p.detach() for p in plain], [p.detach() for p in shown], rtol=0, atol=0)


@pytest.mark.parametrize("shown", ["average", "raw"])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5])
def test_a_saved_optimizer_goes_on_as_if_it_had_never_stopped(tmp_path, cut, shown):
    rates = [0.5, 0.3, 1.1, 0.2, 0.9, 0.4]
    whole, first, second = new_parameters(), new_parameters(), new_parameters()
    optimizers = [AveragedSGD(p, lr=1.0) for p in (whole, first, second)]
    for optimizer in optimizers[:2]:
        optimizer.start_averaging()
    run(optimizers[0], whole, quadratic, rates)

    run(optimizers[1], first, quadratic, rates[:cut])
    if shown == "average":
        optimizers[1].show_average()
    torch.save([optimizers[1].state_dict(), [p.data for p in first]], tmp_path / "saved")
    state, weights = torch.load(tmp_path / "saved")
    for p, x in zip(second, weights, strict=True):
        p.data.copy_(x)
    optimizers[2].load_state_dict(state)
    run(optimizers[2], second, quadratic, rates[cut:])

    for show in ("show_raw", "show_average"):
        for optimizer in optimizers:
            getattr(optimizer, show)()
        assert_close([p.detach() for p in second], [p.detach() for p in whole], rtol=0, atol=0)


def test_restart_takes_up_the_kept_weights_with_a_fresh_average():
    parameters = new_parameters()
    optimizer = AveragedSGD(parameters, lr=0.5)
    optimizer.start_averaging()
    run(optimizer, parameters, quadratic, [0.5] * 4)
    optimizer.show_average()
    optimizer.keep_best()
    best = [p.detach().clone() for p in parameters]
    run(optimizer, parameters, quadratic, [0.5] * 3)
    optimizer.show_average()
    optimizer.restart()
    assert_close([p.detach() for p in parameters], best, rtol=0, atol=0)
    optimizer.show_average()
    assert_close([p.detach() for p in parameters], best, rtol=0, atol=0)

    iterates = run(optimizer, parameters, quadratic, [0.5] * 4)
    expected, values = [], best
    for _ in range(4):
        values = [x - 0.5 * quadratic(x) for x in values]
        expected.append([x.tolist() for x in values])
    assert_close(iterates, expected)
    optimizer.show_average()
    assert_close([p.detach() for p in parameters], mean_of_iterates(expected))
